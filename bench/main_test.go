package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/localpg"
)

// command runs the program, and returns what it prints.
func command(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(arguments)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ arguments, says string }{
		{"--rows 1", "--rows"}, {"--repeats 0", "--repeats"}, {"--cell 7", "--cell"}, {"--chart x.gif", "--chart"}, {"--chart no/such/folder/x.svg", "--chart"}, {"now", "unknown command"},
	} {
		if _, err := command(t, strings.Fields(c.arguments)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.arguments, err)
		}
	}
}

// Each way deletes all old rows of a small table.
func TestSmallTable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	chart := t.TempDir() + "/chart.svg"
	out, err := command(t, "--rows", "2000", "--cell", "1", "--repeats", "1", "--alone", "--shared-buffers", "64MB", "--chart", chart)
	if errors.Is(err, localpg.ErrNoPostgres) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Methods {
		if !strings.Contains(out, m.Name) {
			t.Errorf("no figures of %q in %s", m.Name, out)
		}
	}
	if drawn, err := os.ReadFile(chart); err != nil || !bytes.Contains(drawn, []byte("<svg")) {
		t.Errorf("no chart: %v", err)
	}
}
