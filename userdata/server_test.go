package userdata_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/processmanager"
)

// A fake ProcessManager of a Forms server. It changes the database as the requests demand.
type standIn struct {
	db      *pgtest.DB
	mu      sync.Mutex
	calls   []string
	refuses string // the invocation that it refuses with a fault
	ignores string // the invocation that it only claims to have purged
	forgets string // the invocation that is deleted as soon as it is terminated
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if user, password, _ := r.BasicAuth(); user != "administrator" || password != "secret" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var message struct {
		Body struct {
			Terminate *struct {
				ID string `xml:"invocationId"`
			} `xml:"http://adobe.com/idp/services terminateProcess"`
			Purge *struct {
				ID string `xml:"invocationId"`
			} `xml:"http://adobe.com/idp/services purgeProcessInstance"`
		} `xml:"http://schemas.xmlsoap.org/soap/envelope/ Body"`
	}
	if err := xml.Unmarshal(body, &message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	operation, id := "", ""
	switch {
	case message.Body.Terminate != nil:
		operation, id = "terminateProcess", message.Body.Terminate.ID
		s.db.Do("UPDATE tb_process_instance SET status = 4 WHERE long_lived_invocation_id = $1", id)
		if id == s.forgets {
			s.db.Do("DELETE FROM tb_process_instance WHERE long_lived_invocation_id = $1", id)
		}
	case message.Body.Purge != nil:
		operation, id = "purgeProcessInstance", message.Body.Purge.ID
		if id != s.refuses && id != s.ignores {
			s.db.Do("DELETE FROM tb_process_instance WHERE long_lived_invocation_id = $1", id)
		}
	}
	s.calls = append(s.calls, operation+" "+id)
	w.Header().Set("Content-Type", "text/xml")
	if id == s.refuses {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(
			w,
			`<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body><soap:Fault>`+
				`<faultcode>soap:Server</faultcode><faultstring>no such process</faultstring>`+
				`</soap:Fault></soap:Body></soap:Envelope>`,
		)
		return
	}
	_, _ = fmt.Fprintf(
		w,
		`<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body>`+
			`<%[1]sResponse xmlns="http://adobe.com/idp/services"/></soap:Body></soap:Envelope>`,
		operation,
	)
}

// The Forms server is asked to terminate and to purge; a refusal is reported, and the rest continues.
func TestFormsServer(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do(
		"INSERT INTO tb_process_instance VALUES (1, 'running', 1), (2, 'complete', 2), (3, 'refused', 2), (4, " +
			"'ignored', 4), (5, 'other', 2), (6, 'forgotten', 1)",
	)
	server := &standIn{db: f.record, refuses: "refused", ignores: "ignored", forgets: "forgotten"}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	f.config.Server = processmanager.New(processmanager.Config{URL: web.URL, User: "administrator", Password: "secret"})
	f.Manager = userdata.New(f.config)
	f.work()
	events, receipt := f.erase(userdata.Request{Instances: []int64{1, 2, 3, 4, 6, 9}})
	if want := []string{
		"terminateProcess running", "purgeProcessInstance running", "purgeProcessInstance complete",
		"purgeProcessInstance refused", "purgeProcessInstance ignored", "terminateProcess forgotten",
	}; !slices.Equal(server.calls, want) {
		t.Errorf("the server was asked for %q", server.calls)
	}
	if receipt.Succeeded || len(receipt.Problems) != 2 || !strings.Contains(receipt.Problems[0], "no such process") ||
		!strings.Contains(receipt.Problems[1], "still exists") ||
		!f.logged(events, "process instance 9 does not exist") {
		t.Errorf("%+v", receipt)
	}
	if left := f.db.Strings("SELECT long_lived_invocation_id FROM tb_process_instance ORDER BY id"); !slices.Equal(
		left, []string{"refused", "ignored", "other"},
	) {
		t.Errorf("left %q", left)
	}
	// A server that refuses our credentials, and one that does not exist.
	for _, c := range []processmanager.Config{
		{URL: web.URL, User: "administrator", Password: "wrong"},
		{URL: "http://127.0.0.1:1"},
	} {
		f.config.Server = processmanager.New(c)
		other := &fixture{Manager: userdata.New(f.config), t: t, db: f.db, record: f.record, config: f.config}
		stop := other.work()
		if _, receipt := other.erase(userdata.Request{Instances: []int64{5}}); receipt.Succeeded || len(
			receipt.Problems,
		) != 1 ||
			!strings.Contains(receipt.Problems[0], "purgeProcessInstance") {
			t.Errorf("%+v", receipt)
		}
		stop()
	}
}

// A process instance without an invocation id is retained, since the server might take an empty id for another one.
func TestInstanceWithoutAnInvocation(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do("INSERT INTO tb_process_instance VALUES (1, NULL, 2), (2, '', 1), (3, '', 2)")
	server := &standIn{db: f.record}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	f.config.Server = processmanager.New(processmanager.Config{URL: web.URL, User: "administrator", Password: "secret"})
	f.Manager = userdata.New(f.config)
	f.work()
	request := userdata.Request{Instances: []int64{1, 2}}
	preview := f.preview(request)
	_, receipt := f.erase(request)
	if receipt.Succeeded || preview.Succeeded || len(receipt.Problems) != 2 ||
		!slices.Equal(receipt.Problems, preview.Problems) ||
		f.db.Int("SELECT count(*) FROM tb_process_instance") != 3 ||
		len(server.calls) > 0 {
		t.Errorf("preview: %+v; erasure: %+v; calls %q", preview, receipt, server.calls)
	}
}

// A process instance that the server purged before a crash is recorded afterwards.
func TestPurgedBeforeACrash(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.config.Server = processmanager.New(processmanager.Config{URL: "http://127.0.0.1:1"})
	f.Manager = userdata.New(f.config)
	id, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	f.record.Do("UPDATE cleanupd.erasure_item SET state = 'PURGING'")
	f.work()
	events, receipt := f.watch(id)
	if !receipt.Succeeded || events[0].Instance == nil {
		t.Errorf("%+v, %+v", receipt, events)
	}
}

// A server's response is reported as one line of text that the database can store, and the erasure ends.
func TestAnswerThatIsNoText(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do("INSERT INTO tb_process_instance VALUES (1, 'one', 2)")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "a\x00b\r\nc\xff"+strings.Repeat("long ", 10_000), http.StatusInternalServerError)
	}))
	t.Cleanup(web.Close)
	f.config.Server = processmanager.New(processmanager.Config{URL: web.URL})
	f.Manager = userdata.New(f.config)
	f.work()
	_, receipt := f.erase(userdata.Request{Instances: []int64{1}})
	if receipt.Succeeded || len(receipt.Problems) != 1 || !strings.Contains(receipt.Problems[0], "a b  c\uFFFDlong") ||
		utf8.RuneCountInString(receipt.Problems[0]) != 1000 {
		t.Errorf("%+v", receipt)
	}
}

