package notify

import (
	"net/url"
	"strings"
	"time"

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
	Tasks          []Task     `json:"tasks,omitempty"` // the tasks that the event is about
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
