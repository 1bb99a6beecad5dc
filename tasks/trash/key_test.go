package trash

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestNamesOfRows(t *testing.T) {
	t.Parallel()
	one, two := uniqueKey{`"id"`}, uniqueKey{`"a"`, `"b"`}
	for _, c := range []struct {
		key  uniqueKey
		name string
		want []string // nil if the name has not all columns
	}{
		{one, "a=1,b=2", []string{"a=1,b=2"}},
		{two, "a=1,b=2", []string{"1", "2"}},
		{two, "b=2, a=1", []string{"1", "2"}},
		{two, "a=,b=", []string{"", ""}},
		{two, "a=1,c=3,,b=2,a=4", []string{"1,c=3,", "2,a=4"}},
		{two, "a=1", nil},
		{two, "c=3,a=1,b=2", nil},
		{two, "", nil},
	} {
		if got := c.key.values(c.name); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%q: got %q, want %q", c.name, got, c.want)
		}
	}
}

// A request may have a name of 1 MiB.
func TestLongNameOfARow(t *testing.T) {
	name := "a=1,b=2" + strings.Repeat(",", 100_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	uniqueKey{"a", "b"}.values(name)
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 16 {
		t.Errorf("reading a name of 100 kB took %d MiB of memory, want at most 16", got)
	}
}