// A process instance that no longer exists after a purge counts as erased, even if the Forms server's response is lost.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do("INSERT INTO tb_process_instance VALUES (1, 'one', 2)")
	f.config.Server = lossyServer{f.record}
	f.Manager = userdata.New(f.config)
	f.work()
	if events, receipt := f.erase(userdata.Request{Instances: []int64{1}}); !receipt.Succeeded ||
		events[0].Instance == nil {
		t.Errorf("%+v %+v", events, receipt)
	}
}

// A Forms server whose responses are lost.
type lossyServer struct{ db *pgtest.DB }

func (d lossyServer) TerminateProcess(context.Context, string) error { return nil }

func (d lossyServer) PurgeProcessInstance(ctx context.Context, invocation string) error {
	_, err := d.db.Exec(ctx, "DELETE FROM tb_process_instance WHERE long_lived_invocation_id = $1", invocation)
	return errors.Join(errors.New("the answer is lost"), err)
}

func soap(status, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

const (
	opened = `<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">`
	purged = `<purgeProcessInstanceResponse xmlns="http://adobe.com/idp/services"/>`
	good   = opened + `<soap:Body>` + purged + `</soap:Body></soap:Envelope>`
)

// Must not count as success, although some resemble it.
var badResponses = map[string]string{
	"attachments outside of a body": soap("200 OK", opened+`<attachments>x</attachments></soap:Envelope>`),
	"attachments beside a body": soap("200 OK",
		opened+`<soap:Body>`+purged+`</soap:Body><attachments/></soap:Envelope>`),
	"nothing":                    "",
	"no HTTP":                    "\x00\x01\x02\xff\xfe",
	"no body":                    soap("200 OK", ""),
	"no content":                 "HTTP/1.1 204 No Content\r\n\r\n",
	"cut off":                    "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + good,
	"an envelope without a body": soap("200 OK", opened+`</soap:Envelope>`),
	"an empty body":              soap("200 OK", opened+`<soap:Body/></soap:Envelope>`),
	"two bodies": soap("200 OK",
		opened+`<soap:Body>`+purged+`</soap:Body><soap:Body>`+purged+`</soap:Body></soap:Envelope>`),
	"two headers": soap("200 OK",
		opened+`<soap:Header/><soap:Header/><soap:Body>`+purged+`</soap:Body></soap:Envelope>`),
	"two envelopes":    soap("200 OK", good+good),
	"text before":      soap("200 OK", "x"+good),
	"text after":       soap("200 OK", good+"x"),
	"text between":     soap("200 OK", opened+`x<soap:Body>`+purged+`</soap:Body></soap:Envelope>`),
	"text in the body": soap("200 OK", opened+`<soap:Body>x`+purged+`</soap:Body></soap:Envelope>`),
	"both an answer and a fault": soap("200 OK",
		opened+`<soap:Body>`+purged+`<soap:Fault/></soap:Body></soap:Envelope>`),
	"an empty fault":              soap("200 OK", opened+`<soap:Body><soap:Fault/></soap:Body></soap:Envelope>`),
	"an answer to something else": soap("200 OK", strings.ReplaceAll(good, "purgeProcessInstance", "terminateProcess")),
	"an answer in no namespace":   soap("200 OK", strings.ReplaceAll(good, ` xmlns="http://adobe.com/idp/services"`, "")),
	"another SOAP": soap("200 OK",
		strings.ReplaceAll(good, "http://schemas.xmlsoap.org/soap/envelope/",
			"http://www.w3.org/2003/05/soap-envelope")),
	"no namespace at all":      soap("200 OK", "<Envelope><Body><purgeProcessInstanceResponse/></Body></Envelope>"),
	"an undeclared prefix":     soap("200 OK", "<soap:Envelope><soap:Body>"+purged+"</soap:Body></soap:Envelope>"),
	"a DTD":                    soap("200 OK", `<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>`+good),
	"a DTD within":             soap("200 OK", opened+`<!DOCTYPE x>`+strings.TrimPrefix(good, opened)),
	"an entity":                soap("200 OK", opened+`<soap:Body>&e;`+purged+`</soap:Body></soap:Envelope>`),
	"a processing instruction": soap("200 OK", `<?xml-stylesheet href="x"?>`+good),
	"a second declaration":     soap("200 OK", `<?xml version="1.0"?><?xml version="1.0"?>`+good),
	"another encoding":         soap("200 OK", `<?xml version="1.0" encoding="utf-7"?>`+good),
	"not UTF-8":                soap("200 OK", strings.Replace(good, "<soap:Body>", "<soap:Body><!-- \xff -->", 1)),
	"nested deeply": soap("200 OK",
		opened+`<soap:Body>`+strings.Repeat("<a>", 100_000)+strings.Repeat("</a>",
			100_000)+`</soap:Body></soap:Envelope>`),
	"not closed":        soap("200 OK", strings.TrimSuffix(good, "</soap:Envelope>")),
	"closed wrongly":    soap("200 OK", strings.Replace(good, "</soap:Body>", "</soap:Corpse>", 1)),
	"a web page":        soap("200 OK", "<!doctype html><p>Please log in"),
	"success, refused":  soap("403 Forbidden", good),
	"success, failed":   soap("500 Internal Server Error", good),
	"accepted":          soap("202 Accepted", good),
	"larger than 1 MiB": soap("200 OK", good+strings.Repeat(" ", 1<<20)),
	"a long fault": soap("500 Oh no",
		opened+`<soap:Body><soap:Fault><faultstring>`+strings.Repeat("\u202elong\x7f",
			50_000)+`</faultstring></soap:Fault></soap:Body></soap:Envelope>`),
	"an error that is no text": soap("500 \x1b[2J", "\x1b[31m\u202e\xff\r\n"),
	"many headers": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 200) +
		"\r\n" + good,
	"compressed without being asked": "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " +
		"4\r\n\r\n\x1f\x8b\x08\x00",
}

