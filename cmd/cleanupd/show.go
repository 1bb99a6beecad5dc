package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// show prints a run's events as they come: a line per task, on a terminal with progress below, and a table at the end. Its
// error is how the stream ended.
func show(w io.Writer, f *following) error {
	v := &view{w: w, columns: columns(w)}
	for {
		event, err := f.next()
		for why := f.again(err); why != ""; why = f.again(err) {
			if err := v.line(why); err != nil {
				return err
			}
			if event, err = f.comeBack(err); status.Code(err) == codes.Unavailable {
				break
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			v.wipe()
			return plain(err)
		}
		if err := v.event(event); err != nil {
			return err
		}
	}
}

// columns returns a function that reads the width of the terminal; 0: there is none.
func columns(w io.Writer) func() int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() int { return 0 }
	}
	return func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 1 {
			return 80
		}
		return width
	}
}

// plainEvery is how often progress is printed without a terminal.
const plainEvery = 5 * time.Second

// view is what is on the screen.
type view struct {
	w       io.Writer
	columns func() int
	dry     bool
	started *cleanupv1.TaskStarted
	drawn   bool // progress is on the last line
	told    time.Time
}

func (v *view) event(e *cleanupv1.RunEvent) error {
	switch {
	case e.GetRunStarted() != nil:
		what := "Run %s began."
		if v.dry = e.GetRunStarted().GetRun().GetDryRun(); v.dry {
			what = "Dry run %s began: nothing is changed."
		}
		return v.line(fmt.Sprintf(what, e.GetRunId()))
	case e.GetTaskStarted() != nil:
		v.started, v.told = e.GetTaskStarted(), time.Now()
	case e.GetTaskProgress() != nil:
		return v.progress(e.GetTaskProgress())
	case e.GetTaskFinished() != nil:
		r := e.GetTaskFinished().GetResult()
		return v.line(v.label(r.GetTask()) + " " + summary(r, v.dry))
	case e.GetLog() != nil && e.GetLog().GetLevel() != cleanupv1.LogLevel_LOG_LEVEL_INFO:
		return v.line(fmt.Sprintf("        %s: %s", e.GetLog().GetTask(), e.GetLog().GetMessage()))
	case e.GetRunFinished() != nil:
		v.wipe()
		return printResults(v.w, e.GetRunFinished().GetRun())
	}
	return nil
}

// line prints a line that stays.
func (v *view) line(text string) error {
	v.wipe()
	_, err := fmt.Fprintln(v.w, text)
	return err
}

// wipe erases the progress from the screen.
func (v *view) wipe() {
	if v.drawn {
		_, _ = io.WriteString(v.w, "\r\x1b[K")
		v.drawn = false
	}
}

// label is the beginning of a task's line.
func (v *view) label(task string) string {
	return fmt.Sprintf("[%2d/%d] %-20s", v.started.GetPosition(), v.started.GetTaskCount(), task)
}

// progress shows how far a task is: on a terminal in place of the last progress, otherwise every plainEvery.
func (v *view) progress(p *cleanupv1.TaskProgress) error {
	text := v.label(p.GetTask()) + " " + soFar(p)
	if width := v.columns(); width > 0 {
		line := []rune(text)
		v.wipe()
		v.drawn = true
		_, err := io.WriteString(v.w, string(line[:min(len(line), width-1)]))
		return err
	}
	if time.Since(v.told) < plainEvery {
		return nil
	}
	v.told = time.Now()
	return v.line(text)
}

// soFar describes how far a task is, the most important first.
func soFar(p *cleanupv1.TaskProgress) string {
	done, rate := p.GetRowsDeleted()+p.GetRowsUpdated(), p.GetRowsPerSecond()
	var parts []string
	if expected := p.GetRowsExpected(); expected > 0 {
		parts = append(parts, fmt.Sprintf("%d %%", 100*done/expected))
		if rate >= 1 {
			left := time.Duration(float64(expected-done) / rate * float64(time.Second))
			parts = append(parts, left.Round(time.Second).String()+" left")
		}
	}
	if p.GetThrottledBy() != "" {
		parts = append(parts, "waiting: "+p.GetThrottledBy())
	}
	if done > 0 {
		parts = append(parts, fmt.Sprintf("%d rows, %.0f a second", done, rate))
	}
	return strings.Join(append(parts, p.GetObject()), ", ")
}

