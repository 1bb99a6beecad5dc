package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// planted is part of every secret and of every row.
const planted = "PLANTED"

func tokenFile(t *testing.T, role, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(
		path, fmt.Appendf(nil, "%s the-%[1]s %x\n", role, sha256.Sum256([]byte(secret))), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	return path
}

// withPassword returns the URL with a password, which the server does not require.
func withPassword(t *testing.T, db *pgtest.DB, password string) string {
	t.Helper()
	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

// Logs, traces, events, errors, responses and records have neither secrets nor row contents. The traces lead from the
// call over the run and its task to the batch and its statements.
func TestNothingIsToldThatShouldNotBe(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	db, forms := campaign(t), formsOf(t, 40, "")
	db.Do(`INSERT INTO XtkReject (iRejectId, tsLog) SELECT i, '2000-01-01' FROM generate_series(1, 20) i;
		ALTER TABLE XtkAudit ADD sNote text UNIQUE; CREATE TABLE ref (note text REFERENCES XtkAudit (sNote));
		INSERT INTO XtkAudit (iAuditId, tsChanged, sNote) VALUES (1, '2000-01-01', 'PLANTED row'); INSERT INTO ref
			VALUES ('PLANTED row')`)
	forms.Do(`UPDATE edcprincipalentity SET canonicalname = 'PLANTED user' WHERE canonicalname = 'ann'`)
	r := startServer(t, "--database-url", withPassword(t, db, "PLANTED-password"), "--log-level", "debug",
		"--log-format", "json", "--token-file", tokenFile(t, "admin", "PLANTED-token"), "--forms-database-url",
		withPassword(t, forms, "PLANTED-forms"), "--forms-gds-in-database", "--forms-server-url",
		"http://who:PLANTED-word@127.0.0.1:1/soap", "--forms-server-user", "who", "--forms-server-password",
		"PLANTED-word")
	var told strings.Builder
	ask := func(method, path, token, body string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, r.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		_ = answer.Body.Close()
		told.WriteString(path + " " + answer.Status + "\n" + string(text))
		if id := answer.Header.Get("Request-Id"); answer.StatusCode < 400 && strings.HasPrefix(path, "/v1/") &&
			(id == "" || r.log.wait(t.Context(), `"request_id":"`+id)[0] == "") {
			t.Errorf("%s: the log does not know the request %q", path, id)
		}
	}
	ask("POST", "/v1/runs", "PLANTED.jwt.token", "{}")
	ask("POST", "/v1/runs", "PLANTED-token", `{"tasks":["import-rejects"]}`)
	ask("POST", "/v1/runs", "PLANTED-token", `{"tasks":["audit-trail","sessions"],"continueOnError":true}`)
	ask("POST", "/v1/userdata:find", "PLANTED-token", `{"userId":"PLANTED user"}`)
	ask("POST", "/v1/userdata:erase", "PLANTED-token", `{"userId":"PLANTED user","dryRun":true}`)
	ask("POST", "/v1/userdata:erase", "PLANTED-token", `{"userId":"PLANTED user"}`)
	ask("GET", "/v1/userdata/receipts", "PLANTED-token", "")
	ask("GET", "/metrics", "PLANTED-token", "")
	for _, row := range db.Strings("SELECT to_jsonb(x)::text FROM cleanupd.run x UNION ALL SELECT to_jsonb(x)::text " +
		"FROM cleanupd.task x UNION ALL SELECT to_jsonb(x)::text FROM cleanupd.event x UNION ALL SELECT " +
		"to_jsonb(x)::text FROM cleanupd.audit x") {
		told.WriteString(row + "\n")
	}
	for _, row := range db.Strings("SELECT to_jsonb(x)::text FROM cleanupd.erasure x UNION ALL SELECT " +
		"to_jsonb(x)::text FROM cleanupd.erasure_event x") {
		told.WriteString(row + "\n")
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
	log, spans := r.log.String(), r.out.String()
	told.WriteString(log + spans)
	for line := range strings.Lines(told.String()) {
		if strings.Contains(line, planted) {
			t.Errorf("a secret is told: %s", line)
		}
	}
	for _, part := range []string{"audit-trail", "ref", "FAILED", "AUDIT"} { // the logs do mention the run that failed
		if !strings.Contains(strings.ToUpper(told.String()), strings.ToUpper(part)) {
			t.Errorf("nothing is told of %s", part)
		}
	}
	traced(t, spans, "batch", "task import-rejects", "run", "cleanup.v1.CleanupService/RunCleanup")
}

// The traces of failed calls about user data have the code, but not the error, which may name a person.
func TestTracesOfUserData(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	forms := formsOf(t, 5, "")
	r := startServer(t, "--database-url", campaign(t).URL(), "--forms-database-url", forms.URL(),
		"--forms-gds-in-database", "--log-level", "debug")
	ask := func(want, path, body string) {
		t.Helper()
		answer, err := http.Post(r.http+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		// an unexpected error is not returned
		if err != nil || !strings.HasPrefix(answer.Status, want) ||
			strings.Contains(string(text), planted) != (want == "404") {
			t.Errorf("%s: %s %s %v", path, answer.Status, text, err)
		}
	}
	ask("404", "/v1/userdata:find", `{"userId": "ann", "variables": [{"application": "PLANTED", "workflow": "apply"}]}`)
	ask("404", "/v1/userdata:erase",
		`{"userId": "ann", "variables": [{"application": "PLANTED", "workflow": "apply"}]}`)
	forms.Do(`UPDATE edcprincipalentity SET canonicalname = 'PLANTED'; ALTER TABLE edcprincipalentity RENAME TO hidden;
		CREATE FUNCTION tell(text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''%'', $1; END';
			CREATE VIEW edcprincipalentity AS SELECT * FROM hidden WHERE tell(canonicalname)`)
	ask("500", "/v1/userdata:find", `{"userId": "PLANTED"}`)
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(r.log.String() + r.out.String()) {
		if strings.Contains(line, planted) {
			t.Errorf("it is told: %s", line)
		}
	}
	for _, part := range []string{
		"UserDataService/EraseUserData",
		`"NOT_FOUND"`,
		`"INTERNAL"`,
		"FROM edcprincipalentity",
		`"Code":"Error"`,
	} { // the traces do have the calls that failed
		if !strings.Contains(r.out.String(), part) {
			t.Errorf("the traces lack %s", part)
		}
	}
}

// traced checks that there is a chain of spans, each below the next.
func traced(t *testing.T, spans string, names ...string) {
	t.Helper()
	type span struct {
		Name        string
		SpanContext struct{ TraceID, SpanID string }
		Parent      struct{ SpanID string }
	}
	byID := map[string]span{}
	for line := range strings.Lines(spans) {
		var s span
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		byID[s.SpanContext.SpanID] = s
	}
	for _, s := range byID {
		trace := s.SpanContext.TraceID
		for _, name := range names {
			if s = byID[s.Parent.SpanID]; s.Name != name || s.SpanContext.TraceID != trace {
				break
			}
			if name == names[len(names)-1] {
				return
			}
		}
	}
	t.Errorf("no span is below %v", names)
}
