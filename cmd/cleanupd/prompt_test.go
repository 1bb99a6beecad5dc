package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
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
