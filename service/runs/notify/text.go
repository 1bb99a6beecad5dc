package notify

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// words are the texts about a cause. %s in the command is the id of the run.
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
