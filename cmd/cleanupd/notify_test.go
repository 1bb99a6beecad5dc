package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/suite"
)

func secretFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("PLANTED-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The command sends through the same code as the server, to each target, and prints the outcomes.
func TestNotifyTest(t *testing.T) {
	t.Parallel()
	var signature, kind string
	works := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct{ Type string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		signature, kind = r.Header.Get("Cleanupd-Signature"), e.Type
	}))
	defer works.Close()
	fails := httptest.NewServer(http.NotFoundHandler())
	defer fails.Close()
	args := []string{"notify", "test", "--notify-secret-file", secretFile(t), "--notify", works.URL + "/PLANTED"}
	code, out, errs := cleanupd(t, args...)
	if code != 0 || !regexp.MustCompile(`^http://127\.0\.0\.1:\d+ \([0-9a-f]{6}\): sent\n$`).MatchString(out) ||
		errs != "" {
		t.Errorf("one that works: %d %s %s", code, out, errs)
	}
	if kind != "io.github.cleanupd.test" || !regexp.MustCompile(`^t=\d+,v1=[0-9a-f]{64}$`).MatchString(signature) {
		t.Errorf("received %s, signed %s", kind, signature)
	}
	code, out, errs = cleanupd(t,
		append(args, "--notify", fails.URL+"/PLANTED",
			"--notify", "smtp://u:PLANTED@127.0.0.1:1?to=ann@example.com")...)
	if code != 1 || !strings.Contains(out, "): sent\n") ||
		!strings.Contains(out, "): not sent: the receiver responded 404 Not Found\n") ||
		!strings.Contains(out, "mail to ann@example.com by 127.0.0.1:1: not sent: ") ||
		errs != "cleanupd: 2 of 3 notifications were not sent\n" {
		t.Errorf("two that fail: %d %s %s", code, out, errs)
	}
	if strings.Contains(out+errs, planted) {
		t.Errorf("a secret is printed: %s", out)
	}
}

// If a server is killed after a receiver got an event, but before the event is stored as sent, the next server sends it
// again with the same id. The logs of both contain no secrets.
func TestNotificationOfAKilledServer(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', '2000-01-01');
		CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this one''; END';
		CREATE TRIGGER no BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION no()`)
	var (
		mu     sync.Mutex
		first  *replica
		killed bool
		ids    = make(chan string, 10)
	)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if !killed { // before it gets the response
			killed = true
			_ = first.cmd.Process.Kill()
			_, _ = first.cmd.Process.Wait()
		}
		ids <- e.ID
	}))
	defer receiver.Close()
	args := []string{
		"--database-url", db.URL(), "--notify", strings.Replace(receiver.URL, "://", "://u:PLANTED@", 1) + "/PLANTED",
		"--notify-secret-file", secretFile(t), "--log-level", "debug",
	}
	wait := func() string {
		select {
		case id := <-ids:
			return id
		case <-time.After(time.Minute):
			t.Fatal("no event was received")
			return ""
		}
	}
	mu.Lock()
	first = startServer(t, args...)
	mu.Unlock()
	first.log.wait(t.Context(),
		`msg="notification settings" target="http://127\.0\.0\.1:\d+ \([0-9a-f]+\)" protection="signed, plain text"`)
	run := detach(t, first, "sessions")
	if id := wait(); id != run+"/run.failed" {
		t.Errorf("received %s", id)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.notification WHERE state = 'PENDING' AND attempts = 1"); n != 1 {
		t.Fatalf("%d notifications are pending", n)
	}
	db.Do("UPDATE cleanupd.notification SET next_time = now()") // as if the claim of the first server had ended
	second := startServer(t, args...)
	if id := wait(); id != run+"/run.failed" {
		t.Errorf("received again %s", id)
	}
	db.Until("SELECT count(*) FROM cleanupd.notification WHERE state = 'SENT' AND attempts = 2")
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.cmd.Wait(); err != nil {
		t.Error(err)
	}
	told := first.log.String() + second.log.String() +
		strings.Join(db.Strings("SELECT to_jsonb(n)::text FROM cleanupd.notification n"), "\n")
	if strings.Contains(told, planted) {
		t.Errorf("a secret is told: %s", told)
	}
}
