package guard

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/cleanupd/cleanupd/internal/failure"
)

type Trip struct {
	Guard Name `json:"Guard"`
	// Table is the quoted name of a table with its schema, or the pattern of the names of work tables.
	Table string `json:"Table"`
	// Number is how many rows, tables or bytes would be deleted, and Limit is how many may be. AtLeast is set if there may
	// be more, since a run stops counting when it knows that there are too many.
	Number  int64 `json:"Number"`
	Limit   int64 `json:"Limit"`
	AtLeast bool  `json:"AtLeast,omitempty"`
	// Recent is how many of the rows earlier tasks and runs within SharePeriod deleted, without runs in which the guard
	// was accepted. Total is about how many rows
	// the table had before them. Both are 0 for guards other than Share, and for a guard that has refused before.
	Recent int64 `json:"Recent,omitempty" db:"-"`
	Total  int64 `json:"Total,omitempty"  db:"-"`
}

func (t Trip) is(name Name, table string) bool { return t.Guard == name && t.Table == table }

func (t Trip) String() string {
	if t.Guard == Policy { // any row trips it
		return fmt.Sprintf("%s of %s: this rule has never run", t.Guard, t.Table)
	}
	what := map[Name]string{
		Share:  "rows would be deleted within a day",
		Cutoff: "rows would be deleted because a cutoff moved by more than the time that passed",
		Growth: "rows would be deleted by a rule without a delay, many times more than in earlier runs",
		Tables: "tables would be dropped",
		Bytes:  "bytes of tables would be dropped",
	}[t.Guard]
	if t.Recent > 0 {
		what += fmt.Sprintf(", %s of them by earlier tasks and runs, without accepted ones", humanize.Comma(t.Recent))
	}
	total := ""
	if t.Total > 0 {
		total = fmt.Sprintf(", of about %s in the table", humanize.Comma(t.Total))
	}
	number := humanize.Comma(t.Number)
	if t.AtLeast {
		number = "more than " + humanize.Comma(t.Number-1)
	}
	limit := ""
	if !t.AtLeast || t.Number != t.Limit+1 {
		limit = "; the limit is " + humanize.Comma(t.Limit)
	}
	return fmt.Sprintf("%s of %s: %s %s%s%s", t.Guard, t.Table, number, what, total, limit)
}

type TrippedError struct {
	Trips   []Trip
	refusal *failure.Refusal
}

func (e *TrippedError) Error() string { return e.refusal.Message }

func (e *TrippedError) Unwrap() error { return e.refusal }

func Refuse(trips []Trip) error {
	if len(trips) == 0 {
		return nil
	}
	var texts []string
	for _, t := range trips {
		texts = append(texts, t.String())
	}
	all, first := strings.Join(texts, "; "), trips[0]
	return &TrippedError{trips, &failure.Refusal{
		Reason: failure.ReasonGuard,
		Metadata: map[string]string{
			"guard":  string(first.Guard),
			"table":  first.Table,
			"number": fmt.Sprint(first.Number),
			"limit":  fmt.Sprint(first.Limit),
			"guards": all,
		},
		Message: "this is unusual: " + all + ". The task changes nothing until you accept this in a preview and run it: " +
			"cleanupd run --preview",
	}}
}
