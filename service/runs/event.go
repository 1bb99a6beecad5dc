package runs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// Kind is what happened.
type Kind string

// Kinds of events.
const (
	RunStarted   Kind = "run_started"
	TaskStarted  Kind = "task_started"
	TaskProgress Kind = "task_progress"
	TaskFinished Kind = "task_finished"
	LogLine      Kind = "log"
	RunFinished  Kind = "run_finished"
)

// Event is something that happened in a run. Which fields are set depends on its kind.
type Event struct {
	RunID string `json:"-"`
	Place `json:"-"`
	Time  time.Time `json:"-"`

	Kind     Kind           `json:"Kind"`
	Run      *Run           `json:"Run,omitempty"`      // run_started, run_finished
	Task     string         `json:"Task,omitempty"`     // task_started, task_progress, log
	Position int            `json:"Position,omitempty"` // task_started
	Count    int            `json:"Count,omitempty"`    // task_started
	Progress *Progress      `json:"Progress,omitempty"` // task_progress
	Result   *Result        `json:"Result,omitempty"`   // task_finished
	Level    severity.Level `json:"Level,omitempty"`    // log
	Message  string         `json:"Message,omitempty"`  // log

	once *once // of the event as it was read
}

// Place is where an event is in its run's log. If the log is replaced by that of another history of the database, there
// may be another event with the same sequence, but not with the same generation too.
type Place struct {
	Sequence int64
	// the epoch in which the event was written; 0: unknown, or an earlier version of this service wrote it
	Generation int64
}

// once is a value that is made from an event when it is first needed.
type once struct {
	sync.Once
	made any
	err  error
}

// Once returns what make makes of the event. make is called once for all who share one reading of the event.
func (e Event) Once(make func() (any, error)) (any, error) {
	e.once.Do(func() { e.once.made, e.once.err = make() })
	return e.once.made, e.once.err
}

// Progress is how far a task is.
type Progress struct {
	Object        string  `json:"Object"`
	RowsDeleted   int64   `json:"RowsDeleted"`
	RowsUpdated   int64   `json:"RowsUpdated"`
	TablesDropped int64   `json:"TablesDropped"`
	Batches       int64   `json:"Batches"`
	RowsExpected  *int64  `json:"RowsExpected"`
	RowsPerSecond float64 `json:"RowsPerSecond"`
	Way           string  `json:"Way,omitempty"`         // how the rows of Object are found
	ThrottledBy   string  `json:"ThrottledBy,omitempty"` // why the next batch waits; empty: it does not
}

// channel is where every replica listens: the payload is a run's id and its newest sequence, or 0 if the run waits to
// be claimed.
const channel = "cleanupd"

func notify(ctx context.Context, tx pgx.Tx, runID string, sequence int64) error {
	_, err := tx.Exec(ctx, "SELECT pg_notify($1, $2)", channel, fmt.Sprintf("%s %d", runID, sequence))
	return err
}

// appendEvents writes events to a run's log, if the run is still held in this epoch; otherwise it fails with
// pipeline.ErrLost. The run's row stays locked until the transaction ends, so that sequences are committed in order.
func appendEvents(ctx context.Context, tx pgx.Tx, runID string, epoch int64, events ...Event) error {
	tag, err := tx.Exec(ctx, `
		WITH run AS (UPDATE cleanupd.run SET last_sequence = last_sequence + cardinality($3::jsonb[]) WHERE `+held+`
			RETURNING last_sequence),
		written AS (INSERT INTO cleanupd.event (run_id, sequence, generation, body)
			SELECT $1::text::uuid, last_sequence - cardinality($3::jsonb[]) + place, $2, body
				FROM run, unnest($3::jsonb[]) WITH ORDINALITY AS e (body, place))
		SELECT FROM run, pg_notify($4, concat_ws(' ', $1::text, last_sequence))`, runID, epoch, events, channel)
	if err == nil && tag.RowsAffected() == 0 {
		return errFenced
	}
	return err
}
