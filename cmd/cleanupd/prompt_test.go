package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// onTerminal types an answer to the program's question, and returns what the terminal shows.
func onTerminal(t testing.TB, answer string, args ...string) (code int, shown string) {
	t.Helper()
	return onTerminalAfter(t, func() {}, answer, args...)
}

// meanwhile is called between the question and the answer.
func onTerminalAfter(t testing.TB, meanwhile func(), answer string, args ...string) (code int, shown string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=dumb")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	screen := &logged{more: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(screen, terminal) // until the program ends
		close(ended)
	}()
	if answer != "" {
		screen.wait(t.Context(), `(\[y/N\]|to run nothing:) $`)
		meanwhile()
		if _, err := terminal.WriteString(answer + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatalf("%v: it still waits: %s", args, screen.String())
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(screen.String(), "\r\n", "\n")
}

// On a terminal, run shows the server, the database and the tasks, and asks, unless --yes is given.
func TestRunAsks(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL(), "--instance", "nightly")
	rows := func() int64 { return db.Int("SELECT count(*) FROM XtkAudit WHERE iAuditId > 0") }
	fill := func() {
		db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 5) i")
	}
	fill()
	target := regexp.MustCompile(
		`(?m)^Server +` + r.grpc + "\nDatabase +" + db.Name + ` on \S+, instance nightly\nTasks +(.*)\n\nDelete what`)
	for answer, want := range map[string]int64{"": 5, "n": 5, "yes please": 5} {
		code, shown := onTerminal(t, answer+" ", "run", "--task", "audit-trail", "--server", r.grpc)
		tasks := target.FindStringSubmatch(shown)
		if code != 1 || tasks == nil || !regexp.MustCompile(`^1 of \d+: audit-trail$`).MatchString(tasks[1]) ||
			!strings.Contains(shown, "nothing was run") || rows() != want {
			t.Errorf("%q: %d, %d rows: %s", answer, code, rows(), shown)
		}
	}
	code, shown := onTerminal(t, "no", "run", "--server", r.grpc)
	if tasks := target.FindStringSubmatch(shown); code != 1 || tasks == nil ||
		!regexp.MustCompile(`^all \d+$`).MatchString(tasks[1]) {
		t.Errorf("all tasks: %d %s", code, shown)
	}
	if code, shown = onTerminal(t, "y", "run", "--task", "audit-trail", "--server", r.grpc); code != 0 || rows() != 0 {
		t.Errorf("yes: %d %s", code, shown)
	}
	fill()
	code, shown = onTerminal(t, "", "run", "--yes", "--task", "audit-trail", "--server", r.grpc)
	if code != 0 || rows() != 0 || strings.Contains(shown, "[y/N]") {
		t.Errorf("--yes: %d %s", code, shown)
	}
	fill()
	code, shown = onTerminal(t, "", "run", "--dry-run", "--task", "audit-trail", "--server", r.grpc)
	id := regexp.MustCompile(`Dry run (\S+) started`).FindStringSubmatch(shown)
	if code != 0 || id == nil || strings.Contains(shown, "[y/N]") {
		t.Fatalf("a dry run: %d %s", code, shown)
	}
	code, shown = onTerminal(t, "n", "run", "--plan", id[1], "--server", r.grpc)
	if code != 1 || rows() != 5 || !strings.Contains(shown, "Plan      "+id[1]+" of ") ||
		!strings.Contains(shown, "5 rows would be deleted") {
		t.Errorf("a plan: %d %s", code, shown)
	}
	code, shown = onTerminal(t, "y", "run", "--preview", "--task", "audit-trail", "--server", r.grpc)
	if code != 0 || rows() != 0 || !strings.Contains(shown, "\nServer    "+r.grpc+"\nDatabase  "+db.Name+" on ") {
		t.Errorf("a preview: %d %s", code, shown)
	}
	fill()
	if code, out, errs := r.run(t, "run --task audit-trail"); code != 0 || rows() != 0 {
		t.Errorf("without a terminal: %d %s %s", code, out, errs)
	}
}

// The question names the context.
func TestRunNamesTheContext(t *testing.T) {
	newContexts(t)
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL())
	for _, command := range []string{"context add prod --server " + r.grpc, "context use prod"} {
		if code, _, errs := cleanupd(t, strings.Fields(command)...); code != 0 {
			t.Fatal(errs)
		}
	}
	if code, shown := onTerminal(t, "n", "run"); code != 1 ||
		!strings.Contains(shown, "Server    "+r.grpc+" (context prod)\n") {
		t.Errorf("%d %s", code, shown)
	}
}

