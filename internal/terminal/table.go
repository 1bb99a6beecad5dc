package terminal

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Row has one cell for each column. The first row of a table is its header.
type Row []string

// gutter separates two columns. No text is cut to less than minTextWidth columns.
const (
	gutter       = "  "
	minTextWidth = 10
)

// quantity matches numbers as they are printed, with or without a unit. They are aligned to the right.
var quantity = regexp.MustCompile(`^([~-]?\d[\d,.]*\+?( ?[a-z\dA-Zµ]+)?|\?|dropped)?$`)

// column is how much space a column needs, and gets.
type column struct {
	header     string
	quantities bool // whether it has only numbers, which are aligned to the right
	filled     bool // whether a cell below the header is not empty
	zero       bool // whether all numbers are 0
	width      int  // the width of its longest cell
	shown      bool
	maxWidth   int // the width to which its cells are cut, 0 if they are not
}

// columnsOf also removes control characters from the cells.
func columnsOf(rows []Row) []column {
	columns := make([]column, len(rows[0]))
	for i := range columns {
		c := &columns[i]
		c.quantities, c.zero = true, true
		for k, cells := range rows {
			cells[i] = Printable(cells[i])
			c.width = max(c.width, text.StringWidth(cells[i]))
			if k == 0 {
				c.header = cells[i]
				continue
			}
			c.quantities = c.quantities && quantity.MatchString(cells[i])
			c.filled = c.filled || cells[i] != ""
			c.zero = c.zero && (cells[i] == "0" || cells[i] == "")
		}
		c.filled = c.filled || len(rows) == 1
	}
	return columns
}

// fit decides which columns are shown on a screen of this width, which is 0 if it is not limited. It hides empty
// columns. On a narrow screen it also hides columns with only zeros and then the last columns, and cuts the last
// text.
func fit(columns []column, screen int) {
	needed := -len(gutter)
	for i := range columns {
		if c := &columns[i]; c.filled {
			c.shown = true
			needed += c.width + len(gutter)
		}
	}
	if screen == 0 {
		return
	}
	for i := len(columns) - 1; i > 0 && needed > screen; i-- {
		if c := &columns[i]; c.shown && c.zero {
			c.shown = false
			needed -= c.width + len(gutter)
		}
	}
	left := screen
	for i := range columns {
		c := &columns[i]
		switch {
		case !c.shown:
		case c.width <= left:
			left -= c.width + len(gutter)
		case !c.quantities && left >= minTextWidth && (i == 0 || i == len(columns)-1):
			c.maxWidth, left = left, 0
		default:
			c.shown, left = false, 0
		}
	}
}

// minLastText is how much of the last text a table must show to be better than a list.
const minLastText = 20

// Fits reports whether the screen shows all columns, and enough of the last one.
func (s *Screen) Fits(rows []Row) bool {
	columns := columnsOf(rows)
	fit(columns, s.Width())
	for _, c := range columns {
		if c.filled && !c.zero && (!c.shown || (c.maxWidth > 0 && c.maxWidth < minLastText)) {
			return false
		}
	}
	return true
}

// PrintTable prints a table without control characters. On a narrow screen, it leaves out columns, the last ones
// first, and says which. It also cuts the last text there.
func (s *Screen) PrintTable(rows []Row) error {
	columns := columnsOf(rows)
	fit(columns, s.Width())
	t := table.NewWriter()
	var configs []table.ColumnConfig
	var hidden []string
	for i, c := range columns {
		config := table.ColumnConfig{Number: i + 1, Hidden: !c.shown}
		if c.quantities {
			config.Align, config.AlignHeader = text.AlignRight, text.AlignRight
		}
		if c.maxWidth > 0 {
			config.WidthMax = c.maxWidth
			config.WidthMaxEnforcer = Cut
		}
		if c.filled && !c.zero && !c.shown {
			hidden = append(hidden, c.header)
		}
		configs = append(configs, config)
	}
	t.SetColumnConfigs(configs)
	t.SetStyle(table.Style{Box: table.BoxStyle{PaddingRight: gutter}, Options: table.OptionsNoBordersAndSeparators})
	for i, cells := range rows {
		if i == 0 {
			t.AppendHeader(s.paintRow(cells))
		} else {
			t.AppendRow(s.paintRow(cells))
		}
	}
	t.SuppressTrailingSpaces()
	_, err := fmt.Fprintln(s, strings.TrimRight(t.Render(), "\n"))
	if hidden != nil {
		fmt.Fprintln(s, s.Wrap("A wider terminal also shows "+strings.Join(hidden, ", ")+".", 2))
	}
	return err
}

// Cut cuts the line to a width in columns. An ellipsis ends the line if something is left out.
func Cut(line string, width int) string { return text.Snip(line, width, "…") }

func (s *Screen) paintRow(cells Row) table.Row {
	var shown table.Row
	for _, cell := range cells {
		shown = append(shown, s.Paint(cell))
	}
	return shown
}
