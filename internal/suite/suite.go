// Package suite keeps heavy tests out of go test ./..., and runs them where they are requested: CLEANUPD_SUITES
// lists suites by name, separated by commas. The make targets of the same names run one suite each, make race all but
// that in the browser.
package suite

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Suite is a group of tests that are heavy for the same reason.
type Suite string

const (
	Model   Suite = "model"   // random databases, compared with a model in plain Go
	Faults  Suite = "faults"  // runs on random databases under attack
	Flood   Suite = "flood"   // thousands of connections and calls
	Browser Suite = "browser" // the console, in Chromium
	Long    Suite = "long"    // large tables, many servers, waiting for timeouts of other programs, further cases
)

func (s Suite) Requested() bool {
	return slices.Contains(strings.Split(os.Getenv("CLEANUPD_SUITES"), ","), string(s))
}

// Only skips a test unless its suite is requested.
func Only(t testing.TB, s Suite) {
	t.Helper()
	if !s.Requested() {
		t.Skipf("part of the suite %[1]s: make %[1]s", s)
	}
}

// Except skips a subtest unless its suite is requested or the subtest has one of the names.
func Except(t testing.TB, s Suite, names ...string) {
	t.Helper()
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	if !slices.ContainsFunc(names, func(n string) bool { return strings.ReplaceAll(n, " ", "_") == name }) {
		Only(t, s)
	}
}

// Size returns full if the suite is requested, otherwise small.
func Size[N any](s Suite, small, full N) N {
	if s.Requested() {
		return full
	}
	return small
}
