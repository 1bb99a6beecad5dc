package failure_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/failure"
)

func TestKindsSurviveWrapping(t *testing.T) {
	t.Parallel()
	gone, field := failure.New(failure.NotFound, "no such run"), failure.Field("page_token", "is none")
	for _, c := range []struct {
		err  error
		kind failure.Kind
	}{
		{gone, failure.NotFound},
		{fmt.Errorf("%w: 4711", gone), failure.NotFound},
		{fmt.Errorf("%q %w", "x", field), failure.Invalid},
		{failure.Violations{{Field: "a", Problem: "b"}}.Err(), failure.Invalid},
		{errors.Join(errors.New("other"), gone), failure.NotFound},
	} {
		var kinded failure.Kinded
		if !errors.As(c.err, &kinded) || kinded.Kind() != c.kind {
			t.Errorf("%v is of another kind than %d", c.err, c.kind)
		}
	}
	if errors.Is(gone, failure.New(failure.NotFound, "no such run")) {
		t.Error("two errors of one text are the same")
	}
}

func TestViolationsAreBrief(t *testing.T) {
	t.Parallel()
	var wrong failure.Violations
	if err := wrong.Err(); err != nil {
		t.Errorf("no violations are the error %v", err)
	}
	for i := range 10 {
		wrong.Addf("f", "number %d", i)
	}
	if got := len(wrong.Brief()); got != 10 {
		t.Errorf("ten violations are %d in brief", got)
	}
	wrong.Add("g", "is wrong")
	wrong.Add("h", "is wrong")
	if got := wrong.Brief().Error(); !strings.HasSuffix(got, "; f: number 9; g: and 2 more mistakes from here on") {
		t.Errorf("twelve violations in brief: %s", got)
	}
	for range 5_000 {
		wrong.Add("i", "is wrong")
	}
	if got := wrong.Brief().Error(); !strings.HasSuffix(got, "; g: and 5002 more mistakes from here on") {
		t.Errorf("5,012 violations in brief: %s", got)
	}
	if got := wrong.Error(); len(wrong) != 1_000 || !strings.HasSuffix(got, "; i: is wrong; and 4012 more mistakes") {
		t.Errorf("5,012 violations keep %d, and are %.100s…%s", len(wrong), got, got[len(got)-50:])
	}
}
