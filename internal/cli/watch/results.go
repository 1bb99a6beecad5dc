package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// PrintRun prints who requested the run and when, its results, and why it did not succeed. With all, it prints
// tables in full length. log may be nil.
func PrintRun(s *terminal.Screen, r *cleanupv1.Run, server *rpc.Server, all bool, log PartitionLog) error {
	kind := "Run"
	if r.GetDryRun() {
		kind = "Dry run"
	}
	fmt.Fprintln(s,
		s.Wrap(
			fmt.Sprintf("%s %s, requested by %s at %s", kind, r.GetId(), terminal.Printable(r.GetRequestedBy()),
				format.Time(r.GetCreateTime())),
			2))
	if r.GetRestoredRunId() != "" {
		fmt.Fprintf(s, "It brings back what run %s deleted.\n", r.GetRestoredRunId())
	}
	if r.GetPlan() != "" {
		fmt.Fprintf(s, "It does what the dry run %s found.\n", r.GetPlan())
	}
	if r.GetPauseTime() != nil {
		fmt.Fprintln(s, describePause(r, server))
	}
	if r.GetEndTime() == nil {
		if !r.GetDryRun() {
			fmt.Fprintf(s, "Its pace is %s.\n", format.EnumName(r.GetPace()))
		}
		text := "It has not ended: %s shows how it goes on.\n"
		if r.GetInterrupted() {
			text = "It was interrupted, and no server has it: a server resumes it, and so does %s.\n"
		}
		fmt.Fprintf(s, text, server.Command("runs watch", r.GetId()))
	}
	err := printResults(s, r, server, all, log)
	for _, t := range r.GetResults() {
		for _, text := range []string{t.GetDetail(), t.GetError()} {
			if text != "" {
				fmt.Fprintln(s, s.Wrap(t.GetTask()+": "+spellOut(server, t.GetTask(), terminal.OneLine(text)), 2))
			}
		}
	}
	rest := r.GetError() // without the errors of tasks, which are printed above
	for _, t := range r.GetResults() {
		rest = strings.ReplaceAll(rest, fmt.Sprintf("task %s failed: %s", t.GetTask(), t.GetError()), "")
	}
	if rest = terminal.OneLine(rest); rest != "" {
		fmt.Fprintln(s, s.Wrap("Error: "+rest, 2))
	}
	return err
}

// spellOut completes the command that the error of a task refused by a guard advises, since the server does not know
// how its client reaches it. server is nil in the demo.
func spellOut(server *rpc.Server, task, text string) string {
	if server == nil {
		return text
	}
	return strings.ReplaceAll(text, "cleanupd run --preview",
		server.Command("run", "--preview --task "+format.ShellWord(task)))
}

func describePause(r *cleanupv1.Run, server *rpc.Server) string {
	text := fmt.Sprintf("It is paused by %s since %s", terminal.Printable(r.GetPausedBy()),
		format.Time(r.GetPauseTime()))
	if r.GetWindowOpenTime() != nil {
		text += ", until its window opens at " + format.Time(r.GetWindowOpenTime())
	}
	if r.GetWaitsForRunId() != "" {
		return text + fmt.Sprintf(", and run %s has ended.", r.GetWaitsForRunId())
	}
	return text + fmt.Sprintf(": %s lets it continue.", server.Command("runs resume", r.GetId()))
}

