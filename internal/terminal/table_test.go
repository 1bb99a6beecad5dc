package terminal

import (
	"strings"
	"testing"
)

// A table is printed without empty columns, and without columns that do not fit a narrow screen. Control characters in
// a cell are escaped.
func TestTables(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{"NAME", "ROWS", "EMPTY", "SIZE", "WHY"},
		{"short", "~7", "", "3.0 MiB", "since it is so"},
		{"名前 \x1b[31m", "1,234,567", "", "?", "a\nb"},
	}
	for width, want := range map[int]string{
		0: "NAME                ROWS     SIZE  WHY\nshort                 ~7  3.0 MiB  since it is so\n名前 \\x1b[31m  " +
			"1,234,567        ?  a b\n",
		45: "NAME                ROWS     SIZE  WHY\nshort                 ~7  3.0 MiB  since it …\n名前 \\x1b[31m  " +
			"1,234,567        ?  a b\n",
		32: "NAME                ROWS\nshort                 ~7\n名前 \\x1b[31m  1,234,567\nA wider terminal also shows\n" +
			"  SIZE, WHY.\n",
	} {
		var out strings.Builder
		s := &Screen{Writer: &out, Width: func() int { return width }}
		if err := s.PrintTable(rows); err != nil || out.String() != want {
			t.Errorf("%d columns:\n%s, want\n%s, %v", width, out.String(), want, err)
		}
	}
}

// On a narrow screen the columns with only zeros are left out first.
func TestZerosAreLeftOut(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{"NAME", "DELETED", "DROPPED", "TOOK"},
		{"a name", "7", "0", "3 ms"},
		{"another", "1,000", "0", "10 ms"},
	}
	for width, want := range map[int]string{
		40: "NAME     DELETED  DROPPED   TOOK\na name         7        0   3 ms\nanother    1,000        0  10 ms\n",
		30: "NAME     DELETED   TOOK\na name         7   3 ms\nanother    1,000  10 ms\n",
	} {
		var out strings.Builder
		s := &Screen{Writer: &out, Width: func() int { return width }}
		if err := s.PrintTable(rows); err != nil || out.String() != want {
			t.Errorf("%d columns:\n%s, want\n%s, %v", width, out.String(), want, err)
		}
	}
}

// A table fits if all of its columns are shown, the last one at least in part.
func TestFits(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{"NAME", "ROWS", "EMPTY", "ZERO", "WHY"},
		{"a name", "1,000", "", "0", "since it is older than all others of its kind"},
	}
	for width, want := range map[int]bool{0: true, 200: true, 36: true, 34: false, 10: false} {
		s := &Screen{Width: func() int { return width }}
		if got := s.Fits(rows); got != want {
			t.Errorf("on %d columns: %t", width, got)
		}
	}
}

// A line is broken between words, where the screen ends; its blanks and colours remain.
func TestWrap(t *testing.T) {
	t.Parallel()
	const line = "[ 1/2] a   \x1b[32msucceeded\x1b[0m, 12 rows would be deleted"
	for width, want := range map[int]string{
		0:  line,
		46: line,
		30: "[ 1/2] a   \x1b[32msucceeded\x1b[0m, 12 rows\n    would be deleted",
		15: "[ 1/2] a\n    \x1b[32msucceeded\x1b[0m,\n    12 rows\n    would be\n    deleted",
	} {
		s := &Screen{Width: func() int { return width }}
		if got := s.Wrap(line, 4); got != want {
			t.Errorf("on %d columns: %q, want %q", width, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	text := "cannot connect:\n\ta refuses\n\tb  refuses\n\ta refuses\n"
	if got := OneLine(text); got != "cannot connect: a refuses; b refuses" {
		t.Error(got)
	}
}
