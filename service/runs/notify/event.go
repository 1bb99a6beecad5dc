package notify

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

const typePrefix = "io.github.cleanupd."

// maxText is the longest text from the database in bytes.
const maxText = 1000

// Event is a CloudEvent as it is stored and sent. Its id consists of the run and the cause, or of the missed time.
// It is therefore the same in each attempt, for all targets, and if the event is created again after a failover.
type Event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            Data      `json:"data"`
}

// Data has texts that are all single printable lines, except Description.
type Data struct {
	Summary     string     `json:"summary"`
	Description string     `json:"description"`
	Command     string     `json:"command,omitempty"` // a command that shows more
	Database    string     `json:"database,omitempty"`
	Host        string     `json:"host,omitempty"`
	Instance    string     `json:"instance,omitempty"`
	Run         *Run       `json:"run,omitempty"`
	DueTime     *time.Time `json:"dueTime,omitempty"` // when the missed run of the schedule was due
}

type Run struct {
	ID             string     `json:"id"`
	State          string     `json:"state"`
	RequestedBy    string     `json:"requestedBy,omitempty"`
	StartTime      *time.Time `json:"startTime,omitempty"`
	EndTime        *time.Time `json:"endTime"`
	Error          string     `json:"error,omitempty"`
	RowsDeleted    int64      `json:"rowsDeleted"`
	RowsRetained   int64      `json:"rowsRetained"`
	TablesRetained int64      `json:"tablesRetained"`
	Tasks          []Task     `json:"tasks,omitempty"` // the tasks that caused the event
}

type Task struct {
	Task           string `json:"task"`
	State          string `json:"state"`
	Error          string `json:"error,omitempty"`
	Detail         string `json:"detail,omitempty"`
	RowsRetained   int64  `json:"rowsRetained"`
	TablesRetained int64  `json:"tablesRetained"`
}

type Origin struct {
	Database, Host, Instance string
}

func (o Origin) source() string {
	source := "/cleanupd"
	for _, part := range []string{o.Instance, o.Database} {
		if part != "" {
			source += "/" + url.PathEscape(part)
		}
	}
	return source
}

// event returns an event without a subject and without texts.
func (o Origin) event(id string, cause Cause, at time.Time) Event {
	return Event{
		SpecVersion:     "1.0",
		ID:              id + "/" + string(cause),
		Source:          o.source(),
		Type:            typePrefix + string(cause),
		Time:            at.UTC(),
		DataContentType: "application/json",
		Data: Data{
			Database: printable(o.Database),
			Host:     printable(o.Host),
			Instance: printable(o.Instance),
		},
	}
}

func (o Origin) runEvent(run *store.Run, what occurrence) Event {
	e := o.event(run.ID, what.cause, *run.EndTime)
	e.Subject = "runs/" + run.ID
	e.Data.Run = describe(run, what.tasks)
	e.write(what.cause)
	return e
}

func (o Origin) missedEvent(due, now time.Time) Event {
	e := o.event("schedule/"+missedSubject(due), ScheduleMissed, now)
	due = due.UTC()
	e.Subject, e.Data.DueTime = "schedule", &due
	e.write(ScheduleMissed)
	return e
}

func missedSubject(due time.Time) string { return due.UTC().Format(time.RFC3339Nano) }

func (o Origin) testEvent(now time.Time) Event {
	e := o.event(uuid.NewString(), TestRequested, now)
	e.write(TestRequested)
	return e
}

func describe(run *store.Run, tasks []store.Result) *Run {
	r := &Run{
		ID:          run.ID,
		State:       string(run.State),
		RequestedBy: printable(run.RequestedBy),
		StartTime:   run.StartTime,
		EndTime:     run.EndTime,
		Error:       printable(run.Error),
	}
	for _, t := range run.Results {
		r.RowsDeleted += t.RowsDeleted
		r.RowsRetained += t.RowsRetained
		r.TablesRetained += t.TablesRetained
	}
	for _, t := range tasks {
		r.Tasks = append(r.Tasks, Task{
			Task:           printable(t.Task),
			State:          string(t.State),
			Error:          printable(t.Error),
			Detail:         printable(t.Detail),
			RowsRetained:   t.RowsRetained,
			TablesRetained: t.TablesRetained,
		})
	}
	return r
}

