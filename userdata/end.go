package userdata

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// finish ends the erasure: it has failed if it says so, if an item has, or if files are left.
func (e *erasure) finish(ctx context.Context, failed bool) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.end(ctx, tx, failed) })
}

// abandon ends the erasure, as failed, before it is through.
func (e *erasure) abandon(ctx context.Context, problem error) error {
	return e.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx,
			"UPDATE cleanupd.erasure_item SET state = 'FAILED' WHERE erasure_id = $1::text::uuid AND state IN "+
				"('PENDING', 'PURGING')",
			e.id,
		); err != nil {
			return err
		}
		if err := e.append(
			ctx,
			tx,
			logged(
				severity.Error,
				"the erasure ended early; what is not reported as erased stays, or its end is not known: "+problem.Error(),
			),
		); err != nil {
			return err
		}
		return e.end(ctx, tx, true)
	})
}

// dismiss forgets the items that were not begun before the erasure was told to stop.
func (e *erasure) dismiss(ctx context.Context) error {
	return e.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(
			ctx,
			"DELETE FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND state = 'PENDING'",
			e.id,
		)
		if err != nil {
			return err
		}
		return e.append(
			ctx,
			tx,
			logged(
				severity.Info,
				fmt.Sprintf("%s: %d process instances were not begun, and stay", e.stop, tag.RowsAffected()),
			),
		)
	})
}

func (e *erasure) end(ctx context.Context, tx pgx.Tx, failed bool) error {
	tag, err := tx.Exec(ctx, `UPDATE cleanupd.erasure AS e SET end_time = clock_timestamp(), state = CASE WHEN $2
		OR EXISTS (SELECT FROM cleanupd.erasure_item WHERE erasure_id = e.id AND state <> 'DONE')
		OR EXISTS (SELECT FROM cleanupd.erasure_session WHERE erasure_id = e.id)
		THEN 'FAILED' ELSE 'SUCCEEDED' END WHERE id = $1::text::uuid AND state IN ('RUNNING', 'PURGING')`, e.id, failed)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return e.append(ctx, tx, Event{Ended: true})
}
