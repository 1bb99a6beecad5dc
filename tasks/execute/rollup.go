package execute

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rollup"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// rollUp replaces rows by their sums, without batches: a single statement deletes the rows and inserts the sums, so
// that no row that arrives in between is lost, and the stored time advances in the same transaction. It returns
// false if there is no period to roll up.
func (t *task) rollUp(ctx context.Context) (bool, error) {
	p, rows, ok, err := rollup.Prepare(ctx, t.Attempt)
	if err != nil || rows == 0 {
		return ok, err
	}
	t.journal.Progress.At(p.Table.Name, rows)
	failed := []pgtype.TID{}
	replace := func() error {
		statement, err := p.Statement(ctx, t.Binder.Pool, failed)
		if err != nil {
			return err
		}
		return t.inBatch(ctx, p.Table.Name, func(tx pgx.Tx) (d purge.Delta, err error) {
			s := purge.Sweep{Relation: p.Table.Quoted(), Root: p.Table.Quoted()}
			if len(p.Table.Cascades) > 0 {
				s.Cascade = &purge.Cascade{}
			}
			err = s.CountCascade(ctx, tx, &d, func() error {
				d.Deleted, err = t.replace(ctx, tx, p, statement)
				return err
			})
			d.Space = append(d.Space, purge.Space{Relation: s.Relation, Root: s.Root, Rows: d.Deleted})
			return d, err
		})
	}
	err = replace()
	if len(p.Table.Leaves) > 1 || !sqlstate.OfRow(err) { // TIDs identify rows of one table
		return true, err
	}
	rowErrors, findErr := t.findRowErrors(ctx, p)
	if findErr != nil || len(rowErrors) == 0 || len(rowErrors) > purge.MaxFailedRows {
		return true, errors.Join(findErr, err)
	}
	for _, r := range rowErrors {
		failed = append(failed, r.Row)
	}
	if err := replace(); err != nil {
		return true, err
	}
	t.report(ctx, p.Table.Name, purge.Result{
		Retained:   purge.Retained{Failed: int64(len(failed))},
		FirstError: rowErrors[0].Err,
	})
	for _, r := range rowErrors[:min(len(rowErrors), purge.FailedRowsLogged)] {
		t.Log(ctx, purge.RowFailed(p.Table.Name, r.Row, nil, r.Err))
	}
	return true, nil
}

// replace runs the statement in a transaction, and returns how many rows it deleted.
func (t *task) replace(
	ctx context.Context, tx pgx.Tx, p *rollup.Period, statement sqlexpr.Expr,
) (deleted int64, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '1h'"); err != nil {
		return 0, err
	}
	if err := statement.QueryRow(ctx, tx).Scan(&deleted); err != nil {
		return 0, err
	}
	return deleted, campaign.StoreTime(ctx, tx, t.Binder.Env.Catalog, p.Since, p.End)
}

// findRowErrors finds the rows whose deletion fails. They are retained in addition to the sums of the others.
func (t *task) findRowErrors(ctx context.Context, p *rollup.Period) (rowErrors []purge.RowError, err error) {
	find := func(tx pgx.Tx) error {
		rows := sqlexpr.Format("SELECT r.ctid FROM %s ORDER BY r.ctid", p.Rows()).Query(ctx, tx)
		tids, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		if err != nil {
			return err
		}
		rowErrors, err = purge.FindRowErrors(ctx, tx, p.Table.Quoted(), tids)
		return err
	}
	err = t.Binder.Engine.Retry(ctx, p.Table.Name, func() error { return t.Binder.Engine.InTx(ctx, find) })
	return rowErrors, err
}
