package terminal

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Row has a cell for each column. The first row of a table is its header.
type Row []string

// gutter separates two columns. A text is not cut to less than minTextWidth columns.
const (
	gutter       = "  "
	minTextWidth = 10
)

// quantity matches numbers as they are printed, with or without a unit. They are aligned to the right.
var quantity = regexp.MustCompile(`^(-?\d[\d,.]*\+?( ?[a-z\dA-Zµ]+)?|\?|dropped)?$`)

// PrintTable prints a table, without control characters in its cells. On a narrow screen it leaves out columns, the
// last ones first, and cuts the last text.
func (s *Screen) PrintTable(rows []Row) error {
	for _, cells := range rows {
		for i := range cells {
			cells[i] = Printable(cells[i])
		}
	}
	t := table.NewWriter()
	var columns []table.ColumnConfig
	left := s.Width()
	for i := range rows[0] {
		c := table.ColumnConfig{Number: i + 1, Hidden: true}
		quantities, widest, filled := true, text.StringWidth(rows[0][i]), false
		for _, cells := range rows[1:] {
			quantities = quantities && quantity.MatchString(cells[i])
			widest = max(widest, text.StringWidth(cells[i]))
			filled = filled || cells[i] != ""
		}
		if quantities {
			c.Align, c.AlignHeader = text.AlignRight, text.AlignRight
		}
		switch {
		case !filled && len(rows) > 1: // an empty column
		case s.Width() == 0 || widest <= left:
			c.Hidden, left = false, left-widest-len(gutter)
		case !quantities && left >= minTextWidth && (i == 0 || i == len(rows[0])-1):
			c.Hidden, c.WidthMax, left = false, left, 0
			c.WidthMaxEnforcer = func(cell string, width int) string { return text.Snip(cell, width, "…") }
		default:
			left = 0
		}
		columns = append(columns, c)
	}
	t.SetColumnConfigs(columns)
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
	return err
}

// paintRow returns the cells of a row in their colours.
func (s *Screen) paintRow(cells Row) table.Row {
	var shown table.Row
	for _, cell := range cells {
		shown = append(shown, s.Paint(cell))
	}
	return shown
}
