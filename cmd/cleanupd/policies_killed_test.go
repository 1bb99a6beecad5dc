package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

func putPolicy(t *testing.T, r *replica, name, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.http+"/v1/policies/"+name,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s: %s", name, resp.Status, body)
	}
}

// A server is killed again and again while it carries out policies. Each row that it deleted or changed is counted,
// exactly once.
func TestKilledServerOfPolicies(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE login (id int PRIMARY KEY, customer int, at timestamptz, address text);
		INSERT INTO login SELECT i, i % 10, now() - i * interval '1 hour', '10.0.0.1' FROM generate_series(1, 1000) i;
		CREATE TABLE deleted (id int); CREATE TABLE changed (id int);
		CREATE FUNCTION deleted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.002);
			INSERT INTO deleted VALUES (OLD.id); RETURN OLD; END';
		CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.002);
			INSERT INTO changed VALUES (OLD.id); RETURN NEW; END';
		CREATE TRIGGER deleted BEFORE DELETE ON login FOR EACH ROW EXECUTE FUNCTION deleted();
		CREATE TRIGGER changed BEFORE UPDATE ON login FOR EACH ROW EXECUTE FUNCTION changed()`)
	args := []string{"--database-url", db.URL(), "--lease", "1s", "--grpc-listen"}
	r := startServer(t, append(args, "127.0.0.1:0")...)
	putPolicy(t, r, "a-newest", `{"table": "login", "enabled": true, "limit": 20,
		"keepNewest": {"per": ["customer"], "orderBy": "at", "count": 50}}`)
	putPolicy(t, r, "b-addresses", `{"table": "login", "enabled": true, "limit": 15,
		"olderThan": {"column": "at", "days": 2}, "assign": [{"column": "address"}]}`)
	// the newest 50 of each of ten customers are those of the last 500 hours; 47 hours are in the last two days
	const deleted, changed = 500, 453
	code, out, errs := r.run(t, "run --dry-run")
	id := regexp.MustCompile(`Run (\S+) `).FindStringSubmatch(out)
	if code != 0 || id == nil {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	code, out, errs = r.run(t, "run --plan", id[1], "--detach")
	id = regexp.MustCompile(`Run (\S+) started`).FindStringSubmatch(out)
	if code != 0 || id == nil {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	for kill := range suite.Size(suite.Model, 2, 6) {
		db.Until("SELECT ((SELECT count(*) FROM deleted) + (SELECT count(*) FROM changed) > $1)::int",
			suite.Size(suite.Model, 600, 150)*kill)
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r = startServer(t, append(args, r.grpc)...)
	}
	code, out, errs = r.run(t, "runs watch", id[1])
	for task, rows := range map[string]string{"a-newest": "500", "b-addresses": "0 +453"} {
		if !regexp.MustCompile(`\npolicy/` + task + ` +succeeded +` + rows + ` `).MatchString(out) {
			t.Errorf("%s: %d %s %s", task, code, out, errs)
		}
	}
	run := "'" + id[1] + "'"
	for query, want := range map[string]int64{
		"SELECT count(DISTINCT id) FROM deleted": deleted, "SELECT count(*) FROM deleted": deleted,
		"SELECT count(DISTINCT id) FROM changed": changed, "SELECT count(*) FROM changed": changed,
		"SELECT sum(rows_deleted)::bigint FROM cleanupd.task WHERE run_id = " + run: deleted,
		"SELECT sum(rows_updated)::bigint FROM cleanupd.task WHERE run_id = " + run: changed,
		"SELECT count(*) FROM login WHERE id <= 500":                                deleted,
		"SELECT count(*) FROM login WHERE address IS NULL":                          changed,
	} {
		if n := db.Int(query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	if gaps := db.Int("SELECT max(sequence) - count(*) FROM cleanupd.event WHERE run_id = $1", id[1]); gaps != 0 {
		t.Errorf("%d events are missing", gaps)
	}
}
