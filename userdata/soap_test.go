package userdata_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
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
