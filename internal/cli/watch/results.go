package watch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// printResults prints what the tasks of a run did, the sizes of their tables, and what it all comes to.
func printResults(s *terminal.Screen, r *cleanupv1.Run) error {
	rows := []terminal.Row{{"TASK", "STATE", "DELETED", "UPDATED", "DROPPED", "LEFT", "TOOK", "BATCHES"}}
	dry := ""
	if r.GetDryRun() {
		rows[0] = terminal.Row{"TASK", "STATE", "WOULD DELETE", "WOULD UPDATE", "WOULD DROP", "WOULD LEAVE", "TOOK", "BATCHES"}
		dry = " It was a dry run: nothing was changed."
	}
	for _, t := range r.GetResults() {
		if t.GetState() == cleanupv1.TaskState_TASK_STATE_SKIPPED && t.GetStartTime() == nil { // it wasn't chosen
			continue
		}
		took := ""
		if t.GetEndTime() != nil && t.GetStartTime() != nil {
			took = format.Duration(t.GetEndTime().AsTime().Sub(t.GetStartTime().AsTime()))
		}
		rows = append(rows, terminal.Row{
			t.GetTask(), format.EnumName(t.GetState()), humanize.Comma(t.GetRowsDeleted()), humanize.Comma(t.GetRowsUpdated()),
			humanize.Comma(t.GetTablesDropped()), RowsLeft(t), took, humanize.Comma(t.GetBatches()),
		})
	}
	fmt.Fprintln(s)
	space := tableSizes(r)
	err := errors.Join(s.PrintTable(rows), printTableSizes(s, space), printPreview(s, r))
	fmt.Fprintf(s, "\n%s\n", Total(r, space))
	fmt.Fprintf(s, "Run %s %s.%s\n", r.GetId(), s.Paint(format.EnumName(r.GetState())), dry)
	return err
}

// left is how many obsolete rows the tasks left; with a plus where there may be more.
func RowsLeft(tasks ...*cleanupv1.TaskResult) string {
	var rows, tables int64
	for _, t := range tasks {
		rows, tables = rows+t.GetRowsLeft(), tables+t.GetTablesLeft()
	}
	if tables > 0 {
		return humanize.Comma(rows) + "+"
	}
	return humanize.Comma(rows)
}

// total says in a line what a run did, how long it took, and how many bytes of its tables are free for new rows.
func Total(r *cleanupv1.Run, space []*cleanupv1.TableSpace) string {
	var sum cleanupv1.TaskResult
	for _, t := range r.GetResults() {
		sum.RowsDeleted += t.GetRowsDeleted()
		sum.RowsUpdated += t.GetRowsUpdated()
		sum.TablesDropped += t.GetTablesDropped()
	}
	text := cmp.Or(strings.TrimPrefix(summary(&sum, r.GetDryRun()), ", "), "nothing to delete")
	if r.GetEndTime() != nil && r.GetStartTime() != nil {
		text += " in " + format.Duration(r.GetEndTime().AsTime().Sub(r.GetStartTime().AsTime()))
	}
	var reusable int64
	for _, t := range space {
		reusable += t.GetFreeBytes()
	}
	if reusable > 0 {
		text += ", " + format.Size(reusable) + " reusable"
	}
	return "Total: " + text
}

// spaces are the sizes of the tables of a run, before its first task on them and after its last, those first that lost
// most rows.
func tableSizes(r *cleanupv1.Run) (list []*cleanupv1.TableSpace) {
	sums := map[string]*cleanupv1.TableSpace{}
	for _, t := range r.GetResults() {
		for _, s := range t.GetSpace() {
			sum := sums[s.GetTable()]
			if sum == nil {
				sum = proto.CloneOf(s)
				sums[s.GetTable()], list = sum, append(list, sum)
				continue
			}
			sum.RowsDeleted += s.GetRowsDeleted()
			sum.TableBytesAfter, sum.IndexBytesAfter, sum.DeadBytes, sum.FreeBytes = s.GetTableBytesAfter(), s.GetIndexBytesAfter(), s.DeadBytes, s.FreeBytes
		}
	}
	slices.SortStableFunc(
		list,
		func(a, b *cleanupv1.TableSpace) int { return cmp.Compare(b.GetRowsDeleted(), a.GetRowsDeleted()) },
	)
	return list
}

// tablesShown is how many tables are shown with their size.
const tablesShown = 10

// printSpace prints the sizes of the first tables.
func printTableSizes(s *terminal.Screen, space []*cleanupv1.TableSpace) error {
	if len(space) == 0 {
		return nil
	}
	rows := []terminal.Row{{"TABLE", "DELETED", "BEFORE", "AFTER", "DEAD", "FREE"}}
	for _, t := range space[:min(len(space), tablesShown)] {
		rows = append(rows, terminal.Row{
			t.GetTable(), humanize.Comma(t.GetRowsDeleted()), format.Size(t.GetTableBytesBefore() + t.GetIndexBytesBefore()),
			format.Size(t.GetTableBytesAfter() + t.GetIndexBytesAfter()), sizeIfKnown(t.DeadBytes), sizeIfKnown(t.FreeBytes),
		})
	}
	fmt.Fprintln(s)
	err := s.PrintTable(rows)
	if more := len(space) - tablesShown; more > 0 {
		fmt.Fprintf(s, "and %d more\n", more)
	}
	return err
}

func sizeIfKnown(n *int64) string {
	if n == nil {
		return "?"
	}
	return format.Size(*n)
}
