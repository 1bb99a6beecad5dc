package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/localpg"
)

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
		{"--rows 1", "--rows"},
		{"--repeats 0", "--repeats"},
		{"--rows 2000 --holds 3", "--holds"},
		{"--holds -1", "--holds"},
		{"--cell 7", "--cell"},
		{"--policies --full", "--policies"},
		{"--chart x.gif", "--chart"},
		{"--chart no/such/folder/x.svg", "--chart"},
		{"now", "unknown command"},
	} {
		if _, err := command(t, strings.Fields(c.arguments)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.arguments, err)
		}
	}
}

// Each method deletes all old rows of a small table while pgbench runs.
func TestSmallTable(t *testing.T) {
	if _, err := exec.LookPath("pgbench"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	chart := t.TempDir() + "/chart.svg"
	out, err := command(t, "--rows", "20000", "--repeats", "1", "--cell", "2", "--chart", chart)
	if errors.Is(err, localpg.ErrNoPostgres) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`\none DELETE +\d+ +1\.00 `).MatchString(out) || !strings.Contains(out, "\ncleanupd ") ||
		!regexp.MustCompile(`\ncleanupd, undo +\d+ +\d\.\d\d +[\d.]+ms `).MatchString(out) {
		t.Error(out)
	}
	if drawn, err := os.ReadFile(chart); err != nil || !bytes.Contains(drawn, []byte("<svg")) {
		t.Errorf("no chart: %v", err)
	}
	out, err = command(t, "--rows", "20000", "--repeats", "1", "--cell", "2", "--alone", "--holds", "2")
	if err != nil || !strings.Contains(out, "\ncleanupd, 2 holds of 1000 ") {
		t.Error(out, err)
	}
	out, err = command(t, "--rows", "20000", "--repeats", "1", "--policies", "--cell", "1,2", "--alone")
	if err != nil || strings.Count(out, "\ncleanupd ") != 2 || !strings.Contains(out, "\nDELETE by row_number() ") ||
		!strings.Contains(out, "\none DELETE, VACUUM ") {
		t.Error(out, err)
	}
	if _, err := command(t, "--shared-buffers", "nonsense"); err == nil ||
		!strings.Contains(err.Error(), `"shared_buffers": "nonsense"`) {
		t.Error(err)
	}
}
