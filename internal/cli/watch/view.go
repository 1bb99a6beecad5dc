package watch

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// show prints a run's events as they come. Its error is how the stream ended.
func (f *Run) Print(v Printer) error {
	for {
		event, err := f.next()
		for why := f.resumable(err); why != ""; why = f.resumable(err) {
			if err := v.Note(why); err != nil {
				return err
			}
			if event, err = f.resume(err); status.Code(err) == codes.Unavailable {
				break
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			_ = v.Clear() // the end of the stream says more
			return err
		}
		if err := v.Event(event); err != nil {
			return err
		}
	}
}

// viewer prints the events of a run.
type Printer interface {
	Event(e *cleanupv1.RunEvent) error
	Note(text string) error // about the watching itself
	Clear() error           // of the events, before the last one
}

// plainEvery is how often progress is printed where it can't be drawn again.
const progressInterval = 5 * time.Second

// view prints a run for people: a line per task, below it progress, and tables at the end.
type View struct {
	*terminal.Screen
	dryRun        bool
	startTime     time.Time
	started       *cleanupv1.TaskStarted
	rows          int64 // deleted and updated by the tasks that have finished
	progressDrawn bool  // progress is on the last two lines
	progressTime  time.Time
}

// newView returns a printer of a run's events for people.
func NewView(s *terminal.Screen) *View { return &View{Screen: s} }

func (v *View) Event(e *cleanupv1.RunEvent) error {
	switch {
	case e.GetRunStarted() != nil:
		what := "Run %s began."
		if v.dryRun = e.GetRunStarted().GetRun().GetDryRun(); v.dryRun {
			what = "Dry run %s began: nothing is changed."
		}
		v.startTime = e.GetTime().AsTime()
		return v.Note(fmt.Sprintf(what, e.GetRunId()))
	case e.GetTaskStarted() != nil:
		v.started, v.progressTime = e.GetTaskStarted(), time.Now()
	case e.GetTaskProgress() != nil:
		return v.progress(e)
	case e.GetTaskFinished() != nil:
		r := e.GetTaskFinished().GetResult()
		v.rows += r.GetRowsDeleted() + r.GetRowsUpdated()
		return v.Note(v.taskLabel(r.GetTask()) + " " + v.Paint(format.EnumName(r.GetState())) + summary(r, v.dryRun))
	case e.GetLog() != nil && e.GetLog().GetLevel() != cleanupv1.LogLevel_LOG_LEVEL_INFO:
		return v.Note(fmt.Sprintf("        %s: %s", e.GetLog().GetTask(), e.GetLog().GetMessage()))
	case e.GetRunFinished() != nil:
		return errors.Join(v.Clear(), printResults(v.Screen, e.GetRunFinished().GetRun()))
	}
	return nil
}

// note prints a line that stays.
func (v *View) Note(line string) error {
	err := v.Clear()
	fmt.Fprintln(v, line)
	return err
}

// end erases the progress from the screen.
func (v *View) Clear() (err error) {
	if v.progressDrawn {
		_, err = io.WriteString(v, "\r\x1b[K\x1b[A\x1b[K")
		v.progressDrawn = false
	}
	return err
}

// label is the beginning of a task's line.
func (v *View) taskLabel(task string) string {
	return fmt.Sprintf("[%2d/%d] %-20s", v.started.GetPosition(), v.started.GetTaskCount(), task)
}

// progress shows how far the task is, and the run: on a terminal in place of the last progress, otherwise every
// plainEvery.
func (v *View) progress(e *cleanupv1.RunEvent) error {
	p := e.GetTaskProgress()
	if v.Moves {
		share := completed(p)
		tasks := max(v.started.GetTaskCount(), 1)
		run := (float64(max(v.started.GetPosition(), 1)-1) + share) / float64(tasks)
		all := fmt.Sprintf(
			"%.0f %%, %s, %s",
			100*run,
			format.Rows(v.rows+p.GetRowsDeleted()+p.GetRowsUpdated()),
			format.Duration(e.GetTime().AsTime().Sub(v.startTime)),
		)
		err := v.Clear()
		v.progressDrawn = true
		_, drawing := fmt.Fprintf(
			v,
			"%s\n%s",
			v.truncate(v.taskLabel(p.GetTask())+v.bar(share)+describeProgress(p)),
			v.truncate(fmt.Sprintf("%-28s%s%s", "the run", v.bar(run), all)),
		)
		return errors.Join(err, drawing)
	}
	if time.Since(v.progressTime) < progressInterval {
		return nil
	}
	v.progressTime = time.Now()
	return v.Note(v.taskLabel(p.GetTask()) + " " + describeProgress(p))
}

// bar is a bar of which a share is full; it takes a fifth of the screen.
func (v *View) bar(share float64) string {
	width := min(max(v.Width()/5-4, 2), 30)
	full := int(share * float64(width))
	return " [" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "] "
}

// cut shortens a line to what the screen has room for.
func (v *View) truncate(line string) string { return text.Trim(line, max(v.Width()-1, 0)) }

// ratio is how much of a task is done, from 0 to 1, as far as it's known.
func completed(p *cleanupv1.TaskProgress) float64 {
	if p.GetRowsExpected() <= 0 {
		return 0
	}
	return min(1, float64(p.GetRowsDeleted()+p.GetRowsUpdated())/float64(p.GetRowsExpected()))
}

// soFar describes how far a task is, the most important first.
func describeProgress(p *cleanupv1.TaskProgress) string {
	done, rate := p.GetRowsDeleted()+p.GetRowsUpdated(), p.GetRowsPerSecond()
	var parts []string
	if expected := p.GetRowsExpected(); expected > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*completed(p)))
		if rate >= 1 && done < expected {
			parts = append(parts, remainingTime(time.Duration(float64(expected-done)/rate*float64(time.Second)))+" left")
		}
	}
	if p.GetThrottledBy() != "" {
		parts = append(parts, "waiting: "+p.GetThrottledBy())
	}
	if done > 0 {
		parts = append(parts, fmt.Sprintf("%s, %s a second", format.Rows(done), humanize.Comma(int64(rate))))
	}
	return strings.Join(append(parts, p.GetObject()), ", ")
}

// whole is a time to come, in seconds: it's not known better.
func remainingTime(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", math.Ceil(d.Seconds()))
	}
	return d.Round(time.Second).String()
}

// summary describes what a task did, or would do; empty: nothing.
func summary(r *cleanupv1.TaskResult, dry bool) (text string) {
	for _, count := range []struct {
		n                 int64
		one, many, became string
	}{
		{r.GetRowsDeleted(), "row", "rows", "deleted"},
		{r.GetRowsUpdated(), "row", "rows", "updated"},
		{r.GetTablesDropped(), "table", "tables", "dropped"},
		{r.GetRemoteDeliveriesLeft(), "delivery", "deliveries", "left on mid-sourcing servers"},
	} {
		if dry {
			count.became = "would be " + count.became
		}
		if count.n > 0 {
			text += ", " + format.Count(count.n, count.one, count.many) + " " + count.became
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
