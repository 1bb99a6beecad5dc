package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// RestoreParams says what a run brings back from the trash.
type RestoreParams struct {
	Run     string   `json:"run"`
	Entries []int64  `json:"entries"`        // in the order in which they come back
	Keys    []string `json:"keys,omitempty"` // the only rows of one table; nil for all
	Into    string   `json:"into,omitempty"` // a new schema; "" for the original tables
}

// TrashEntry is what a task of a run deleted from one table.
type TrashEntry struct {
	ID         int64
	Run        string
	Task       string
	Root       string
	Parent     []string // the schema and the name of the partitioned table; nil unless it is a partition
	Kind       string
	Rows       int64 // now in the trash
	Bytes      int64
	CreateTime time.Time
	ExpireTime *time.Time // nil while the run works
}

// ListTrash returns entries, the newest run first, and the token of the next page, "" on the last page. It leaves out
// tables of which a run has deleted no row. It fails with pagetoken.ErrInvalid.
func ListTrash(
	ctx context.Context, db campaign.Querier, run string, size int, token string,
) ([]TrashEntry, string, error) {
	before, err := pagetoken.Parse[int64](token)
	if err != nil {
		return nil, "", err
	}
	rows, _ := db.Query(ctx, `SELECT id, run_id::text, task, root, parse_ident(relation ->> 'parent'), kind,
			rows_trashed - rows_restored - rows_purged - rows_expired,
			COALESCE(pg_total_relation_size(to_regclass('cleanupd_trash.' || name)), 0), create_time, expire_time
		FROM cleanupd.trash
		WHERE end_time IS NULL AND (kind <> 'ROWS' OR rows_trashed > 0) AND ($1 = '' OR run_id::text = $1)
			AND ($2::bigint = 0 OR id < $2)
		ORDER BY id DESC LIMIT $3`, run, before, size+1)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TrashEntry])
	if err != nil {
		return nil, "", err
	}
	list, next := pagetoken.Cut(list, size, func(e TrashEntry) int64 { return e.ID })
	return list, next, nil
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
	var run *string // a statement of its own, which sees what was committed while it waited for the lock
	err = tx.QueryRow(ctx, `SELECT min(id::text) FROM cleanupd.run
		WHERE end_time IS NULL AND EXISTS (SELECT FROM unnest($1::bigint[]) AS e WHERE restore -> 'entries' @> to_jsonb(e))`,
		open).Scan(&run)
	if err == nil && run != nil {
		err = &ActiveError{RunID: *run}
	}
	return open, err
}

// closeTrash lets what a run has deleted expire some time after its end, and entries without rows at once.
func closeTrash(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(ctx, `UPDATE cleanupd.trash SET expire_time = clock_timestamp()
			+ CASE WHEN kind = 'ROWS' AND rows_trashed = 0 THEN interval '0' ELSE keep END
		WHERE run_id = $1 AND expire_time IS NULL`, id)
	return err
}
