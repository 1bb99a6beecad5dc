package watch

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// progressInterval is the time between two lines of progress on a screen that cannot redraw lines.
const progressInterval = 5 * time.Second

// View prints events for people: a line for each task, progress below it, and tables at the end.
type View struct {
	*terminal.Screen
	server        *rpc.Server // nil in the demo
	all           bool        // whether tables have no limit
	dryRun        bool
	startTime     time.Time
	task          *cleanupv1.TaskStarted // the current task
	rows          int64                  // rows deleted and updated by the tasks that have finished
	progressDrawn bool                   // whether progress is drawn on the last two lines
	progressTime  time.Time              // when progress was printed last
	removed       PartitionLog
	lastInfo      string // the last message of the current task that was not printed
	// WithErrors is set if the command's error is printed to the same place: it need not repeat the errors of tasks.
	WithErrors bool
	errors     []string // those of tasks that were printed, as the run's error has them
}

// NewView returns a view; with all, it prints tables in full length.
func NewView(s *terminal.Screen, server *rpc.Server, all bool) *View {
	return &View{Screen: s, server: server, all: all, removed: PartitionLog{}}
}

func (v *View) Event(e *cleanupv1.RunEvent) error {
	switch {
	case e.GetRunStarted() != nil:
		v.startTime = e.GetTime().AsTime()
		switch v.dryRun = e.GetRunStarted().GetRun().GetDryRun(); {
		case e.GetRunId() == "": // it is not stored
			return nil
		case v.dryRun:
			return v.Note(fmt.Sprintf("Dry run %s started: nothing is changed.", e.GetRunId()))
		}
		return v.Note(fmt.Sprintf("Run %s started.", e.GetRunId()))
	case e.GetTaskStarted() != nil:
		v.task, v.progressTime, v.lastInfo = e.GetTaskStarted(), time.Now(), ""
	case e.GetTaskProgress() != nil:
		return v.progress(e)
	case e.GetTaskFinished() != nil:
		r := e.GetTaskFinished().GetResult()
		v.rows += rowsOf(r)
		v.errors = append(v.errors, fmt.Sprintf("task %s failed: %s", r.GetTask(), r.GetError()))
		text := spellOut(v.server, r.GetTask(), summary(r, v.dryRun, estimatesOf(r), v.removed[r.GetTask()]))
		if text == "" && r.GetState() == cleanupv1.TaskState_TASK_STATE_SKIPPED && v.lastInfo != "" {
			text = "; " + terminal.OneLine(v.lastInfo)
		}
		return v.Note(v.taskLabel(r.GetTask()) + " " + v.Paint(format.EnumName(r.GetState())) + text)
	case v.removed.add(e.GetLog()):
	case e.GetLog() != nil && (e.GetLog().GetLevel() != cleanupv1.LogLevel_LOG_LEVEL_INFO ||
		slices.Contains(changes, e.GetLog().GetCode())):
		task := e.GetLog().GetTask()
		if task != "" {
			task += ": "
		}
		return v.Note("        " + task + e.GetLog().GetMessage())
	case e.GetLog() != nil:
		v.lastInfo = e.GetLog().GetMessage()
	case e.GetRunFinished() != nil:
		return errors.Join(v.Clear(), printResults(v.Screen, e.GetRunFinished().GetRun(), v.server, v.all,
			v.removed))
	}
	return nil
}

func (v *View) Note(line string) error {
	err := v.Clear()
	fmt.Fprintln(v, v.Wrap(line, noteIndent))
	return err
}

// changes are messages about changes to the run itself, which explain why it pauses or is slower.
var changes = []string{
	message.RunPaused.Code, message.RunAwaitsWindow.Code, message.RunOvertaken.Code, message.RunContinued.Code,
	message.PaceChanged.Code,
}

// fates are messages about one partition, with what became of it.
var fates = map[string]string{message.PartitionDropped.Code: "dropped", message.PartitionDetached.Code: "detached"}

// noteIndent is the column where the text of a task's line begins.
const noteIndent = 8

func (v *View) Clear() (err error) {
	if v.progressDrawn {
		_, err = io.WriteString(v, "\r\x1b[K\x1b[A\x1b[K")
		v.progressDrawn = false
	}
	return err
}

func (v *View) taskLabel(task string) string {
	return fmt.Sprintf("[%2d/%d] %-20s", v.task.GetPosition(), v.task.GetTaskCount(), task)
}