// printResults also prints the sizes of the tables, the preview of a dry run, and totals.
func printResults(s *terminal.Screen, r *cleanupv1.Run, server *rpc.Server, all bool, log PartitionLog) error {
	more := ""
	if server != nil {
		more = ": " + server.Command("runs show", r.GetId()) + " --all"
	}
	limit := func(n int) int {
		if all {
			return math.MaxInt
		}
		return n
	}
	rows := []terminal.Row{{"TASK", "STATE", "DELETED", "UPDATED", "DROPPED", "PARTITIONS", "RETAINED", "TOOK", "BATCHES"}}
	note := ""
	if r.GetDryRun() {
		rows[0] = terminal.Row{
			"TASK", "STATE", "WOULD DELETE", "WOULD UPDATE", "WOULD DROP", "PARTITIONS", "WOULD RETAIN", "TOOK", "BATCHES",
		}
		note = " It was a dry run: nothing was changed."
	}
	restores := r.GetRestoredRunId() != ""
	if restores {
		rows[0] = terminal.Row{"TASK", "STATE", "RESTORED", "EXISTING", "FAILED", "TOOK", "BATCHES"}
	}
	for _, t := range r.GetResults() {
		if t.GetState() == cleanupv1.TaskState_TASK_STATE_SKIPPED && t.GetStartTime() == nil { // not selected
			continue
		}
		if restores {
			rows = append(rows, terminal.Row{
				t.GetTask(), format.EnumName(t.GetState()), humanize.Comma(t.GetRowsRestored()),
				humanize.Comma(t.GetRowsExisting()), humanize.Comma(t.GetRowsFailed()),
				format.Elapsed(t.GetStartTime(), t.GetEndTime()), humanize.Comma(t.GetBatches()),
			})
			continue
		}
		e := estimatesOf(t)
		rows = append(rows,
			terminal.Row{
				t.GetTask(), format.EnumName(t.GetState()), figure(t.GetRowsDeleted(), e.deleted),
				figure(t.GetRowsUpdated(), e.updated), humanize.Comma(t.GetTablesDropped()), partitionsRemoved(t, r, log),
				RowsRetained(t),
				format.Elapsed(t.GetStartTime(), t.GetEndTime()), humanize.Comma(t.GetBatches()),
			})
	}
	fmt.Fprintln(s)
	sizes := tableSizes(r)
	err := s.PrintTable(rows)
	for _, t := range r.GetResults() {
		if p := log[t.GetTask()]; p != nil {
			fmt.Fprintln(s, s.Wrap(terminal.Printable(t.GetTask()+": "+p.String()), 2))
		}
	}
	err = errors.Join(err, printTableSizes(s, sizes, limit(maxTables), more),
		printPreview(s, r, limit(maxPreviewTables), more))
	fmt.Fprintln(s, "\n"+s.Wrap(total(r, sizes, log), 2))
	state := s.Paint(format.EnumName(r.GetState()) + retained(r)) // without the colour of a success if rows are retained
	fmt.Fprintln(s, s.Wrap(fmt.Sprintf("Run %s %s.%s", r.GetId(), state, note), 2))
	if server != nil {
		printUndo(s, r, server)
	}
	return err
}

// printUndo says until when what a run deleted can be restored, and what of it cannot.
func printUndo(s *terminal.Screen, r *cleanupv1.Run, server *rpc.Server) {
	var until time.Time
	var lost []string
	for _, t := range r.GetResults() {
		switch expires := t.GetUndoExpireTime(); {
		case expires != nil && (until.IsZero() || expires.AsTime().Before(until)):
			until = expires.AsTime()
		case expires == nil && t.GetRowsDeleted()+t.GetTablesDropped()+t.GetPartitionsRemoved() > 0:
			lost = append(lost, terminal.Printable(t.GetTask()))
		}
	}
	if until.IsZero() {
		return
	}
	fmt.Fprintf(s, "Undo until %s: %s\n", format.Time(timestamppb.New(until)), server.Command("trash restore", r.GetId()))
	if lost != nil {
		fmt.Fprintln(s, s.Wrap("What these tasks deleted is not in the trash: "+strings.Join(lost, ", "), 2))
	}
}

// PrintFound prints what a dry run found, which is not stored.
func PrintFound(s *terminal.Screen, r *cleanupv1.Run, all bool) error {
	limit := maxPreviewTables
	if all {
		limit = math.MaxInt
	}
	err := printPreview(s, r, limit, ": --all shows them")
	fmt.Fprintln(s, "\n"+Total(r))
	return err
}

// PartitionLog has the partitions that tasks have removed according to the log of their run, by task.
type PartitionLog map[string]*removed

