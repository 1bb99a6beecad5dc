package userdata

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

func (e record) appliedEntries(ctx context.Context, db external.Querier) (n int64, err error) {
	err = db.QueryRow(ctx, "SELECT entries_applied FROM cleanupd.erasure WHERE id = $1::text::uuid", e.ID).Scan(&n)
	return n, err
}

// ApplyEntry does nothing if the entry has already been recorded, for example by another replica.
func (e record) applyEntry(ctx context.Context, tx pgx.Tx, number int64, entry *entry) error {
	const advance = "UPDATE cleanupd.erasure SET entries_applied = $2 WHERE id = $1::text::uuid AND entries_applied = " +
		"$2 - 1"
	n, err := e.exec(ctx, tx, advance, number)
	if err != nil || n == 0 {
		return err
	}
	return e.settle(ctx, tx, entry)
}

// Settle records what a transaction did: which items were erased or failed, which rows were deleted, and which
// sessions have documents that must be deleted afterwards.
func (e record) settle(ctx context.Context, tx pgx.Tx, entry *entry) error {
	if len(entry.Items) > 0 {
		if err := e.mark(ctx, tx, "DONE", entry.Kind, entry.Items...); err != nil {
			return err
		}
	}
	if len(entry.Kept) > 0 {
		if err := e.markFailed(ctx, tx, entry.Kind, entry.Kept...); err != nil {
			return err
		}
	}
	if err := e.addRows(ctx, tx, entry.Rows); err != nil {
		return err
	}
	if err := e.addSessions(ctx, tx, entry.Kind, entry.Sessions); err != nil {
		return err
	}
	if err := e.removeSessions(ctx, tx, entry.Settled, nil); err != nil {
		return err
	}
	return e.appendEvents(ctx, tx, entry.Events...)
}

func (e record) addRows(ctx context.Context, tx pgx.Tx, rows forms.Rows) error {
	_, err := e.exec(ctx, tx, `INSERT INTO cleanupd.erasure_rows AS r (erasure_id, relation, rows)
		SELECT $1::text::uuid, key, value::bigint FROM jsonb_each_text($2)
		ON CONFLICT (erasure_id, relation) DO UPDATE SET rows = r.rows + EXCLUDED.rows`, rows)
	return err
}
