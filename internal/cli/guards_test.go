package cli

import (
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A guard is accepted only if its number is typed.
func TestNumbersAreTyped(t *testing.T) {
	t.Parallel()
	trips := []*cleanupv1.TrippedGuard{
		{Guard: cleanupv1.GuardKind_GUARD_KIND_SHARE, Table: "a", Number: 20, Limit: 10},
		{Guard: cleanupv1.GuardKind_GUARD_KIND_GROWTH, Table: "b", Number: 30},
	}
	for typed, want := range map[string]bool{
		"20\n30\n":        true,
		"20\ny\n":         false,
		"y\n30\n":         false,
		"y\n20\n21\n30\n": true, // a wrong number asks again
		"2,0\n 30 \n":     true,
		"20\n\n30\n":      false,
		"":                false,
		"\n\n":            false,
	} {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetIn(iotest.OneByteReader(strings.NewReader(typed)))
		asked := &strings.Builder{}
		cmd.SetErr(asked)
		if got := acceptGuards(cmd, trips); got != want ||
			!strings.Contains(asked.String(), "share refuses this for a: the number is 20; the limit is 10") {
			t.Errorf("%q: %v, asked %q", typed, got, asked)
		}
	}
}