// ReadPartitions reads the log of a run that has ended, if it removed partitions; nil if that is not possible.
func ReadPartitions(ctx context.Context, client cleanupd.Client, r *cleanupv1.Run) PartitionLog {
	if r.GetEndTime() == nil || r.GetDryRun() || !slices.ContainsFunc(r.GetResults(),
		func(t *cleanupv1.TaskResult) bool { return t.GetPartitionsRemoved() > 0 }) {
		return nil
	}
	log := PartitionLog{}
	receive, _ := receiver(client.WatchRun(ctx, &cleanupv1.WatchRunRequest{RunId: r.GetId()}))
	for {
		e, err := receive()
		if err != nil {
			return nil
		}
		if log.add(e.GetLog()); e.GetRunFinished() != nil {
			return log
		}
	}
}

// add reports whether the entry is about a partition.
func (l PartitionLog) add(e *cleanupv1.LogEntry) bool {
	fate, ok := fates[e.GetCode()]
	if !ok {
		return false
	}
	if l[e.GetTask()] == nil {
		l[e.GetTask()] = &removed{fate: fate}
	}
	l[e.GetTask()].names = append(l[e.GetTask()].names, e.GetParams()["table"])
	return true
}

// ofAll returns what became of the partitions of all tasks together.
func (l PartitionLog) ofAll(r *cleanupv1.Run) *removed {
	var all *removed
	for _, t := range r.GetResults() {
		if t.GetPartitionsRemoved() == 0 {
			continue
		}
		switch fate := fateOfPartitions(t, l[t.GetTask()]); {
		case all == nil:
			all = &removed{fate: fate}
		case all.fate != fate:
			return nil
		}
	}
	return all
}

// removed are the partitions that one task has removed.
type removed struct {
	fate  string // dropped or detached
	names []string
}

func (p *removed) String() string {
	n := int64(len(p.names))
	return format.Count(n, "partition", "partitions") + " " + p.fate + ": " + firstNames(p.names, n)
}

// fateOfPartitions returns whether a task drops or detaches the partitions that it removes, if its result or the log
// says so.
func fateOfPartitions(t *cleanupv1.TaskResult, log *removed) string {
	for _, p := range t.GetPreview() {
		switch {
		case p.GetPartitions() == 0:
		case p.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_DETACH:
			return "detached"
		default:
			return "dropped"
		}
	}
	if log != nil {
		return log.fate
	}
	return "dropped or detached"
}

func partitionsRemoved(t *cleanupv1.TaskResult, r *cleanupv1.Run, log PartitionLog) string {
	if t.GetPartitionsRemoved() == 0 {
		return ""
	}
	would := ""
	if r.GetDryRun() {
		would = "would be "
	}
	return humanize.Comma(t.GetPartitionsRemoved()) + " " + would + fateOfPartitions(t, log[t.GetTask()])
}

// RowsRetained counts rows on hold, too, and adds a plus if there may be more rows.
func RowsRetained(tasks ...*cleanupv1.TaskResult) string {
	var rows, tables int64
	for _, t := range tasks {
		rows, tables = rows+t.GetRowsRetained()+t.GetRowsOnHold(), tables+t.GetTablesRetained()
	}
	if tables > 0 {
		return humanize.Comma(rows) + "+"
	}
	return humanize.Comma(rows)
}

// retained counts what a run retained, by reason, each after a comma.
func retained(r *cleanupv1.Run) (text string) {
	var sum cleanupv1.TaskResult
	for _, t := range r.GetResults() {
		sum.RowsFailed += t.GetRowsFailed()
		sum.RowsLocked += t.GetRowsLocked()
		sum.RowsSuppressed += t.GetRowsSuppressed()
		sum.RowsDependent += t.GetRowsDependent()
		sum.RowsOnHold += t.GetRowsOnHold()
		sum.TablesRetained += t.GetTablesRetained()
	}
	for _, count := range []struct {
		n                 int64
		one, many, reason string
	}{
		{sum.GetRowsFailed(), "row", "rows", "failed"},
		{sum.GetRowsLocked(), "row", "rows", "locked"},
		{sum.GetRowsSuppressed(), "row", "rows", "suppressed"},
		{sum.GetRowsDependent(), "row", "rows", "dependent"},
		{sum.GetRowsOnHold(), "row", "rows", "on hold"},
		{sum.GetTablesRetained(), "table", "tables", "unfinished"},
	} {
		if count.n > 0 {
			text += ", " + format.Count(count.n, count.one, count.many) + " " + count.reason
		}
	}
	return text
}

