package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

func (p *tab) key(keys string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.KeyEvent(keys)); err != nil {
		p.t.Fatal(err)
	}
}

// nameOf is JavaScript that returns the name of an element as a screen reader says it.
const nameOf = `(e => (e.getAttribute('aria-label') ??
	document.getElementById(e.getAttribute('aria-labelledby'))?.textContent ??
	e.labels?.[0]?.querySelector('span')?.textContent ?? e.labels?.[0]?.textContent ?? e.textContent).trim())`

// Goes from control to control until one with that selector and name has the focus.
func (p *tab) reach(selector, name string) {
	p.t.Helper()
	for range 200 {
		p.key(kb.Tab)
		if p.evaluate(
			fmt.Sprintf("document.activeElement.matches(%s) && %s(document.activeElement) === %s", quote(selector),
				nameOf, quote(name)),
		) == "true" {
			return
		}
	}
	p.t.Fatalf("the keyboard does not reach %s %q", selector, name)
}

func (p *tab) titleHasFocus() {
	p.t.Helper()
	p.until("the focus is on the title", "document.activeElement === document.querySelector('h1')")
}

// Each control of the page is reached, in the order of the page, and shows that it has the focus.
func (p *tab) round(page string) {
	p.t.Helper()
	p.evaluate(`(() => {
		document.activeElement.blur()
		window.stops = [...document.querySelectorAll('a[href],button,input,select,textarea,summary,[tabindex="0"]')]
			.filter(e => e.checkVisibility() && !e.matches(':disabled'))
		stops[0].focus()
	})()`)
	for at := "0"; ; {
		p.key(kb.Tab)
		found := strings.Split(
			p.evaluate(
				`(e => { const s = getComputedStyle(e);
					return [stops.indexOf(e), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2,
						e.outerHTML.slice(0, 200)].join('|') })(document.activeElement)`,
			),
			"|",
		)
		next, shown, element := found[0], found[1], found[2]
		if next == at { // within a field of a date
			continue
		}
		if next == "-1" || next == "0" { // past the last one
			if all := p.evaluate("stops.length - 1"); at != all {
				p.t.Errorf("%s: the keyboard comes to control %s of %s, and then to %s", page, at, all, element)
			}
			return
		}
		if shown != "true" {
			p.t.Errorf("%s: nobody sees that this has the focus: %s", page, element)
		}
		if want := p.evaluate(at + " + 1"); next != want {
			p.t.Errorf("%s: control %s follows %s: %s", page, next, at, element)
		}
		at = next
	}
}

// Everything can be done with only the keyboard.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := withConsole(t, access.Config{})
	s.db.Do(
		"INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified) SELECT i, 0, 0, now() - i * " +
			"interval '1 day' FROM generate_series(1, 100) i",
	)
	p := browse(t, s.url)
	p.sees("Overview")
	p.key(kb.Tab)
	if at := p.evaluate(
		"document.activeElement.matches('.skip') && document.activeElement.getBoundingClientRect().left >= 0",
	); at != "true" {
		t.Error("the first control is not the one that leads past the navigation, or it is not seen")
	}
	p.key(kb.Enter)
	p.titleHasFocus()
	visit := func(hash, title string) {
		t.Helper()
		p.reach("nav a[href='"+hash+"']", title)
		p.key(kb.Enter)
		p.until("it shows "+title,
			"document.querySelector('h1').textContent === "+quote(title)+" && !document.querySelector('[aria-busy]')")
		p.titleHasFocus()
	}
	for _, page := range pages {
		visit(page.hash, page.title)
		p.round(page.title)
	}

	visit("#/preview", "Preview")
	p.reach("input[type=checkbox]", "sessions")
	p.key(" ")
	p.until("a task is left out", "document.activeElement.checked === false")
	for _, leave := range []func(){func() { p.key(kb.Escape) }, func() { p.reach("button", "Back"); p.key(kb.Enter) }} {
		p.reach("button", "Run without a preview …")
		p.key(kb.Enter)
		p.sees("Delete without a preview?")
		for range 4 {
			if p.evaluate(
				"document.activeElement.closest('dialog') !== null || document.activeElement === document.body",
			) != "true" {
				t.Error("the focus leaves the dialog")
			}
			p.key(kb.Tab)
		}
		leave()
		p.until("the focus is back where it was",
			"!document.querySelector('dialog') && document.activeElement.textContent === 'Run without a preview …'")
	}
	p.reach("button", "Start the preview")
	p.key(kb.Enter)
	p.sees("What a run would delete", "71", "Run exactly this")
	p.titleHasFocus()
	p.round("a dry run")

	visit("#/retention", "Retention")
	p.reach("input[type=range]", "Delivery logs")
	p.key(kb.ArrowRight)
	p.sees("Unsaved changes: 1")
	p.reach("input[type=number]", "Visitor profiles")
	p.key("60")
	p.reach("button", "Show the effect")
	p.key(" ")
	p.sees("Effect of the changes", "−30")
	p.until("the focus stays", "document.activeElement.textContent === 'Show the effect'")
	p.round("changed delays")
	p.reach("button", "Save")
	p.key(kb.Enter)
	p.until("it is saved", "!document.querySelector('.sticky')")
	p.titleHasFocus()
	if days := s.db.Int(
		"SELECT iLongValue / 86400 FROM XtkOption WHERE sName = 'NmsCleanup_VisitorPurgeDelay'",
	); days != 60 {
		t.Errorf("%d days are stored", days)
	}

	visit("#/holds", "Holds")
	p.reach("select", "What")
	p.key("t") // Table
	p.reach("input", "Table name")
	p.key("nmsvisitor")
	p.reach("input", "Reason")
	p.key("an audit" + kb.Enter)
	p.sees("an audit")
	p.round("a hold")
	p.reach("button", "Release")
	p.key(kb.Enter)
	p.sees("The next run may delete this data.")
	p.reach("button.primary", "Release")
	p.key(" ")
	p.sees("No holds.")
	p.titleHasFocus()

	visit("#/audit", "Audit")
	p.reach("summary", "Details")
	p.key(kb.Enter)
	p.until("it shows details", "document.querySelector('details[open] pre').checkVisibility()")
	p.reach("nav select", "Language")
	p.key(kb.ArrowDown)
	p.sees("Wer Einstellungen geändert")
}