// progress draws over the last progress on a terminal, and prints a line every progressInterval elsewhere.
func (v *View) progress(e *cleanupv1.RunEvent) error {
	p := e.GetTaskProgress()
	if v.Moves {
		share := completedShare(p)
		tasks := max(v.task.GetTaskCount(), 1)
		run := (float64(max(v.task.GetPosition(), 1)-1) + share) / float64(tasks)
		total := fmt.Sprintf("%.0f %%, %s, %s", 100*run, format.Rows(v.rows+rowsOf(p)),
			format.Duration(e.GetTime().AsTime().Sub(v.startTime)))
		err := v.Clear()
		v.progressDrawn = true
		_, drawErr := fmt.Fprintf(v, "%s\n%s", v.truncate(v.taskLabel(p.GetTask())+v.bar(share)+describeProgress(p)),
			v.truncate(fmt.Sprintf("%-28s%s%s", "the run", v.bar(run), total)))
		return errors.Join(err, drawErr)
	}
	if time.Since(v.progressTime) < progressInterval {
		return nil
	}
	v.progressTime = time.Now()
	text := describeProgress(p)
	switch text {
	case "":
		text = "working"
	case p.GetObject():
		text = "working on " + text
	}
	return v.Note(v.taskLabel(p.GetTask()) + " " + text)
}

func (v *View) bar(share float64) string {
	width := min(max(v.Width()/5-4, 2), 30)
	full := int(share * float64(width))
	return " [" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "] "
}

func (v *View) truncate(line string) string { return text.Trim(line, max(v.Width()-1, 0)) }

// rowCounts is the progress of a task, or its result.
type rowCounts interface {
	GetRowsDeleted() int64
	GetRowsUpdated() int64
	GetRowsRestored() int64
}

func rowsOf(counts rowCounts) int64 {
	return counts.GetRowsDeleted() + counts.GetRowsUpdated() + counts.GetRowsRestored()
}

// completedShare is from 0 to 1; it is 0 if unknown.
func completedShare(p *cleanupv1.TaskProgress) float64 {
	if p.GetRowsExpected() <= 0 {
		return 0
	}
	return min(1, float64(rowsOf(p))/float64(p.GetRowsExpected()))
}

// describeProgress begins with the most important figures, since a narrow screen cuts the text.
func describeProgress(p *cleanupv1.TaskProgress) string {
	done, rate := rowsOf(p), p.GetRowsPerSecond()
	var parts []string
	if expected := p.GetRowsExpected(); expected > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*completedShare(p)))
		if rate >= 1 && done < expected {
			remaining := time.Duration(float64(expected-done) / rate * float64(time.Second))
			parts = append(parts, inSeconds(remaining)+" left")
		}
	}
	if t := p.GetThrottledBy(); t != nil {
		parts = append(parts, "waiting: "+describeThrottle(t))
	}
	if done > 0 {
		parts = append(parts, fmt.Sprintf("%s, %s a second", format.Rows(done), humanize.Comma(int64(rate))))
	}
	if p.GetObject() != "" {
		parts = append(parts, p.GetObject())
	}
	return strings.Join(parts, ", ")
}

func describeThrottle(t *cleanupv1.Throttle) string {
	if t.GetDetail() == "" {
		return format.EnumName(t.GetReason())
	}
	return format.EnumName(t.GetReason()) + ": " + t.GetDetail()
}

// inSeconds rounds to seconds, since an estimate is not more precise.
func inSeconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", math.Ceil(d.Seconds()))
	}
	return d.Round(time.Second).String()
}

// summary puts a comma before each part; it returns "" if the task did nothing.
func summary(r *cleanupv1.TaskResult, dryRun bool, e estimates, log *removed) (text string) {
	for _, count := range []struct {
		n                 int64
		one, many, action string
		estimate          bool
	}{
		{r.GetRowsDeleted(), "row", "rows", "deleted", e.deleted},
		{r.GetRowsCascaded(), "row", "rows", "deleted by foreign keys", e.deleted},
		{r.GetRowsUpdated(), "row", "rows", "updated", e.updated},
		{r.GetRowsRestored(), "row", "rows", "restored", false},
		{r.GetTablesDropped(), "table", "tables", "dropped", false},
		{r.GetPartitionsRemoved(), "partition", "partitions", fateOfPartitions(r, log), false},
		{r.GetRemoteDeliveriesRetained(), "delivery", "deliveries", "retained on mid-sourcing servers", false},
	} {
		if dryRun {
			count.action = "would be " + count.action
		}
		if count.n > 0 {
			text += ", "
			if count.estimate {
				text += "about "
			}
			text += format.Count(count.n, count.one, count.many) + " " + count.action
		}
	}
	if r.GetDetail() != "" {
		text += "; " + r.GetDetail()
	}
	if r.GetError() != "" {
		text += ": " + terminal.OneLine(r.GetError())
	}
	return text
}
