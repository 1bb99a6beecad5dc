package userdata

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
)

// These are the kinds of an erasure's items.
const (
	kindInstance = "instance"
	kindTask     = "task"
)

func (e record) insertItems(ctx context.Context, tx pgx.Tx, instances, tasks []int64) error {
	_, err := e.exec(ctx, tx, `INSERT INTO cleanupd.erasure_item (erasure_id, kind, item_id)
		SELECT $1::text::uuid, $2, unnest($3::bigint[]) UNION ALL SELECT $1::text::uuid, $4, unnest($5::bigint[])`,
		kindInstance, instances, kindTask, tasks)
	return err
}

// UnsettledItems returns the items that are neither erased nor failed.
func (e record) unsettledItems(ctx context.Context, db external.Querier, kind string) ([]int64, error) {
	rows, _ := db.Query(ctx, `SELECT item_id FROM cleanupd.erasure_item
		WHERE erasure_id = $1::text::uuid AND kind = $2 AND state IN ('PENDING', 'PURGING') ORDER BY item_id`, e.ID, kind)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// IsPurging reports whether the Forms server was asked to purge the process instance.
func (e record) isPurging(ctx context.Context, db external.Querier, instance int64) (purging bool, err error) {
	err = db.QueryRow(ctx, "SELECT state = 'PURGING' FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND "+
		"kind = $2 AND item_id = $3", e.ID, kindInstance, instance).
		Scan(&purging)
	return purging, err
}

// MarkPurging is called before the Forms server is asked to purge the process instance.
func (e record) markPurging(ctx context.Context, tx pgx.Tx, instance int64) error {
	return e.mark(ctx, tx, "PURGING", kindInstance, instance)
}

func (e record) markFailed(ctx context.Context, tx pgx.Tx, kind string, ids ...int64) error {
	return e.mark(ctx, tx, "FAILED", kind, ids...)
}

// mark changes the state of unsettled items. It fails with ErrTaken if one of the items is already settled.
func (e record) mark(ctx context.Context, tx pgx.Tx, state, kind string, ids ...int64) error {
	n, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure_item SET state = $4 WHERE erasure_id = $1::text::uuid
		AND kind = $2 AND item_id = ANY ($3) AND state IN ('PENDING', 'PURGING')`, kind, ids, state)
	if err == nil && n != int64(len(ids)) {
		err = errTaken
	}
	return err
}

func (e record) failUnsettledItems(ctx context.Context, tx pgx.Tx) error {
	_, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure_item SET state = 'FAILED' WHERE erasure_id = $1::text::uuid
		AND state IN ('PENDING', 'PURGING')`)
	return err
}

// DropPendingItems removes items whose erasure has not begun, and returns how many there were.
func (e record) dropPendingItems(ctx context.Context, tx pgx.Tx) (int64, error) {
	return e.exec(ctx, tx, "DELETE FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND state = 'PENDING'")
}
