package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// show prints a run's events as they come: a line a task, with a bar on a terminal, and a table at the end. Its
// error is how the stream ended.
func show(w io.Writer, f *following) error {
	v := &view{w: w, terminal: isTerminal(w)}
	for {
		event, err := f.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			v.endBar()
			return plain(err)
		}
		if err := v.event(event); err != nil {
			return err
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// plainEvery is how often progress is told where there is no terminal to draw a bar on.
const plainEvery = 5 * time.Second

// view is what is on the screen.
type view struct {
	w        io.Writer
	terminal bool
	started  *cleanupv1.TaskStarted
	bar      *progressbar.ProgressBar
	told     time.Time
}

func (v *view) event(e *cleanupv1.RunEvent) error {
	var err error
	switch {
	case e.GetRunStarted() != nil:
		_, err = fmt.Fprintf(v.w, "Run %s began.\n", e.GetRunId())
	case e.GetTaskStarted() != nil:
		v.started, v.told = e.GetTaskStarted(), time.Now()
	case e.GetTaskProgress() != nil:
		err = v.progress(e.GetTaskProgress())
	case e.GetTaskFinished() != nil:
		v.endBar()
		_, err = fmt.Fprintln(v.w, v.label(e.GetTaskFinished().GetResult().GetTask()), summary(e.GetTaskFinished().GetResult()))
	case e.GetLog() != nil && e.GetLog().GetLevel() != cleanupv1.LogLevel_LOG_LEVEL_INFO:
		v.endBar()
		_, err = fmt.Fprintf(v.w, "        %s: %s\n", e.GetLog().GetTask(), e.GetLog().GetMessage())
	case e.GetRunFinished() != nil:
		err = printResults(v.w, e.GetRunFinished().GetRun())
	}
	return err
}

// label is the beginning of a task's line.
func (v *view) label(task string) string {
	return fmt.Sprintf("[%2d/%d] %-20s", v.started.GetPosition(), v.started.GetTaskCount(), task)
}

func (v *view) progress(p *cleanupv1.TaskProgress) error {
	done := p.GetRowsDeleted() + p.GetRowsUpdated()
	if !v.terminal {
		if time.Since(v.told) < plainEvery {
			return nil
		}
		v.told = time.Now()
		_, err := fmt.Fprintf(v.w, "%s %s: %s\n", v.label(p.GetTask()), p.GetObject(), soFar(p))
		return err
	}
	expected := int64(-1) // a spinner
	if p.RowsExpected != nil && p.GetRowsExpected() > 0 {
		expected = p.GetRowsExpected()
	}
	if v.bar == nil {
		v.bar = progressbar.NewOptions64(expected, progressbar.OptionSetWriter(v.w), progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(expected > 0),
			progressbar.OptionSetSpinnerChangeInterval(0)) // it turns with the events, and never after the line is taken off
	}
	v.bar.Describe(v.label(p.GetTask()) + " " + p.GetObject())
	if expected > 0 {
		v.bar.ChangeMax64(expected)
	}
	return v.bar.Set64(done)
}

// soFar is how far a task is, in words.
func soFar(p *cleanupv1.TaskProgress) string {
	done, rate := p.GetRowsDeleted()+p.GetRowsUpdated(), p.GetRowsPerSecond()
	text := fmt.Sprintf("%d rows so far, %.0f a second", done, rate)
	if p.RowsExpected != nil && rate >= 1 {
		left := time.Duration(float64(p.GetRowsExpected()-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", of about %d: %s left", p.GetRowsExpected(), left.Round(time.Second))
	}
	if p.GetThrottledBy() != "" {
		text += "; waiting: " + p.GetThrottledBy()
	}
	return text
}

// endBar takes the bar off the screen, for a line to come.
func (v *view) endBar() {
	if v.bar != nil {
		_ = v.bar.Clear()
		v.bar = nil
	}
}

// summary is what a task did, in words.
func summary(r *cleanupv1.TaskResult) string {
	text := stateName("TASK_STATE_", r.GetState())
	for _, count := range []struct {
		n            int64
		what, became string
	}{{r.GetRowsDeleted(), "row", "deleted"}, {r.GetRowsUpdated(), "row", "updated"}, {r.GetTablesDropped(), "table", "dropped"}} {
		switch {
		case count.n == 1:
			text += fmt.Sprintf(", 1 %s %s", count.what, count.became)
		case count.n > 1:
			text += fmt.Sprintf(", %d %ss %s", count.n, count.what, count.became)
		}
	}
	if r.GetError() != "" {
		text += ": " + r.GetError()
	}
	return text
}

// printResults is the table at the end of a run.
func printResults(w io.Writer, r *cleanupv1.Run) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nTASK\tSTATE\tDELETED\tUPDATED\tDROPPED\tBATCHES\tTOOK")
	for _, t := range r.GetResults() {
		took := ""
		if t.GetEndTime() != nil {
			took = t.GetEndTime().AsTime().Sub(t.GetStartTime().AsTime()).Round(time.Millisecond).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", t.GetTask(), stateName("TASK_STATE_", t.GetState()),
			t.GetRowsDeleted(), t.GetRowsUpdated(), t.GetTablesDropped(), t.GetBatches(), took)
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

// tablesShown is of how many tables the size is shown.
const tablesShown = 10

// printSpace shows the size of the tables that a run emptied most, before its first task on them and after its last.
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
