package flags

import (
	"runtime"
	"strings"
	"testing"
)

func TestSimilar(t *testing.T) {
	t.Parallel()
	known := []string{"deliveries", "sessions", "visitors"}
	for unknown, want := range map[string]string{
		"deliverys":   " (did you mean deliveries?)",
		"SESSION":     " (did you mean sessions?)",
		"visitorsss":  " (did you mean visitors?)",
		"visitorssss": "",
		"si":          "",
		"s":           " (did you mean sessions?)",
	} {
		if got := Similar(unknown, known); got != want {
			t.Errorf("%q: got %q, want %q", unknown, got, want)
		}
	}
}

// The name may come from a request, which has 1 MiB at most.
func TestSimilarToALongName(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := Similar(long, []string{"deliveries", "sessions"}); got != "" {
		t.Errorf("got %q, want no similar name", got)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("comparing names took %d bytes, want at most 64 KiB", got)
	}
}
