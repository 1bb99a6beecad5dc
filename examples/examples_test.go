// Package examples_test runs the examples, by the commands of their README, against real servers.
package examples_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type example struct {
	name     string // its heading in the README
	needs    string // a command that fails if something that it needs is missing
	patience string // two seconds, for --patience; empty: it does not resume
	folder   string // where the README's commands start
	prepare  string // the commands before the last one
	enter    string // the command that enters the example's folder
	last     string // the last one, which runs the example
}

var examples = []example{
	{name: "Go", needs: "go version", patience: "2s"},
	{
		name: "Python",
		needs: "/usr/bin/python3 -c 'import grpc, google.protobuf' && command -v protoc && command -v " +
			"grpc_python_plugin && ls /usr/include/google/protobuf/timestamp.proto",
		patience: "2",
	},
	{name: "Node", needs: `command -v npm && node -e 'require("node:util").parseArgs'`, patience: "2"},
	{
		name: "TypeScript",
		needs: `command -v protoc && ls /usr/include/google/protobuf/timestamp.proto && command -v npm && ` +
			`node -e 'require("node:util").parseArgs'`,
		patience: "2",
	},
	{name: "Shell", needs: "command -v curl && command -v jq"},
}

// missing skips the test: only CI certainly has everything.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Carries out all of the example's commands in the README but the last one.
func (x *example) ready(t *testing.T, checkout string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", x.needs).CombinedOutput(); err != nil {
		missing(t, "%s: %v\n%s", x.needs, err, out)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)\n\*\*` + x.name + "\\*\\*.*?\n```\n(.*?)\n```\n").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no commands of it")
	}
	lines := strings.Split(string(block[1]), "\n")
	x.last, x.folder = lines[len(lines)-1], checkout
	if strings.HasPrefix(lines[0], "cd ") {
		x.enter = lines[0] + " && "
	}
	x.prepare = strings.Join(lines[:len(lines)-1], "\n")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", x.prepare)
	cmd.Dir = x.folder
	if out, err := cmd.CombinedOutput(); err != nil && strings.Contains(x.prepare, "npm ci") {
		missing(t, "%s: %v\n%s", x.prepare, err, out)
	} else if err != nil {
		t.Fatalf("%s: %v\n%s", x.prepare, err, out)
	}
}

func (x *example) run(t *testing.T, s *server, task string, env ...string) *client {
	t.Helper()
	return x.start(t, s, fmt.Sprintf("--task %s --patience %s", task, x.patience), fmt.Sprintf(`{"tasks": [%q]}`, task),
		env...)
}

// start runs the last command, with flags or a request instead of the README's.
func (x *example) start(t *testing.T, s *server, flags, request string, env ...string) *client {
	t.Helper()
	env = append([]string{"CLEANUPD_PATIENCE=2"}, env...)
	if s.ca != "" {
		flags += " --tls-ca " + s.ca
		env = append(env, "CLEANUPD_TLS_CA="+s.ca)
	}
	line := strings.NewReplacer("127.0.0.1:9090", s.grpc, "http://127.0.0.1:8080", s.http, "--dry-run", flags,
		`{"dryRun": true}`, request).
		Replace(x.last)
	return start(t, x.folder, x.enter+line, env...)
}

// As --patience, but a minute.
func (x *example) longPatience() string { return strings.Replace(x.patience, "2", "60", 1) }

func TestExamples(t *testing.T) {
	program, checkout := build(t), t.TempDir()
	for _, folder := range []string{"examples", "proto"} {
		if err := os.CopyFS(filepath.Join(checkout, folder), os.DirFS(filepath.Join("..", folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range examples {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			folder := checkout
			if x.name == "Go" {
				folder = ".." // its module needs the rest of the repository
			}
			x.ready(t, folder)
			for name, test := range scenarios {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, &x, program)
				})
			}
		})
	}
}

// The clients that are generated from the proto files compare numbers of enums and types of messages, never texts.
func TestNoTextIsCompared(t *testing.T) {
	t.Parallel()
	const text = "(\"[^\"]+\"|'[^']+'|`[^`]+`)"
	compared := regexp.MustCompile(`([!=]=|\bcase|\b(not )?in)\s*` + text + "|" + text + `\s*([!=]=|(not )?in\b)`)
	value := regexp.MustCompile("[\"'`]" + `([A-Z]+_)*(STATE|LEVEL|REASON|KIND|ACTION)_[A-Z_]+` + "[\"'`]")
	for _, pattern := range []string{"go/*.go", "python/*.py", "node/*.js", "typescript/*.ts"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			source := strings.Replace(read(t, file), `if __name__ == "__main__":`, "", 1)
			for _, found := range append(compared.FindAllString(source, -1), value.FindAllString(source, -1)...) {
				t.Errorf("%s: %s", file, found)
			}
		}
	}
}

