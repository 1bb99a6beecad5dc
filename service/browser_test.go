package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium returns the path of a browser; "" if there is none.
func chromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// A page of the console in a separate browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string // what the browser has complained about
	cut   bool     // the test cuts connections: not a mistake of the page
	hosts map[string]bool
}

func browse(t *testing.T, url string) *tab {
	t.Helper()
	path := chromium()
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no Chromium")
		}
		t.Skip("the console is tested in Chromium, and there is none")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1440, 1000),
		chromedp.Flag("lang", "en-US"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	p := newTab(t, allocated, url)
	t.Cleanup(func() {
		if err := chromedp.Cancel(p.ctx); err != nil {
			t.Error(err)
		}
		release()
	})
	return p
}

func (p *tab) another(url string) *tab {
	p.t.Helper()
	return newTab(p.t, p.ctx, url)
}

// At the end of the test, newTab reports what the browser complained about.
func newTab(t *testing.T, within context.Context, url string) *tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(within) // ended with its browser, by Cancel, which waits
	p := &tab{t: t, ctx: ctx, hosts: map[string]bool{}}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, wrong := range p.wrong {
			t.Error("the browser says: " + wrong)
		}
		for host := range p.hosts {
			if !strings.HasPrefix(url, host) {
				t.Errorf("a request to %s", host)
			}
		}
	})
	err := errors.Join(chromedp.Listen(ctx, p.listen), tell(ctx, network.Enable, network.EnableParams{}),
		tell(ctx, log.Enable, cdp.Empty{}),
		tell(ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"}),
		chromedp.Do(ctx, chromedp.Navigate(url)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tell[P, R any](ctx context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.wrong = append(p.wrong, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		// The browser logs the status of calls that the server refuses.
		expected := strings.Contains(e.Entry.Text, "the server responded with a status of 4") ||
			(p.cut && strings.Contains(e.Entry.Text, "net::ERR_"))
		if e.Entry.Level == log.EntryLevelError && !expected {
			p.wrong = append(p.wrong, e.Entry.Text+" "+e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if at := strings.SplitN(e.Request.URL, "/", 4); len(at) >= 3 && strings.HasPrefix(at[0], "http") {
			p.hosts[at[0]+"//"+at[2]] = true
		}
	}
}

// What an expression of JavaScript, or its promise, evaluates to, as text.
func (p *tab) value(expression string) (string, error) {
	return chromedp.Run(p.ctx,
		chromedp.Evaluate[string]("Promise.resolve("+expression+").then(String)", chromedp.EvalAwaitPromise))
}

// evaluate is like value, for expressions that cannot fail.
func (p *tab) evaluate(expression string) string {
	p.t.Helper()
	out, err := p.value(expression)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// until waits until the expression is true, which may be on the next page, or after a whole run.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, err := p.value(expression)
		if err == nil && got == "true" {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the page does not come to this: %s (%v)\n%s", what, err, p.evaluate("document.body.innerText"))
		}
	}
}

func quote(text string) string {
	out, _ := json.Marshal(text) // a string can always be marshalled
	return string(out)
}

func (p *tab) open(hash, title string) {
	p.t.Helper()
	p.evaluate("location.hash = " + quote(hash))
	p.until("its title is "+title,
		fmt.Sprintf(
			"document.querySelector('h1')?.textContent.startsWith(%s) && !document.querySelector('[aria-busy]')",
			quote(title)))
}

func (p *tab) sees(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until("it has the text "+text, "document.body.innerText.includes("+quote(text)+")")
	}
}

// hasSeen waits until the page of a run has received this number of events, each once.
func (p *tab) hasSeen(events int64) {
	p.t.Helper()
	p.until(fmt.Sprintf("it has seen %d events", events),
		fmt.Sprintf("document.querySelector('[data-seen]')?.dataset.seen === '%d'", events))
}

// JavaScript for a button, a link, or the like with a name, that can be used.
func control(name string) string {
	return fmt.Sprintf(
		"[...(document.querySelector('dialog[open]') ?? "+
			"document).querySelectorAll('button,a,summary,label.check')].find(e => e.textContent.trim() === %s && "+
			"!e.disabled && e.ariaDisabled !== 'true')",
		quote(name),
	)
}

func (p *tab) press(name string) {
	p.t.Helper()
	p.until("there is a control "+name, control(name)+" !== undefined")
	p.evaluate(control(name) + ".click()")
}

// field returns JavaScript for the only field whose label begins with a text.
func field(label string) string {
	return fmt.Sprintf(
		`([...document.querySelectorAll('label.field')]
			.find(e => e.querySelector('span').textContent.startsWith(%[1]s))?.querySelector('input,select,textarea')
		?? document.querySelector('input[type=number][aria-labelledby="'
			+ [...document.querySelectorAll('strong')].find(e => e.textContent === %[1]s)?.id + '"]'))`,
		quote(label),
	)
}

func (p *tab) fill(label, value string) {
	p.t.Helper()
	p.until("there is a field "+label, field(label)+" != null")
	p.evaluate(fmt.Sprintf(`(field => {
		Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set.call(field, %s)
		field.dispatchEvent(new Event('input', {bubbles: true}))
		field.dispatchEvent(new Event('change', {bubbles: true}))
	})(%s)`, quote(value), field(label)))
}

// shows waits until the field has the value.
func (p *tab) shows(label, value string) {
	p.t.Helper()
	p.until(label+" is "+value, field(label)+"?.value === "+quote(value))
}

// accessible checks the page in light and in dark colours.
func (p *tab) accessible(axe []byte, page string) {
	p.t.Helper()
	for _, scheme := range []string{"dark", "light"} {
		if err := tell(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}); err != nil {
			p.t.Fatal(err)
		}
		p.check(axe, page+", "+scheme)
	}
}

func (p *tab) check(axe []byte, page string) {
	p.t.Helper()
	if axe == nil {
		return
	}
	if p.evaluate("typeof axe") == "undefined" {
		p.evaluate("(() => {" + string(axe) + "})()")
	}
	if found := p.evaluate(
		`axe.run({resultTypes: ['violations']}).then(r => r.violations.map(v =>
			v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join('; ')).join('\n'))`,
	); found != "" {
		p.t.Errorf("%s: %s", page, found)
	}
}
