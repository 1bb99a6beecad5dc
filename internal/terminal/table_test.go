package terminal

import (
	"strings"
	"testing"
)

// A table is printed without empty columns, and without the columns that do not fit a narrow screen. Control characters
// in a cell are escaped.
func TestTables(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{"NAME", "ROWS", "EMPTY", "SIZE", "WHY"},
		{"short", "7", "", "3.0 MiB", "since it is so"},
		{"名前 \x1b[31m", "1,234,567", "", "?", "a\nb"},
	}
	for width, want := range map[int]string{
		0: "NAME                ROWS     SIZE  WHY\nshort                  7  3.0 MiB  since it is so\n名前 \\x1b[31m  " +
			"1,234,567        ?  a b\n",
		45: "NAME                ROWS     SIZE  WHY\nshort                  7  3.0 MiB  since it …\n名前 \\x1b[31m  " +
			"1,234,567        ?  a b\n",
		32: "NAME                ROWS\nshort                  7\n名前 \\x1b[31m  1,234,567\n",
	} {
		var out strings.Builder
		s := &Screen{Writer: &out, Width: func() int { return width }}
		if err := s.PrintTable(rows); err != nil || out.String() != want {
			t.Errorf("%d columns:\n%s, want\n%s, %v", width, out.String(), want, err)
		}
	}
}