// 30 obsolete rows of the task audit-trail.
func audited(t *testing.T) *pgtest.DB {
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 30) i")
	return db
}

// killed ends a server in the middle of a run of pgtest.DB.Sessions.
func killed(t *testing.T, db *pgtest.DB, release func(), s *server, signal syscall.Signal) {
	t.Helper()
	db.Until("SELECT COALESCE(sum(rows_deleted), 0)::bigint FROM cleanupd.task")
	_ = s.cmd.Process.Signal(signal)
	release()
	_ = s.cmd.Wait()
	if db.Int("SELECT count(*) FROM XtkSessionInfo") == 0 {
		t.Fatal("the run was through before its server ended")
	}
}

// A server is killed in the middle of a run, and another one takes its place.
func replaced(t *testing.T, x *example, program string, signal syscall.Signal) {
	db := pgtest.Campaign(t)
	release := db.Sessions(2000)
	first := serve(t, program, db)
	c := x.run(t, first, "sessions")
	killed(t, db, release, first, signal)
	c.until("lost|stream ended|did not succeed")
	second := serve(t, program, db, "--grpc-listen", first.grpc,
		"--http-listen", strings.TrimPrefix(first.http, "http://"))
	if x.patience == "" {
		c.ends(false, "did not succeed", second.http+`/v1/runs/\S+ tells`)
		return
	}
	c.ends(true, "sessions: TASK_STATE_SUCCEEDED, 2000 rows deleted")
	if n := strings.Count(c.printed(), "began"); n != 1 {
		t.Errorf("%d runs began:\n%s", n, c.printed())
	}
}

// A Campaign database with about 10,000 rows, many of them obsolete. A trigger slows deletes from NmsBroadLogRcp.
func backlog(t *testing.T) *pgtest.DB {
	return pgtest.Prepared(t, "backlog", func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, campaigndb.Schema); err != nil {
			return err
		}
		if err := campaigndb.Fill(ctx, conn, 10_000, 1, time.Now()); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `
			CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END';
			CREATE TRIGGER slow BEFORE DELETE ON NmsBroadLogRcp FOR EACH ROW EXECUTE FUNCTION slow()`)
		return err
	})
}

