package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/flags"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// SIGTERM works even if the database has not answered yet.
func TestSIGTERMBeforeServing(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	cmd := exec.Command(os.Args[0], "serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
		"--database-url", "postgres://"+silent.Addr().String()+"/d")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || errs.Len() > 0 {
		t.Errorf("it ended with %v: %s", err, errs.String())
	}
}

// A client that is interrupted prints that the run continues, and how to watch it.
func TestInterruptedClient(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 3) i")
	tx := db.Hold("LOCK TABLE XtkAudit")
	r := startServer(t, "--database-url", db.URL())
	ctx, interrupt := context.WithCancel(t.Context())
	out, errs := &logged{more: make(chan struct{})}, &logged{more: make(chan struct{})}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"run", "--server", r.grpc, "--task", "audit-trail"}, out, errs) }()
	id := out.wait(ctx, `Run (\S+) started`)[1]
	interrupt()
	if code := <-ended; code != 130 ||
		errs.wait(
			t.Context(), "run "+id+" continues: watch it with cleanupd runs watch "+id+" --server "+r.grpc,
		) == nil {
		t.Errorf("%d", code)
	}
	if code, _, errs := r.run(t, "run"); code != 1 ||
		!strings.Contains(errs, "; watch it with cleanupd runs watch "+id+" --server "+r.grpc+"\n") {
		t.Errorf("a second run: %d %s", code, errs)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := r.run(t, "runs watch", id); code != 0 ||
		!strings.Contains(out, "succeeded") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// A client reports that the database lost events, and continues after the last one that remains. It ends if the run
// itself is lost.
func TestClientOfALogThatIsReplaced(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 3) i")
	r := startServer(t, "--database-url", db.URL(), "--lease", "1s")
	losing := func(sql string, release bool) (code int, out, errs string) {
		tx := db.Hold("LOCK TABLE XtkAudit")
		stdout, stderr := &logged{more: make(chan struct{})}, &logged{more: make(chan struct{})}
		ended := make(chan int, 1)
		go func() {
			ended <- run(t.Context(), []string{"run", "--server", r.grpc, "--task", "audit-trail"}, stdout, stderr)
		}()
		stdout.wait(t.Context(), `\] audit-trail `) // progress, five seconds after the task began
		db.Do(sql)
		if release {
			stdout.wait(t.Context(), "lost")
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		code = <-ended
		_ = tx.Rollback(t.Context())
		return code, stdout.String(), stderr.String()
	}
	code, out, errs := losing(`WITH lost AS (DELETE FROM cleanupd.event WHERE sequence > 2)
		UPDATE cleanupd.run SET last_sequence = 2, epoch = epoch + 1, lease_until = clock_timestamp()
			WHERE state = 'RUNNING'`, true)
	if code != 0 ||
		strings.Count(out,
			"the database lost the events after the first 2, as in a failover: continuing from there\n") != 1 ||
		!regexp.MustCompile(`\naudit-trail +succeeded +3 `).MatchString(out) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs = losing("DELETE FROM cleanupd.run WHERE state = 'RUNNING'", false)
	if code != 1 ||
		!regexp.MustCompile(`run \S+ no longer exists: it was deleted, or the database lost it`).MatchString(errs) {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// The demo removes its files when its terminal is closed, or when nothing reads its output any longer.
func TestDemoThatIsLeft(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	pgtest.Empty(t)
	// Where SIGHUP is ignored, for example by nohup, child processes would ignore it, too. They do not inherit a handler.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	for _, hangsUp := range []bool{true, false} {
		temp, err := os.MkdirTemp("", "cleanupd-left-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(temp) })
		if err := os.Chmod(temp, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "demo", "--rows", "20000")
		cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+temp)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "Making a Campaign "+
			"database"); {
		}
		if hangsUp {
			if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, out)
		} else if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if left, _ := os.ReadDir(temp); err == nil || len(left) > 0 {
			t.Errorf("hangs up: %t: it ended with %v, and left %v", hangsUp, err, left)
		}
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	pgtest.Empty(t) // skips where there is no PostgreSQL
	code, out, errs := cleanupd(t, "demo", "--rows", "3000")
	total := regexp.MustCompile(`\nTotal: ([1-9][\d,]*) rows deleted, `).FindStringSubmatch(out)
	rows := regexp.MustCompile(`(?m)^(\w+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)$`).
		FindAllStringSubmatch(out, -1)
	if code != 0 || total == nil || len(rows) < 50 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	number := func(text string) int {
		n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, r := range rows {
		if number(r[2])-number(r[3])-number(r[4])+number(r[5]) != number(r[6]) {
			t.Errorf("the figures of %s do not add up: %s", r[1], r[0])
		}
	}
	if last := rows[len(rows)-1]; last[1] != "total" || last[3] != total[1] {
		t.Errorf("the run deleted %s rows, the tables say %s", total[1], last[0])
	}
}

// With --keep the demo deletes nothing, suggests commands, and survives failed runs and clients, until Enter or an
// interrupt. If its usual addresses are taken, the commands have its own, and it says how to direct others to it.
func TestDemoKeepsServing(t *testing.T) {
	pgtest.Empty(t)
	for _, byEnter := range suite.Size(suite.Long, []bool{false}, []bool{true, false}) {
		d := demoBesideAnotherServer(t)
		for d.grpc == usualGRPC || d.http == usualHTTP { // another program had it at first, and has ended
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
			d = demoBesideAnotherServer(t)
		}
		d.namesItself(t)
		code, list, errs := cleanupd(t, "runs", "--server", d.grpc)
		if resp, err := http.Get("http://" + d.http + "/readyz"); err != nil || resp.StatusCode != 200 ||
			resp.Body.Close() != nil || code != 0 || strings.Count(list, "\n") != 1 {
			t.Fatalf("%v %v %d %s %s", resp, err, code, list, errs)
		}
		if err := d.cmd.Process.Signal(syscall.SIGPIPE); err != nil { // as of a client that hung up
			t.Fatal(err)
		}
		if code, out, errs := cleanupd(t, "run", "--max-duration", "1us", "--server", d.grpc); code != 1 ||
			!strings.Contains(out, "cancelled") {
			t.Errorf("a run that is cancelled: %d %s %s", code, out, errs)
		}
		if code, out, errs := cleanupd(t, "run", "--task", "tracking-logs", "--server", d.grpc); code != 0 ||
			!strings.Contains(out, " rows deleted") {
			t.Errorf("%d %s %s", code, out, errs)
		}
		if byEnter {
			_, _ = d.keys.Write([]byte("\n"))
		} else {
			_ = d.keys.Close() // the end of the input does not count as Enter
			time.Sleep(100 * time.Millisecond)
			if code, _, errs := cleanupd(t, "tasks", "--server", d.grpc); code != 0 {
				t.Errorf("it ended with its input: %s", errs)
			}
			if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

const (
	usualGRPC = "127.0.0.1:9090"
	usualHTTP = "127.0.0.1:8080"
)

type servingDemo struct {
	cmd        *exec.Cmd
	keys       io.WriteCloser
	text       string // what it prints before it waits
	grpc, http string
}

// demoBesideAnotherServer starts a demo while another program has the usual addresses.
func demoBesideAnotherServer(t *testing.T) servingDemo {
	t.Helper()
	for _, usual := range []string{usualGRPC, usualHTTP} {
		if l, err := net.Listen("tcp", usual); err == nil { // else another program has it
			defer func() { _ = l.Close() }()
		}
	}
	d := servingDemo{cmd: exec.CommandContext(t.Context(), os.Args[0], "demo", "--keep", "--rows", "1000")}
	d.cmd.Env = append(os.Environ(), asProgram+"=1")
	out := &logged{more: make(chan struct{})}
	d.cmd.Stdout = out
	var err error
	if d.keys, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	server := out.wait(t.Context(), `Serving gRPC on (127\.0\.0\.1:\d+) and REST on http://(127\.0\.0\.1:\d+)\.`)
	out.wait(t.Context(), "Enter or Ctrl-C ends the demo")
	d.text, d.grpc, d.http = out.String(), server[1], server[2]
	return d
}

// namesItself checks that each command that the demo suggests goes to the demo.
func (d servingDemo) namesItself(t *testing.T) {
	t.Helper()
	if !regexp.MustCompile(`run --server ` + d.grpc + `\n[^§]*curl -N -X POST http://` + d.http + `/v1/runs `).
		MatchString(d.text) {
		t.Errorf("it suggests no run: %s", d.text)
	}
	_, commands, _ := strings.Cut(d.text, "in another terminal:\n\n")
	commands, rest, _ := strings.Cut(commands, "\n\n")
	for line := range strings.SplitSeq(commands, "\n") {
		if !strings.Contains(line, d.grpc) && !strings.Contains(line, d.http) && !strings.Contains(line, "psql") {
			t.Errorf("%q does not go to the demo", line)
		}
	}
	if !regexp.MustCompile(`(?m)^  psql -h \S+ -p \d+ -U neolane campaign$`).MatchString("  " + commands) {
		t.Errorf("psql does not go to the demo: %s", commands)
	}
	if strings.Contains(commands, ":9090") || strings.Contains(commands, ":8080") || // as ports
		!strings.Contains(rest, "\n  export CLEANUPD_SERVER="+d.grpc+"\n") ||
		!strings.Contains(rest, "\nAnother program has 127.0.0.1:8080: http://127.0.0.1:8080/ is not the demo.\n") {
		t.Error(d.text)
	}
}

// A client reconnects by itself when the server that it watches is replaced.
func TestRunSurvivesADeploy(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	release := db.Sessions(2000)
	first := startServer(t, "--database-url", db.URL())
	var out bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{"run", "--server", first.grpc, "--task", "sessions"}, &out, &bytes.Buffer{})
	}()
	untilDeleting(db)
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	release()
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("the first server ended with %v", err)
	}
	if db.Int("SELECT count(*) FROM XtkSessionInfo") == 0 {
		t.Fatal("the run was through before its server was stopped")
	}
	startServer(t, "--database-url", db.URL(), "--grpc-listen", first.grpc)
	if code := <-ended; code != 0 || !regexp.MustCompile(`\nsessions +succeeded +2,000 `).MatchString(out.String()) ||
		strings.Count(out.String(), "started") != 1 {
		t.Errorf("%d %s", code, out.String())
	}
}

// If a server is killed between the request for a run and its first event, the client repeats the request. This starts
// no second run, whether or not the server has stored the first.
func TestRunWhoseServerIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	for table, reached := range map[string]string{
		"run": `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%request_id%'`,
		"event": "SELECT count(*) FROM cleanupd.run",
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			db := campaign(t)
			first := startServer(t, "--database-url", db.URL())
			tx := db.Hold("LOCK TABLE cleanupd." + table)
			out, errs := &logged{more: make(chan struct{})}, &logged{more: make(chan struct{})}
			ended := make(chan int, 1)
			go func() {
				ended <- run(t.Context(), []string{"run", "--server", first.grpc, "--task", "sessions"}, out, errs)
			}()
			db.Until(reached)
			_ = first.cmd.Process.Kill()
			_ = first.cmd.Wait()
			out.wait(t.Context(), "the server does not answer: repeating the request, which starts one run at most")
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			startServer(t, "--database-url", db.URL(), "--grpc-listen", first.grpc)
			if code := <-ended; code != 0 || strings.Count(out.String(), "started") != 1 {
				t.Errorf("%d %s %s", code, out.String(), errs.String())
			}
			if n := db.Int("SELECT count(*) FROM cleanupd.run"); n != 1 {
				t.Errorf("%d runs were started", n)
			}
		})
	}
}

