package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// RestoreParams selects the trash that a run restores.
type RestoreParams struct {
	Run     string   `json:"run"`
	Entries []int64  `json:"entries"`        // in the order of the restore
	Keys    []string `json:"keys,omitempty"` // the only rows of one table; nil for all
	Into    string   `json:"into,omitempty"` // a new schema; "" for the original tables
}

// LockTrash keeps entries from being purged, expiring, and being restored by a run that starts now, until the
// transaction ends. It returns those of which something is left, and fails with an ActiveError if a run restores one of
// them.
func LockTrash(ctx context.Context, tx pgx.Tx, ids ...int64) (open []int64, err error) {
	const lock = "SELECT id FROM cleanupd.trash WHERE id = ANY ($1) AND end_time IS NULL ORDER BY id FOR UPDATE"
	rows, _ := tx.Query(ctx, lock, ids)
	if open, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
		return nil, err
	}
	var run *string // a separate statement, which sees what was committed while the first one waited for the lock
	err = tx.QueryRow(ctx, `SELECT min(id::text) FROM cleanupd.run
		WHERE end_time IS NULL AND EXISTS (SELECT FROM unnest($1::bigint[]) AS e WHERE restore -> 'entries' @> to_jsonb(e))`,
		open).Scan(&run)
	if err == nil && run != nil {
		err = &ActiveError{RunID: *run}
	}
	return open, err
}

// CloseTrash sets when a run's trash expires: entries without rows at once, others after their time to keep.
func CloseTrash(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(ctx, `UPDATE cleanupd.trash SET expire_time = clock_timestamp()
			+ CASE WHEN kind = 'ROWS' AND rows_trashed = 0 THEN interval '0' ELSE keep END
		WHERE run_id = $1 AND expire_time IS NULL`, id)
	return err
}
