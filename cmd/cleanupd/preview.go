package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// previewed is how many tables of a dry run are shown.
const previewed = 30

// printPreview prints what a dry run foresees, table by table, those first of which most goes.
func printPreview(s *screen, r *cleanupv1.Run) error {
	var list []*cleanupv1.TablePreview
	for _, t := range r.GetResults() {
		list = append(list, t.GetPreview()...)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b *cleanupv1.TablePreview) int { return int(min(max(many(b)-many(a), -1), 1)) })
	// a column without a cell is left out
	rows := []row{{"TABLE", "WOULD", "HOW MANY", "NOW", "OF", "BYTES", "OLDEST", "NEWEST", "WHY"}}
	for _, p := range list[:min(len(list), previewed)] {
		of, now := "", ""
		if p.RowsNow != nil {
			now = humanize.Comma(p.GetRowsNow())
		}
		if p.GetRowsTotal() > 0 {
			of = humanize.Comma(p.GetRowsTotal())
		}
		rows = append(
			rows,
			row{
				p.GetTable(),
				word(p.GetAction()),
				humanize.Comma(many(p)),
				now,
				of,
				size(p.GetBytes()),
				day(p.GetOldest()),
				day(p.GetNewest()),
				strings.Join(append([]string{p.GetRule()}, p.GetRemarks()...), "; but "),
			},
		)
	}
	fmt.Fprintln(s)
	err := s.printTable(rows)
	if more := len(list) - previewed; more > 0 {
		fmt.Fprintf(s, "and %d more\n", more)
	}
	for _, t := range trippedGuards(r) {
		fmt.Fprintln(s, tripText(t))
	}
	return err
}

// many is how many rows or tables a preview is of.
func many(p *cleanupv1.TablePreview) int64 { return p.GetRows() + p.GetTables() }

// day is the date of a moment, in UTC; empty: there is none.
func day(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02")
}