// A wrong address fails at once.
func TestRunAtAWrongAddress(t *testing.T) {
	t.Parallel()
	began := time.Now()
	code, out, errs := cleanupd(t, "run", "--server", "127.0.0.1:1")
	if code != 1 || out != "" || !strings.Contains(errs, "cannot reach 127.0.0.1:1") ||
		time.Since(began) > 10*time.Second {
		t.Errorf("a wrong address, after %s: %d %s %s", time.Since(began), code, out, errs)
	}
}

// A client does not reconnect to a run that failed because its database was lost.
func TestWatchOfALostRun(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	r := startServer(t, "--database-url", db.URL())
	if code, out, errs := r.run(t, "run --task sessions"); code != 0 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	db.Do(
		`UPDATE cleanupd.event
			SET body = jsonb_set(body, '{Run}', body -> 'Run' ||
			'{"State": "FAILED", "Cause": "UNAVAILABLE", "Error": "given up"}') WHERE body ->> 'Kind' = 'run_finished';
		UPDATE cleanupd.run SET state = 'FAILED', cause = 'UNAVAILABLE', error = 'given up'`,
	)
	began := time.Now()
	code, out, errs := r.run(t, "runs watch", db.Strings("SELECT id::text FROM cleanupd.run")[0])
	if took := time.Since(began); code != 1 || !strings.Contains(out, "failed") || !strings.Contains(
		errs, "given up",
	) ||
		took > 30*time.Second {
		t.Errorf("after %s: %d %s %s", took, code, out, errs)
	}
}