// printable returns a single line of limited length, because anyone may have chosen names and errors.
func printable(text string) string {
	const ellipsis = "…"
	text = terminal.OneLine(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len(ellipsis)], "") + ellipsis
}

// words are the texts for a cause. %s in the command is the id of the run.
type words struct {
	happened, remedy, command string
}

const showRun = "cleanupd runs show %s"

var wordsOf = map[Cause]words{
	RunFailed: {
		"The cleanup run failed",
		"What was deleted is deleted, and the next run continues. The log of the run has the reason and the remedy.",
		showRun,
	},
	GuardRefused: {
		"A guard refused all or a part of the cleanup",
		"What was refused deleted nothing, and is refused until an administrator accepts the guard or changes it. " +
			"cleanupd guards lists what is refused; cleanupd run --preview shows what would be deleted, and asks.",
		"cleanupd guards",
	},
	RowsRetained: {
		"The cleanup run retained obsolete rows",
		"The log of the run names the first of the rows, and why they were retained: locks of others, triggers, " +
			"constraints.",
		showRun,
	},
	RunRecovered: {"The cleanup run succeeded again", "Nothing needs to be done.", showRun},
	ScheduleMissed: {
		"A scheduled cleanup run was missed",
		"Check that a replica with --schedule is running, and that it reaches the database.", "cleanupd schedule",
	},
	TestRequested: {"This is a test of notifications", "Nothing happened, and nothing needs to be done.", ""},
}

func (e *Event) write(cause Cause) {
	d, w := &e.Data, wordsOf[cause]
	d.Summary = w.happened + d.place()
	d.Command = w.command
	if d.Run != nil {
		d.Command = strings.ReplaceAll(w.command, "%s", d.Run.ID)
	}
	paragraphs := []string{d.Summary + "."}
	if lines := d.facts(cause); len(lines) > 0 {
		paragraphs = append(paragraphs, strings.Join(lines, "\n"))
	}
	paragraphs = append(paragraphs, w.remedy)
	if d.Command != "" {
		paragraphs = append(paragraphs, "To see more:\n\n    "+d.Command)
	}
	d.Description = strings.Join(paragraphs, "\n\n")
}

func (d *Data) place() (text string) {
	if d.Database != "" {
		text = fmt.Sprintf(" in the database %q", d.Database)
	}
	if d.Database != "" && d.Host != "" {
		text += " on " + d.Host
	}
	if d.Instance != "" {
		text += fmt.Sprintf(" (instance %q)", d.Instance)
	}
	return text
}

func (d *Data) facts(cause Cause) (lines []string) {
	if d.DueTime != nil {
		lines = append(lines, "A run was due at "+utc(*d.DueTime)+", and did not start within ten minutes.",
			"If a replica keeps the schedule by now, one run has started instead.")
	}
	r := d.Run
	if r == nil {
		return lines
	}
	requested := ""
	if r.RequestedBy != "" { // RequestedBy is empty without authentication
		requested = fmt.Sprintf(", requested by %q,", r.RequestedBy)
	}
	lines = append(lines, fmt.Sprintf("Run %s%s ended at %s.", r.ID, requested, utc(*r.EndTime)))
	for _, t := range r.Tasks {
		switch cause {
		case RunFailed, GuardRefused:
			lines = append(lines, fmt.Sprintf("Task %s: %s", t.Task, t.Error))
		case RowsRetained:
			lines = append(lines,
				fmt.Sprintf("Task %s: %s rows and %s tables. %s", t.Task, humanize.Comma(t.RowsRetained),
					humanize.Comma(t.TablesRetained), t.Detail))
		case RunRecovered:
			lines = append(lines, fmt.Sprintf("Task %s had failed before.", t.Task))
		}
	}
	if len(r.Tasks) == 0 { // the run failed as a whole
		lines = append(lines, "Error: "+r.Error)
	}
	return lines
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
