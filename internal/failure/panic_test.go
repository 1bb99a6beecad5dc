package failure_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/failure"
)

func stumble() error { panic("PLANTED") }

// The error of a panic reveals nothing; the log has its value and its place. Other errors are returned as they are, and
// not logged.
func TestCatch(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	err := fmt.Errorf("a step: %w", failure.Catch(stumble))
	if strings.Contains(err.Error(), "PLANTED") || !strings.HasPrefix(err.Error(), "a step: internal error (panic)") {
		t.Error(err)
	}
	failure.LogPanic(log, "a test", err)
	for _, part := range []string{"level=ERROR", `in="a test"`, "panic=PLANTED", "failure_test.stumble"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the log lacks %s: %s", part, out.String())
		}
	}
	out.Reset()
	for _, want := range []error{nil, errors.New("other")} {
		got := failure.Catch(func() error { return want })
		failure.LogPanic(log, "a test", got)
		if !errors.Is(got, want) || out.Len() > 0 {
			t.Errorf("%v became %v; logged: %s", want, got, out.String())
		}
	}
}