// 2000 expired sessions, four per block so that there are several windows, and a trigger by which a window takes about
// a second.
func detach(t *testing.T, server *replica, tasks ...string) (id string) {
	t.Helper()
	args := []string{"run", "--server", server.grpc, "--detach"}
	for _, name := range tasks {
		args = append(args, "--task", name)
	}
	code, out, errs := cleanupd(t, args...)
	began := regexp.MustCompile(`Run (\S+) started`).FindStringSubmatch(out)
	if code != 0 || began == nil {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	return began[1]
}

func untilDeleting(db *pgtest.DB) {
	db.Until(
		"SELECT CASE WHEN to_regclass('cleanupd.task') IS NULL THEN 0 ELSE (SELECT COALESCE(sum(rows_deleted), 0) " +
			"FROM cleanupd.task) END::bigint",
	)
}

// A replica that executes a run is killed. Another one takes the run over within 20 seconds, with the default lease,
// and finishes it; the counts match the deleted rows.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	release := db.Sessions(2000)
	args := []string{"--database-url", db.URL(), "--lease", "2s"}
	replicas := []*replica{startServer(t, args...), startServer(t, args...)}
	id := detach(t, replicas[0], "sessions", "audit-trail")
	untilDeleting(db)
	working, other := 0, 1
	if !regexp.MustCompile(`/` + strconv.Itoa(replicas[0].cmd.Process.Pid) + `$`).
		MatchString(db.Strings("SELECT replica FROM cleanupd.run")[0]) {
		working, other = 1, 0
	}
	if err := replicas[working].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = replicas[working].cmd.Wait()
	release()
	if db.Int("SELECT count(*) FROM XtkSessionInfo") == 0 {
		t.Fatal("the run was through before its replica was killed")
	}
	db.Until("SELECT count(DISTINCT generation) - 1 FROM cleanupd.event") // the other replica has taken the run over
	code, out, errs := replicas[other].run(t, "runs watch", id)
	if code != 0 || !regexp.MustCompile(`\nsessions +succeeded +2,000 `).MatchString(out) ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if gaps := db.Int("SELECT max(sequence) - count(*) FROM cleanupd.event"); gaps != 0 {
		t.Errorf("%d events are missing", gaps)
	}
}

