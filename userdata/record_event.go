package userdata

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
)

// Append adds events to the erasure. It locks the erasure's row until the transaction ends, so that events are
// committed in the order of their sequence numbers.
func (e record) appendEvents(ctx context.Context, tx pgx.Tx, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	_, err := e.exec(ctx, tx, `WITH last AS (
			UPDATE cleanupd.erasure SET last_sequence = last_sequence + cardinality($2::jsonb[])
			WHERE id = $1::text::uuid RETURNING last_sequence)
		INSERT INTO cleanupd.erasure_event (erasure_id, sequence, body)
		SELECT $1::text::uuid, last_sequence - cardinality($2::jsonb[]) + n, body
			FROM last, unnest($2::jsonb[]) WITH ORDINALITY AS b (body, n)`, events)
	return err
}

func readEvents(ctx context.Context, db external.Querier, erasure string, after int64) ([]Event, error) {
	rows, _ := db.Query(ctx, `SELECT sequence, time, body FROM cleanupd.erasure_event
		WHERE erasure_id = $1::text::uuid AND sequence > $2 ORDER BY sequence LIMIT 1000`, erasure, after)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		var sequence int64
		var when time.Time
		var body []byte
		if err := row.Scan(&sequence, &when, &body); err != nil {
			return e, err
		}
		err = json.Unmarshal(body, &e)
		e.Erasure, e.Sequence, e.Time = erasure, sequence, when
		return e, err
	})
}