var scenarios = map[string]func(t *testing.T, x *example, program string){
	"the README's dry run": func(t *testing.T, x *example, program string) {
		db := audited(t)
		x.start(t, serve(t, program, db), "--dry-run", `{"dryRun": true}`).
			ends(true, `Run \S+ began`, "audit-trail: TASK_STATE_SUCCEEDED, 30 rows")
		if n := db.Int("SELECT count(*) FROM XtkAudit"); n != 30 {
			t.Errorf("%d rows are left", n)
		}
	},
	"success": func(t *testing.T, x *example, program string) {
		db := audited(t)
		x.run(t, serve(t, program, db), "audit-trail").
			ends(true, `Run \S+ began`, "audit-trail: TASK_STATE_SUCCEEDED, 30 rows deleted", "ended: "+
				"RUN_STATE_SUCCEEDED")
		if n := db.Int("SELECT count(*) FROM XtkAudit"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	},
	"failure": func(t *testing.T, x *example, program string) {
		db := audited(t)
		db.Do(
			`CREATE FUNCTION no() RETURNS trigger
				LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION E''not\x1b[2Jthis one''; END';
			CREATE TRIGGER no BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION no()`,
		)
		c := x.run(t, serve(t, program, db), "audit-trail")
		c.ends(false, "audit-trail: TASK_STATE_FAILED, 0 rows deleted", "ended: RUN_STATE_FAILED",
			"not.{2,8}2Jthis one")
		if strings.Contains(c.printed(), "\x1b") {
			t.Errorf("a row commands the terminal: %q", c.printed())
		}
	},
	"cancelled, and watched": func(t *testing.T, x *example, program string) {
		db := pgtest.Campaign(t)
		release := db.Sessions(2000)
		s := serve(t, program, db)
		c := x.run(t, s, "sessions")
		id := c.until(`Run (\S+) began`)
		x.run(t, s, "audit-trail").ends(false, id) // only one run is active
		var watching *client
		if x.patience != "" {
			watching = x.start(t, s, "--watch "+id, "")
		}
		if _, err := dial(t, s).CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: id}); err != nil {
			t.Fatal(err)
		}
		release()
		c.ends(false, "ended: RUN_STATE_CANCELLED")
		if watching != nil {
			watching.ends(false, "Run "+id+" began", "ended: RUN_STATE_CANCELLED")
		}
	},
	"a server that is killed, and replaced": func(t *testing.T, x *example, program string) {
		replaced(t, x, program, syscall.SIGKILL)
	},
	"a server that is stopped, and replaced": func(t *testing.T, x *example, program string) {
		replaced(t, x, program, syscall.SIGTERM)
	},
	"a server that is killed for good": func(t *testing.T, x *example, program string) {
		db := pgtest.Campaign(t)
		release := db.Sessions(2000)
		s := serve(t, program, db)
		c := x.run(t, s, "sessions")
		killed(t, db, release, s, syscall.SIGKILL)
		c.ends(false, `(?i)(run \S+ may go on|/v1/runs/\S+ tells)`)
	},
	"a server that is killed before the first event, and replaced": func(t *testing.T, x *example, program string) {
		db := audited(t)
		first := serve(t, program, db)
		tx := db.Hold("LOCK TABLE cleanupd.run")
		c := x.start(t, first, "--task audit-trail --patience "+x.longPatience(), `{"tasks": ["audit-trail"]}`,
			"CLEANUPD_PATIENCE=60")
		db.Until(
			`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%request_id%'`,
		)
		first.stop(syscall.SIGKILL)
		c.until("connection is lost|does not answer")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		serve(t, program, db, "--grpc-listen", first.grpc, "--http-listen", strings.TrimPrefix(first.http, "http://"))
		c.ends(true, "audit-trail: TASK_STATE_SUCCEEDED, 30 rows deleted")
		if n := db.Int("SELECT count(*) FROM cleanupd.run"); n != 1 {
			t.Errorf("%d runs were started", n)
		}
	},
	"a guard that is approved, on a server that is killed": func(t *testing.T, x *example, program string) {
		db := backlog(t)
		first := serve(t, program, db)
		guards := &cleanupv1.Guards{MinRows: proto.Int64(10)}
		if _, err := dial(t, first).SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{Guards: guards}); err != nil {
			t.Fatal(err)
		}
		refused := x.start(t, first, "", "{}")
		refused.ends(false, "ended: RUN_STATE_FAILED", "this is unusual")
		if x.patience == "" {
			return
		}
		refused.until("A guard refused it")
		preview := x.start(t, first, "--dry-run", "")
		preview.ends(true, `PREVIEW_ACTION_DELETE .*nmsbroadlogrcp\W+: [1-9]\d* rows`,
			`GUARD_KIND_SHARE refuses this for .*nmsbroadlogrcp\W+: the number is [1-9]`)
		c := x.start(t, first, "--patience "+x.longPatience()+" --approve "+preview.until(`Run (\S+) began`), "")
		c.until(`deliver\S+: [1-9]\d* rows so far`)
		first.stop(syscall.SIGKILL)
		c.until("connection is lost")
		serve(t, program, db, "--grpc-listen", first.grpc, "--http-listen", strings.TrimPrefix(first.http, "http://"))
		c.ends(true, "ended: RUN_STATE_SUCCEEDED")
		results := regexp.MustCompile(`(?m)^\S+: TASK_STATE_.*`)
		shown, done := results.FindAllString(preview.printed(), -1), results.FindAllString(c.printed(), -1)
		if !slices.Equal(shown, done) {
			t.Errorf("the preview has\n%s\nand the run\n%s", strings.Join(shown, "\n"), strings.Join(done, "\n"))
		}
	},
	"no server": func(t *testing.T, x *example, program string) {
		s := serve(t, program, pgtest.Campaign(t))
		s.stop(syscall.SIGKILL)
		x.run(t, s, "sessions").ends(false, "(?i)refused|connect")
	},
	"lost events": func(t *testing.T, x *example, program string) {
		db := audited(t)
		tx := db.Hold("LOCK TABLE XtkAudit")
		c := x.run(t, serve(t, program, db), "audit-trail")
		c.until("audit-trail: 0 rows so far")
		db.Do(`WITH lost AS (DELETE FROM cleanupd.event WHERE sequence > 2)
			UPDATE cleanupd.run SET last_sequence = 2, epoch = epoch + 1, lease_until = clock_timestamp()
				WHERE state = 'RUNNING'`)
		c.until("lost|no longer has the events after 2")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x.patience == "" {
			c.ends(false, "did not succeed")
			return
		}
		c.ends(true, "audit-trail: TASK_STATE_SUCCEEDED, 30 rows deleted")
	},
	"tokens": func(t *testing.T, x *example, program string) {
		db := audited(t)
		s := serveWithToken(t, program, db, "open sesame")
		x.run(t, s, "audit-trail").ends(false, "no credentials")
		x.run(t, s, "audit-trail", "CLEANUPD_TOKEN=wrong").ends(false, "not valid")
		x.run(t, s, "audit-trail", "CLEANUPD_TOKEN=open sesame").ends(true, "30 rows deleted")
		x.run(t, serve(t, program, db), "audit-trail", "CLEANUPD_TOKEN=open sesame").ends(false, "plain text")
	},
}