// A scheduled run whose time passed while all replicas were down starts once they have started, and only once: with a
// cron expression and with a single time.
func TestScheduleOfReplicas(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')")
	args := []string{"--schedule", "--database-url", db.URL(), "--lease", "1s"}
	const once, cron = `{"once": "2999-01-01T00:00:00Z", "enabled": true}`, `{"cron": "0 4 * * *", "timeZone": ` +
		`"Europe/Berlin", "enabled": true}`
	for i, schedule := range suite.Size(suite.Long, []string{cron}, []string{once, cron}) {
		r := startServer(t, args...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.http+"/v1/schedule",
			strings.NewReader(schedule))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v, %v", resp, err)
		}
		_ = resp.Body.Close()
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		if n := db.Int("SELECT count(*) FROM cleanupd.run"); n != int64(i) {
			t.Errorf("%d runs before the time came", n)
		}
		db.Do("INSERT INTO cleanupd.first_run VALUES (true, gen_random_uuid(), now()) ON CONFLICT DO NOTHING")
		db.Do("UPDATE cleanupd.schedule SET next_run_time = clock_timestamp() - interval '3 days'")
		var replicas []*replica
		for range suite.Size(suite.Long, 2, 3) {
			replicas = append(replicas, startServer(t, args...))
		}
		db.Until("SELECT (count(end_time) > $1)::int FROM cleanupd.run", i)
		if n := db.Int(
			"SELECT count(*) FROM cleanupd.run WHERE state = 'SUCCEEDED' AND requested_by = 'schedule'",
		); n != int64(i)+1 ||
			n != db.Int("SELECT count(*) FROM cleanupd.run") {
			t.Errorf("%s: %d runs", schedule, n)
		}
		for _, r := range replicas {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	}
	if n := db.Int("SELECT count(*) FROM XtkAudit"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// No statement waits forever, and none is sent to a read-only server, unless the URL changes the settings.
func TestSessions(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	settings := func(url string) string {
		t.Helper()
		config, err := flags.DatabaseURL("--database-url", url)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close(t.Context()) }()
		var all string
		if err := conn.QueryRow(t.Context(), "SELECT concat_ws(' ', current_setting('lock_timeout'), "+
			"current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'), "+
			"current_setting('jit'))").
			Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := settings(db.URL()); got != "10s 10min 10s off" {
		t.Error(got)
	}
	if got := settings(db.URL() + "&statement_timeout=5000&jit=on"); got != "10s 5s 10s on" {
		t.Error(got)
	}
	db.Superuser("ALTER DATABASE " + db.Name + " SET default_transaction_read_only = on")
	if got := settings(db.URL()); !strings.Contains(got, "read-only") {
		t.Error(got)
	}
}
