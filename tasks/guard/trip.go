package guard

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/refused"
)

// Trip is a guard that trips.
type Trip struct {
	Guard Name `json:"Guard"`
	// Table is the quoted name of a table with its schema, or the mask of the names of work tables.
	Table string `json:"Table"`
	// Number is how many rows, tables or bytes would be deleted, and Limit how many may be. A run stops counting at one
	// more than the limit.
	Number int64 `json:"Number"`
	Limit  int64 `json:"Most"`
}

// is reports whether the trip is that of a guard for a table.
func (t Trip) is(name Name, table string) bool { return t.Guard == name && t.Table == table }

func (t Trip) String() string {
	number, limit := fmt.Sprintf("%s of %s: %d", t.Guard, t.Table, t.Number), t.Limit
	switch t.Guard {
	case Share:
		return fmt.Sprintf("%s rows would be deleted within a day, and %d may", number, limit)
	case Cutoff:
		return fmt.Sprintf(
			"%s rows would be deleted because a cutoff moved by more than the time that passed, and %d may",
			number,
			limit,
		)
	case Growth:
		return fmt.Sprintf(
			"%s rows would be deleted by a rule without a delay, and compared with earlier runs %d may", number, limit,
		)
	case Tables:
		return fmt.Sprintf("%s tables would be dropped, and %d may", number, limit)
	}
	return fmt.Sprintf("%s bytes of tables would be dropped, and %d may", number, limit)
}

// TrippedError is the refusal of a task by the guards that tripped.
type TrippedError struct {
	Trips   []Trip
	refusal *refused.Error
}

func (e *TrippedError) Error() string { return e.refusal.Message }

// Unwrap returns the refusal as a *refused.Error.
func (e *TrippedError) Unwrap() error { return e.refusal }

// Refuse returns a TrippedError, or nil without trips.
func Refuse(trips []Trip) error {
	if len(trips) == 0 {
		return nil
	}
	var texts []string
	for _, t := range trips {
		texts = append(texts, t.String())
	}
	all, first := strings.Join(texts, "; "), trips[0]
	return &TrippedError{trips, &refused.Error{
		Reason: refused.Guard,
		Metadata: map[string]string{
			"guard":  string(first.Guard),
			"table":  first.Table,
			"number": fmt.Sprint(first.Number),
			"limit":  fmt.Sprint(first.Limit),
			"guards": all,
		},
		Message: "this is unusual: " + all + ". Nothing of it is done until a plan runs that accepts it",
	}}
}
