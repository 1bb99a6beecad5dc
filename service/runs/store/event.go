package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type Kind string

const (
	RunStarted   Kind = "run_started"
	TaskStarted  Kind = "task_started"
	TaskProgress Kind = "task_progress"
	TaskFinished Kind = "task_finished"
	LogLine      Kind = "log"
	RunFinished  Kind = "run_finished"
)

// Event is something that happened in a run. Its kind decides which fields are set.
type Event struct {
	RunID string `json:"-"`
	Place `json:"-"`
	Time  time.Time `json:"-"`

	Kind     Kind             `json:"Kind"`
	Run      *Run             `json:"Run,omitempty"`      // run_started, run_finished
	Task     string           `json:"Task,omitempty"`     // task_started, task_progress, log
	Position int              `json:"Position,omitempty"` // task_started
	Count    int              `json:"Count,omitempty"`    // task_started
	Progress *Progress        `json:"Progress,omitempty"` // task_progress
	Result   *Result          `json:"Result,omitempty"`   // task_finished
	Level    message.Severity `json:"Level,omitempty"`    // log
	Message  string           `json:"Message,omitempty"`  // log
	// Code and Params are those of the message of a log event.
	Code   string            `json:"Code,omitempty"`
	Params map[string]string `json:"Params,omitempty"`

	derived *derived // shared by all copies of an event that was read
}

// LogEvent returns a log event; task is "" if the message concerns the whole run.
func LogEvent(task string, m message.Message) Event {
	return Event{Kind: LogLine, Level: m.Level, Task: task, Message: m.Text, Code: m.Code, Params: m.Params}
}

// Place is the position of an event in the log of its run. After a restore or failover the log may have another
// event with the same sequence, but that one has another generation.
type Place struct {
	Sequence int64
	// Generation is the epoch in which the event was written; 0 if unknown.
	Generation int64
}

// derived is a value that is computed from an event when it is first needed.
type derived struct {
	sync.Once
	value any
	err   error
}

// Once calls derive only once for all copies of an event that was read, and returns the result to every caller.
func (e Event) Once(derive func() (any, error)) (any, error) {
	e.derived.Do(func() { e.derived.value, e.derived.err = derive() })
	return e.derived.value, e.derived.err
}

type Progress struct {
	Object            string  `json:"Object"`
	RowsDeleted       int64   `json:"RowsDeleted"`
	RowsUpdated       int64   `json:"RowsUpdated"`
	RowsCascaded      int64   `json:"RowsCascaded,omitempty"`
	RowsRestored      int64   `json:"RowsRestored,omitempty"`
	TablesDropped     int64   `json:"TablesDropped"`
	PartitionsRemoved int64   `json:"PartitionsRemoved,omitempty"`
	Batches           int64   `json:"Batches"`
	RowsExpected      *int64  `json:"RowsExpected"`
	RowsPerSecond     float64 `json:"RowsPerSecond"`
	// Scan and Throttle are stored as text.
	Scan     purge.Scan     `json:"Scan,omitzero"`
	Throttle purge.Throttle `json:"Throttle,omitzero"`
	Pace     pace.Pace      `json:"Pace,omitempty"`
}

// Done is the number of rows to compare with RowsExpected.
func (p Progress) Done() int64 { return p.RowsDeleted + p.RowsUpdated + p.RowsRestored }

// Channel carries the notifications that a run has new events, or waits to be claimed.
const Channel = "cleanupd"

func NotifyWaiting(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(ctx, "SELECT pg_notify($1, $2)", Channel, fmt.Sprintf("%s 0", id))
	return err
}

// ParseNotification reads the payload of a notification; waiting means that the run waits to be claimed.
func ParseNotification(payload string) (id uuid.UUID, waiting bool) {
	text, sequence, _ := strings.Cut(payload, " ")
	id, _ = uuid.Parse(text)
	return id, sequence == "0"
}

// AppendEvents stores events and notifies the replicas. It fails with ErrFenced if the epoch has ended. The row of
// the run stays locked until the transaction ends, so that sequences are committed in order.
func AppendEvents(ctx context.Context, tx pgx.Tx, e Epoch, events ...Event) error {
	return fencedIfNone(tx.Exec(
		ctx,
		`WITH run AS (UPDATE cleanupd.run SET last_sequence = last_sequence + cardinality(@events::jsonb[])
			WHERE `+inEpoch+` RETURNING last_sequence),
		written AS (INSERT INTO cleanupd.event (run_id, sequence, generation, body)
			SELECT @run_id::uuid, last_sequence - cardinality(@events::jsonb[]) + place, @epoch, body
				FROM run, unnest(@events::jsonb[]) WITH ORDINALITY AS e (body, place))
		SELECT FROM run, pg_notify(@channel, concat_ws(' ', @run_id::uuid, last_sequence))`,
		e.args(pgx.StrictNamedArgs{"events": events, "channel": Channel}),
	))
}

// ErrNoPlace says that the log of the run has no event at the requested place.
var ErrNoPlace = errors.New("the log was replaced")

// ReadEvents returns up to limit events that follow the place after, and that place with its generation filled in.
// It fails with ErrNotFound or ErrNoPlace.
func ReadEvents(
	ctx context.Context, db campaign.Querier, id uuid.UUID, after Place, limit int,
) (Place, []Event, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT COALESCE(sequence, 0), COALESCE(generation, 0), COALESCE(time, create_time), body FROM cleanupd.run
			LEFT JOIN LATERAL
		(SELECT sequence, generation, time, CASE WHEN sequence > $2 THEN body END AS body FROM cleanupd.event
			WHERE run_id = id AND sequence >= $2 ORDER BY sequence LIMIT $3) AS page ON true
		WHERE id = $1 ORDER BY sequence`,
		id, after.Sequence, int64(limit)+min(after.Sequence, 1),
	)
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		var (
			at   Place
			when time.Time
			body json.RawMessage
			e    Event
		)
		if err := row.Scan(&at.Sequence, &at.Generation, &when, &body); err != nil || body == nil {
			return Event{Place: at}, err
		}
		err := json.Unmarshal(body, &e)
		e.RunID, e.Place, e.Time, e.derived = id.String(), at, when, &derived{}
		return e, err
	})
	switch {
	case err != nil:
		return after, nil, err
	case len(page) == 0:
		return after, nil, ErrNotFound
	case after.Sequence == 0 && page[0].Sequence > 0:
		return after, page, nil
	}
	at := page[0].Place
	if at.Sequence != after.Sequence || (after.Generation != 0 && at.Generation != after.Generation) {
		return after, nil, ErrNoPlace
	}
	return at, page[1:], nil
}

// SharedSequence compares the log of a run with another history of it, and returns the sequence of the last event
// that both have; 0 if there is none or it is unknown. places holds the last event of each generation in that other
// history. That is enough, because logs that share an event share all events before it. It fails with ErrNotFound.
func SharedSequence(ctx context.Context, db campaign.Querier, id uuid.UUID, places []Place) (shared int64, err error) {
	var sequences, generations []int64
	for _, p := range places {
		sequences, generations = append(sequences, p.Sequence), append(generations, p.Generation)
	}
	err = db.QueryRow(ctx, `SELECT COALESCE((SELECT max(e.sequence) FROM cleanupd.event AS e
		JOIN unnest($2::bigint[], $3::bigint[]) AS sent (sequence, generation)
		ON e.generation = sent.generation AND e.generation > 0 AND e.sequence <= sent.sequence WHERE run_id = id), 0)
			FROM cleanupd.run WHERE id = $1`, id, sequences, generations).
		Scan(&shared)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return shared, err
}