// Total returns what a run did or would do, and how long it took.
func Total(r *cleanupv1.Run) string { return totalOf(r, nil) }

func totalOf(r *cleanupv1.Run, log PartitionLog) string {
	var sum cleanupv1.TaskResult
	for _, t := range r.GetResults() {
		sum.RowsDeleted += t.GetRowsDeleted()
		sum.RowsUpdated += t.GetRowsUpdated()
		sum.RowsCascaded += t.GetRowsCascaded()
		sum.TablesDropped += t.GetTablesDropped()
		sum.PartitionsRemoved += t.GetPartitionsRemoved()
		sum.RowsRestored += t.GetRowsRestored()
		sum.RowsExisting += t.GetRowsExisting()
	}
	if r.GetRestoredRunId() != "" {
		text := "Total: " + format.Count(sum.GetRowsRestored(), "row", "rows") + " restored"
		if n := sum.GetRowsExisting(); n > 0 {
			text += ", " + humanize.Comma(n) + " left in the trash, since rows with the same keys exist"
		}
		return text + " in " + format.Elapsed(r.GetStartTime(), r.GetEndTime())
	}
	nothing := "nothing to delete"
	if r.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED {
		nothing = "nothing was deleted"
	}
	text := "Total: " + cmp.Or(
		strings.TrimPrefix(summary(&sum, r.GetDryRun(), estimatesOf(r.GetResults()...), log.ofAll(r)), ", "), nothing)
	if took := format.Elapsed(r.GetStartTime(), r.GetEndTime()); took != "" {
		text += " in " + took
	}
	return text
}

// total adds how many bytes of the run's tables are free for new rows.
func total(r *cleanupv1.Run, sizes []*cleanupv1.TableSpace, log PartitionLog) string {
	var reusable int64
	for _, t := range sizes {
		reusable += t.GetFreeBytes()
	}
	if reusable > 0 {
		return totalOf(r, log) + ", " + format.Size(reusable) + " reusable"
	}
	return totalOf(r, log)
}

// tableSizes returns each table's size before the first and after the last task that deleted from it, the tables
// with the most deleted rows first.
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
			sum.TableBytesAfter, sum.IndexBytesAfter = s.GetTableBytesAfter(), s.GetIndexBytesAfter()
			sum.DeadBytes, sum.FreeBytes = s.DeadBytes, s.FreeBytes
		}
	}
	slices.SortStableFunc(list, func(a, b *cleanupv1.TableSpace) int {
		return cmp.Compare(b.GetRowsDeleted(), a.GetRowsDeleted())
	})
	return list
}

// maxTables is how many tables are printed with their sizes.
const maxTables = 10

// printTableSizes prints at most limit tables. more says how to see the others.
func printTableSizes(s *terminal.Screen, sizes []*cleanupv1.TableSpace, limit int, more string) error {
	if len(sizes) == 0 {
		return nil
	}
	rows := []terminal.Row{{"TABLE", "DELETED", "BEFORE", "AFTER", "DEAD", "FREE"}}
	for _, t := range sizes[:min(len(sizes), limit)] {
		rows = append(rows,
			terminal.Row{
				t.GetTable(), humanize.Comma(t.GetRowsDeleted()),
				format.Size(t.GetTableBytesBefore() + t.GetIndexBytesBefore()),
				format.Size(t.GetTableBytesAfter() + t.GetIndexBytesAfter()), sizeIfKnown(t.DeadBytes),
				sizeIfKnown(t.FreeBytes),
			})
	}
	fmt.Fprintln(s)
	err := s.PrintTable(rows)
	printMore(s, len(sizes)-limit, more)
	return err
}

func printMore(s *terminal.Screen, n int, how string) {
	if n > 0 {
		fmt.Fprintf(s, "and %d more%s\n", n, how) // not wrapped, so that the command can be pasted
	}
}

// sizeIfKnown returns "" if the size is unknown, as that of a table that no longer has rows or was never analyzed.
func sizeIfKnown(n *int64) string {
	if n == nil {
		return ""
	}
	return format.Size(*n)
}