// summary describes what a task did, or would do.
func summary(r *cleanupv1.TaskResult, dry bool) string {
	text := stateName("TASK_STATE_", r.GetState())
	for _, count := range []struct {
		n                 int64
		one, many, became string
	}{{r.GetRowsDeleted(), "row", "rows", "deleted"}, {r.GetRowsUpdated(), "row", "rows", "updated"}, {r.GetTablesDropped(), "table", "tables", "dropped"},
		{r.GetRemoteDeliveriesLeft(), "delivery", "deliveries", "left on mid-sourcing servers"}} {
		if dry {
			count.became = "would be " + count.became
		}
		switch {
		case count.n == 1:
			text += fmt.Sprintf(", 1 %s %s", count.one, count.became)
		case count.n > 1:
			text += fmt.Sprintf(", %d %s %s", count.n, count.many, count.became)
		}
	}
	if r.GetDetail() != "" {
		text += "; " + r.GetDetail()
	}
	if r.GetError() != "" {
		text += ": " + r.GetError()
	}
	return text
}

// left is how many obsolete rows the tasks left; with a plus where there may be more.
func left(tasks ...*cleanupv1.TaskResult) string {
	var rows, tables int64
	for _, t := range tasks {
		rows, tables = rows+t.GetRowsLeft(), tables+t.GetTablesLeft()
	}
	if tables > 0 {
		return fmt.Sprintf("%d+", rows)
	}
	return fmt.Sprint(rows)
}

// printResults prints the table at the end of a run.
func printResults(w io.Writer, r *cleanupv1.Run) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nTASK\tSTATE\tDELETED\tUPDATED\tDROPPED\tLEFT\tBATCHES\tTOOK")
	for _, t := range r.GetResults() {
		took := ""
		if t.GetEndTime() != nil {
			took = t.GetEndTime().AsTime().Sub(t.GetStartTime().AsTime()).Round(time.Millisecond).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%d\t%s\n", t.GetTask(), stateName("TASK_STATE_", t.GetState()),
			t.GetRowsDeleted(), t.GetRowsUpdated(), t.GetTablesDropped(), left(t), t.GetBatches(), took)
	}
	if err := errors.Join(table.Flush(), printSpace(w, r)); err != nil {
		return err
	}
	dry := ""
	if r.GetDryRun() {
		dry = " It was a dry run: nothing was changed."
	}
	_, err := fmt.Fprintf(w, "\nRun %s %s.%s\n", r.GetId(), stateName("RUN_STATE_", r.GetState()), dry)
	return err
}

// tablesShown is how many tables are shown with their size.
const tablesShown = 10

// printSpace prints the size of the tables that a run deleted most from, before its first task on them and after its last.
func printSpace(w io.Writer, r *cleanupv1.Run) error {
	sums := map[string]*cleanupv1.TableSpace{}
	var order []*cleanupv1.TableSpace
	for _, t := range r.GetResults() {
		for _, s := range t.GetSpace() {
			sum := sums[s.GetTable()]
			if sum == nil {
				sum = proto.CloneOf(s)
				sums[s.GetTable()], order = sum, append(order, sum)
				continue
			}
			sum.RowsDeleted += s.GetRowsDeleted()
			sum.TableBytesAfter, sum.IndexBytesAfter, sum.DeadBytes, sum.FreeBytes = s.GetTableBytesAfter(), s.GetIndexBytesAfter(), s.DeadBytes, s.FreeBytes
		}
	}
	if len(order) == 0 {
		return nil
	}
	slices.SortStableFunc(order, func(a, b *cleanupv1.TableSpace) int { return cmp.Compare(b.GetRowsDeleted(), a.GetRowsDeleted()) })
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nTABLE\tDELETED\tBEFORE\tAFTER\tDEAD\tFREE")
	for _, s := range order[:min(len(order), tablesShown)] {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", s.GetTable(), s.GetRowsDeleted(), size(s.GetTableBytesBefore()+s.GetIndexBytesBefore()),
			size(s.GetTableBytesAfter()+s.GetIndexBytesAfter()), unknown(s.DeadBytes), unknown(s.FreeBytes))
	}
	if more := len(order) - tablesShown; more > 0 {
		fmt.Fprintf(table, "and %d more\n", more)
	}
	return table.Flush()
}

func size(n int64) string { return humanize.IBytes(uint64(n)) }

func unknown(n *int64) string {
	if n == nil {
		return "?"
	}
	return size(*n)
}