// answer gets the request's body. Returns the server's address.
func serveAnswers(t testing.TB, answer func(request string) string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					body, _ := io.ReadAll(r.Body)
					_, _ = io.WriteString(conn, answer(string(body)))
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

func wantBrief(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); text == "" || len(text) > 1<<10 || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("the error is %d bytes: %q", len(text), text)
	}
}

// Only the response of a successful operation counts as success. An erasure reports other responses, and the next one
// is carried out.
func TestNastyAnswers(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	var names []string
	for name := range badResponses {
		names = append(names, name)
	}
	url := serveAnswers(t, func(request string) string {
		i := slices.IndexFunc(names,
			func(name string) bool { return strings.Contains(request, "<invocationId>"+name+"</invocationId>") })
		if i < 0 {
			return soap("200 OK", good)
		}
		return badResponses[names[i]]
	})
	server := processmanager.New(processmanager.Config{URL: url})
	if err := server.PurgeProcessInstance(t.Context(), "other"); err != nil {
		t.Errorf("a good answer: %v", err)
	}
	request := userdata.Request{}
	for i, name := range names {
		if err := server.PurgeProcessInstance(t.Context(), name); err == nil {
			t.Errorf("%s: it is taken for success", name)
		} else {
			wantBrief(t, err)
		}
		f.db.Do("INSERT INTO tb_process_instance VALUES ($1, $2, 2)", i+1, name)
		request.Instances = append(request.Instances, int64(i+1))
	}
	f.config.Server = server
	f.Manager = userdata.New(f.config)
	f.work()
	if _, receipt := f.erase(request); receipt.Succeeded || len(receipt.Problems) != len(names) {
		t.Errorf("%d of %d are problems: %+v", len(receipt.Problems), len(names), receipt)
	}
	f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0)")
	if _, receipt := f.erase(userdata.Request{Tasks: []int64{1}}); !receipt.Succeeded {
		t.Errorf("the next one: %+v", receipt)
	}
}