// On a terminal, guards set asks before it loosens a guard. The reason is in the audit.
func TestLooseningAGuardAsks(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL())
	set := func(answer string, args ...string) (int, string) {
		t.Helper()
		return onTerminal(t, answer, append([]string{"guards", "set", "--server", r.grpc}, args...)...)
	}
	for _, c := range []struct{ change, shown string }{
		{"maxSharePercent=70", "maxSharePercent from 50 to 70"},
		{"maxGrowth=off", "maxGrowth from 10 to off"},
		{"minRows=200000", "minRows from 100,000 to 200,000"},
		{"maxIdle=90d", "maxIdle from 45 days to 90 days"},
		{"cutoff=off", "cutoff from on to off"},
	} {
		code, shown := set("n", c.change, "maxTables=10")
		if code != 1 || !strings.Contains(shown, "Guards    "+c.shown+"\n") ||
			!strings.Contains(shown, "nothing was changed") || strings.Contains(shown, "DEFAULT") {
			t.Errorf("%s: %d %s", c.change, code, shown)
		}
	}
	for _, stricter := range []string{"maxSharePercent=40", "minRows=0", "maxIdle=default", "maxTables=4000"} {
		if code, shown := set("", stricter); code != 0 || strings.Contains(shown, "[y/N]") {
			t.Errorf("%s: %d %s", stricter, code, shown)
		}
	}
	if code, shown := set("y", "maxSharePercent=default", "--reason", "a new customer"); code != 0 ||
		!strings.Contains(shown, "maxSharePercent from 40 to 50") {
		t.Errorf("%d %s", code, shown)
	}
	if code, shown := set("", "maxIdle=off", "--yes"); code != 0 || strings.Contains(shown, "[y/N]") {
		t.Errorf("%d %s", code, shown)
	}
	if got := db.Int("SELECT count(*) FROM cleanupd.audit WHERE details->>'reason' = 'a new customer'"); got != 1 {
		t.Errorf("the reason is in the audit %d times", got)
	}
	if code, _, errs := r.run(t, "guards set maxDropPercent=off"); code != 0 {
		t.Errorf("without a terminal: %d %s", code, errs)
	}
}

// A demo whose usual addresses are taken prints commands with its own, and how to direct other commands to it.
func TestDemoBesideAnotherServer(t *testing.T) {
	pgtest.Empty(t)
	text, grpc, http := demoBesideAnotherServer(t)
	for grpc == usualGRPC || http == usualHTTP { // another program had it at first, and has ended
		text, grpc, http = demoBesideAnotherServer(t)
	}
	_, commands, _ := strings.Cut(text, "in another terminal:\n\n")
	commands, rest, _ := strings.Cut(commands, "\n\n")
	for line := range strings.SplitSeq(commands, "\n") {
		if !strings.Contains(line, grpc) && !strings.Contains(line, http) && !strings.Contains(line, "psql") {
			t.Errorf("%q does not go to the demo", line)
		}
	}
	if !regexp.MustCompile(`(?m)^  psql -h \S+ -p \d+ -U neolane campaign$`).MatchString("  " + commands) {
		t.Errorf("psql does not go to the demo: %s", commands)
	}
	if strings.Contains(commands, ":9090") || strings.Contains(commands, ":8080") || // as ports
		!strings.Contains(rest, "\n  export CLEANUPD_SERVER="+grpc+"\n") ||
		!strings.Contains(rest, "\nAnother program has 127.0.0.1:8080: http://127.0.0.1:8080/ is not the demo.\n") {
		t.Error(text)
	}
}

const (
	usualGRPC = "127.0.0.1:9090"
	usualHTTP = "127.0.0.1:8080"
)

// demoBesideAnotherServer starts a demo while another program has the usual addresses, and returns what it prints and
// its addresses.
func demoBesideAnotherServer(t *testing.T) (text, grpc, http string) {
	t.Helper()
	for _, usual := range []string{usualGRPC, usualHTTP} {
		if l, err := net.Listen("tcp", usual); err == nil { // else another program has it
			defer func() { _ = l.Close() }()
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "demo", "--keep", "--rows", "1000")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out := &logged{more: make(chan struct{})}
	cmd.Stdout = out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	server := out.wait(t.Context(), `Serving gRPC on (127\.0\.0\.1:\d+) and REST on http://(127\.0\.0\.1:\d+)\.`)
	out.wait(t.Context(), "Enter or Ctrl-C ends the demo")
	_, _ = in.Write([]byte("\n"))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	return out.String(), server[1], server[2]
}
