package notify

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/cleanupd/cleanupd/internal/storedtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

func TestStored(t *testing.T) { storedtest.Check[Event](t, "event") }

var ended = time.Date(2026, 3, 1, 4, 10, 0, 0, time.FixedZone("", 3600))

func failedRun(task, failure string) *store.Run {
	return &store.Run{
		ID:          "01a20609-283b-755d-90ec-99cde01f104d",
		State:       store.Failed,
		RequestedBy: "schedule",
		EndTime:     &ended,
		Error:       failure,
		Results:     []store.Result{{Task: task, State: cleanup.Failed, Error: failure, RowsDeleted: 7, RowsRetained: 3}},
	}
}

func eventOf(o Origin, run *store.Run, before ...string) Event {
	return o.runEvent(run, judge(run, before, DefaultBounds)[0])
}

// The texts say what happened, where, and which command shows more.
func TestTexts(t *testing.T) {
	t.Parallel()
	e := eventOf(Origin{"campaign", "db.example", "prod"}, failedRun("audit-trail", "not this one"))
	if e.SpecVersion != "1.0" || e.ID != "01a20609-283b-755d-90ec-99cde01f104d/run.failed" ||
		e.Source != "/cleanupd/prod/campaign" || e.Type != "io.github.cleanupd.run.failed" ||
		e.Subject != "runs/01a20609-283b-755d-90ec-99cde01f104d" || !e.Time.Equal(ended) {
		t.Errorf("got %+v", e)
	}
	const want = `The cleanup run failed in the database "campaign" on db.example (instance "prod").

Run 01a20609-283b-755d-90ec-99cde01f104d, requested by "schedule", ended at 2026-03-01 03:10:00 UTC.
Task audit-trail: not this one

What was deleted is deleted, and the next run continues. The log of the run has the reason and the remedy.

To see more:

    cleanupd runs show 01a20609-283b-755d-90ec-99cde01f104d`
	if e.Data.Description != want {
		t.Errorf("got %s", e.Data.Description)
	}
	if r := e.Data.Run; r.RowsDeleted != 7 || r.RowsRetained != 3 || r.Tasks[0].Error != "not this one" {
		t.Errorf("got %+v", r)
	}
	missed := Origin{Database: "campaign"}.missedEvent(ended, ended.Add(time.Hour))
	if missed.ID != "schedule/2026-03-01T03:10:00Z/schedule.missed" || missed.Source != "/cleanupd/campaign" ||
		!strings.Contains(missed.Data.Description, "due at 2026-03-01 03:10:00 UTC") ||
		missed.Data.Command != "cleanupd schedule" {
		t.Errorf("got %+v", missed)
	}
}

// Each cause has a text.
func TestEachCauseHasWords(t *testing.T) {
	t.Parallel()
	for _, cause := range []Cause{RunFailed, GuardRefused, RowsRetained, RunRecovered, ScheduleMissed, TestRequested} {
		if w := wordsOf[cause]; w.happened == "" || w.remedy == "" || (w.command == "" && cause != TestRequested) {
			t.Errorf("%s: got %+v", cause, w)
		}
	}
}

// Names and errors from outside add no lines, control characters or long texts to an event.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	const hostile = "x\r\nBcc: all@example.com\x00\x1b[2J\u202e\xff"
	run := failedRun(hostile, strings.Repeat(hostile, 1000))
	run.RequestedBy = hostile
	e := eventOf(Origin{hostile, hostile, hostile}, run)
	for _, text := range []string{
		e.Data.Summary, e.Data.Database, e.Data.Host, e.Data.Instance, e.Data.Run.RequestedBy, e.Data.Run.Error,
		e.Data.Run.Tasks[0].Task, e.Data.Run.Tasks[0].Error, e.Source,
	} {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("got %q", text)
		}
		if len(text) > maxText+10 {
			t.Errorf("got a text of %d bytes", len(text))
		}
	}
	if lines := strings.Count(e.Data.Description, "\n"); lines != 9 {
		t.Errorf("got %d lines: %s", lines+1, e.Data.Description)
	}
	body, err := json.Marshal(e)
	if err != nil || strings.Contains(string(body), `\u0000`) {
		t.Errorf("got %v %s", err, body)
	}
}