// A response without an end is read only to a limit.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for chunk := bytes.Repeat([]byte(" "), 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(web.Close)
	if err := processmanager.New(processmanager.Config{URL: web.URL}).
		PurgeProcessInstance(t.Context(), "one"); err == nil ||
		!strings.Contains(err.Error(), "1 MiB") {
		t.Error(err)
	}
}

// Redirects are not followed: the password is for the configured server.
func TestRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		t.Errorf("it was followed, with %q %q", user, password)
	}))
	t.Cleanup(other.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		web := httptest.NewServer(http.RedirectHandler(other.URL, code))
		err := processmanager.New(processmanager.Config{URL: web.URL, User: "administrator", Password: "secret"}).
			TerminateProcess(t.Context(), "one")
		web.Close()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(code)) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// An id reaches the server unchanged, or not at all.
func TestInvocationIDs(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	server := processmanager.New(processmanager.Config{URL: serveAnswers(t, func(request string) string {
		asked.Store(request)
		return soap("200 OK", good)
	})})
	for id, want := range map[string]string{
		"a&b<c>": "<invocationId>a&amp;b&lt;c&gt;</invocationId>",
		"é":      "<invocationId>é</invocationId>",
		"a\x01":  "",
		"a\xff":  "",
	} {
		asked.Store("")
		err := server.PurgeProcessInstance(t.Context(), id)
		if sent := asked.Load().(string); (err == nil) != (want != "") || !strings.Contains(sent, want) ||
			(want == "" && sent != "") {
			t.Errorf("%q: %v; sent: %s", id, err, sent)
		}
	}
}

// Random responses count as success only if they report it, and errors can be shown to people.
func FuzzAnswer(f *testing.F) {
	for _, answer := range badResponses {
		if len(answer) < 10_000 {
			f.Add([]byte(answer))
		}
	}
	f.Add([]byte(soap("200 OK", good)))
	f.Add([]byte(soap("200 OK", `<?xml version="1.0" encoding="UTF-8"?>`+"\n<!-- c -->"+good+"\n")))
	var current atomic.Value
	server := processmanager.New(
		processmanager.Config{URL: serveAnswers(f, func(string) string { return current.Load().(string) })})
	f.Fuzz(func(t *testing.T, raw []byte) {
		answer := string(raw)
		current.Store(answer)
		err := server.PurgeProcessInstance(t.Context(), "one")
		if err != nil {
			wantBrief(t, err)
			return
		}
		for _, part := range []string{
			" 200", "Envelope", "http://schemas.xmlsoap.org/soap/envelope/", "Body", "purgeProcessInstanceResponse",
			"http://adobe.com/idp/services",
		} {
			if !strings.Contains(answer, part) {
				t.Errorf("%q is taken for success", answer)
			}
		}
	})
}
