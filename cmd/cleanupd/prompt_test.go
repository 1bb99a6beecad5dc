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

// The question names the context.
func TestRunNamesTheContext(t *testing.T) {
	newContexts(t)
	db := campaign(t)
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
