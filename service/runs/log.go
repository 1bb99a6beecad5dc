package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// errReplaced says that the stored log does not have an event that it had.
var errReplaced = errors.New("the log was replaced")

// LogReplaced is the reason of a ReplacedError.
const LogReplaced = "LOG_REPLACED"

// ReplacedError says that a watcher was sent events that the stored log does not have.
type ReplacedError struct {
	RunID string
	// of the last event that the watcher was sent and that is still there; 0: none, or it can not be told
	AfterSequence int64
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf(
		"the run's log no longer has the events after %d that were sent, as after a failover to a standby that "+
			"lagged: watch it again with after_sequence %[1]d",
		e.AfterSequence,
	)
}

// Kind implements failure.Kinded.
func (*ReplacedError) Kind() failure.Kind { return failure.DataLoss }

// Info implements failure.Informed.
func (e *ReplacedError) Info() (reason string, metadata map[string]string) {
	return LogReplaced, map[string]string{
		"run_id":         e.RunID,
		"after_sequence": strconv.FormatInt(e.AfterSequence, 10),
	}
}

// readLog reads a page of a run's events after a place, and that place with its generation. It fails with ErrNotFound
// if there is no such run, and with errReplaced if there is no such place in its log.
func readLog(ctx context.Context, db campaign.Querier, runID string, after Place, limit int) (Place, []Event, error) {
	rows, err := db.Query(
		ctx,
		`SELECT COALESCE(sequence, 0), COALESCE(generation, 0), COALESCE(time, create_time), body FROM cleanupd.run
			LEFT JOIN LATERAL
		(SELECT sequence, generation, time, CASE WHEN sequence > $2 THEN body END AS body FROM cleanupd.event
			WHERE run_id = id AND sequence >= $2 ORDER BY sequence LIMIT $3) AS page ON true
		WHERE id = $1::text::uuid ORDER BY sequence`,
		runID,
		after.Sequence,
		int64(limit)+min(after.Sequence, 1),
	)
	if err != nil {
		return after, nil, err
	}
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		var (
			at   Place
			when time.Time
			body []byte
			e    Event
		)
		if err := row.Scan(&at.Sequence, &at.Generation, &when, &body); err != nil || body == nil {
			return Event{Place: at}, err
		}
		err := json.Unmarshal(body, &e)
		e.RunID, e.Place, e.Time, e.once = runID, at, when, &once{}
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
		return after, nil, errReplaced
	}
	return at, page[1:], nil
}

// trail is what a watcher has been sent: the last event of each generation, the oldest first.
type trail []Place

func (t trail) last() Place { return t[len(t)-1] }

func (t *trail) add(p Place) {
	if t.last().Generation == p.Generation {
		(*t)[len(*t)-1] = p
	} else {
		*t = append(*t, p)
	}
}

// compare fails with a ReplacedError if the stored log does not have all of a trail, and with ErrNotFound if there is
// no such run. Logs that share an event share all events before.
func (t trail) compare(ctx context.Context, db campaign.Querier, runID string) error {
	var sequences, generations []int64
	for _, p := range t {
		sequences, generations = append(sequences, p.Sequence), append(generations, p.Generation)
	}
	var shared int64
	err := db.QueryRow(ctx, `SELECT COALESCE((SELECT max(e.sequence) FROM cleanupd.event AS e
		JOIN unnest($2::bigint[], $3::bigint[]) AS sent (sequence, generation)
		ON e.generation = sent.generation AND e.generation > 0 AND e.sequence <= sent.sequence WHERE run_id = id), 0)
			FROM cleanupd.run WHERE id = $1::text::uuid`,
		runID, sequences, generations).
		Scan(&shared)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case err == nil && shared < t.last().Sequence:
		return &ReplacedError{runID, shared}
	}
	return err
}
