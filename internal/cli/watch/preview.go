package watch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// trippedGuards are the guards that would trip in a run as a dry run has found it.
func TrippedGuards(r *cleanupv1.Run) (trips []*cleanupv1.TrippedGuard) {
	for _, t := range r.GetResults() {
		for _, p := range t.GetPreview() {
			trips = append(trips, p.GetGuards()...)
		}
	}
	return trips
}

// tripText says what is unusual.
func DescribeGuard(t *cleanupv1.TrippedGuard) string {
	return fmt.Sprintf(
		"The guard %s refuses this for %s: %d would go, and %d may.",
		t.GetGuard(),
		t.GetTable(),
		t.GetNumber(),
		t.GetMost(),
	)
}

// previewed is how many tables of a dry run are shown.
const tablesPreviewed = 30

// printPreview prints what a dry run foresees, table by table, those first of which most goes.
func printPreview(s *terminal.Screen, r *cleanupv1.Run) error {
	var list []*cleanupv1.TablePreview
	for _, t := range r.GetResults() {
		list = append(list, t.GetPreview()...)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b *cleanupv1.TablePreview) int { return int(min(max(affected(b)-affected(a), -1), 1)) })
	// a column without a cell is left out
	rows := []terminal.Row{{"TABLE", "WOULD", "HOW MANY", "NOW", "OF", "BYTES", "OLDEST", "NEWEST", "WHY"}}
	for _, p := range list[:min(len(list), tablesPreviewed)] {
		of, now := "", ""
		if p.RowsNow != nil {
			now = humanize.Comma(p.GetRowsNow())
		}
		if p.GetRowsTotal() > 0 {
			of = humanize.Comma(p.GetRowsTotal())
		}
		rows = append(
			rows,
			terminal.Row{
				p.GetTable(),
				format.EnumName(p.GetAction()),
				humanize.Comma(affected(p)),
				now,
				of,
				format.Size(p.GetBytes()),
				date(p.GetOldest()),
				date(p.GetNewest()),
				strings.Join(append([]string{p.GetRule()}, p.GetRemarks()...), "; but "),
			},
		)
	}
	fmt.Fprintln(s)
	err := s.PrintTable(rows)
	if more := len(list) - tablesPreviewed; more > 0 {
		fmt.Fprintf(s, "and %d more\n", more)
	}
	for _, t := range TrippedGuards(r) {
		fmt.Fprintln(s, DescribeGuard(t))
	}
	return err
}

// many is how many rows or tables a preview is of.
func affected(p *cleanupv1.TablePreview) int64 { return p.GetRows() + p.GetTables() }

// day is the date of a moment, in UTC; empty: there is none.
func date(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02")
}
