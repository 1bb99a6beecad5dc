package hold

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// ErrTable means that a work table is on hold.
var ErrTable = errors.New("its table is on hold")

// WorkTables applies holds to work tables. On hold are named tables, the tables of an owner on hold, and tables
// with a row of a recipient on hold.
type WorkTables struct{ *pipeline.Attempt }

// Filter returns the tables that are not on hold, and how many are. owner is the name of the table that has the
// owners of all these tables. If tables may have rows of a recipient on hold, only those that unused returns are
// read for such rows; the others are retained.
func (w WorkTables) Filter(
	ctx context.Context, owner string, tables []campaign.WorkTable,
	unused func([]campaign.WorkTable) ([]campaign.WorkTable, error),
) (rest []campaign.WorkTable, onHold int, err error) {
	named := func(t campaign.WorkTable) bool { return w.Binder.Env.Holds.WorkTable(t, owner) }
	rest = slices.DeleteFunc(slices.Clone(tables), named)
	onHold = len(tables) - len(rest)
	if !slices.ContainsFunc(rest, w.mayHaveRecipients) {
		return rest, onHold, nil
	}
	read, err := unused(rest)
	if err != nil {
		return nil, 0, err
	}
	has, err := w.WithRecipients(ctx, read)
	if err != nil {
		return nil, 0, err
	}
	rest = slices.DeleteFunc(rest, func(t campaign.WorkTable) bool {
		found, wasRead := has[t.Name]
		if found {
			onHold++
		}
		return w.mayHaveRecipients(t) && (found || !wasRead)
	})
	return rest, onHold, nil
}

func (w WorkTables) mayHaveRecipients(t campaign.WorkTable) bool {
	return t.Recipients && len(w.Binder.Env.Holds.Recipients) > 0
}

// WithRecipients returns the names of the tables that were read, and whether they have rows of a recipient on hold.
// A table that cannot be read counts as having some, with a warning.
func (w WorkTables) WithRecipients(ctx context.Context, tables []campaign.WorkTable) (map[string]bool, error) {
	has := map[string]bool{}
	var (
		unreadable int
		first      string
		problem    error
	)
	for _, t := range tables {
		if !w.mayHaveRecipients(t) {
			continue
		}
		found, err := w.read(ctx, t)
		if sqlstate.Of(err) != "" && !sqlstate.LostInDrop(err) {
			if unreadable++; unreadable == 1 {
				first, problem = t.Name, err
			}
			found, err = true, nil
		}
		if err != nil {
			return nil, err
		}
		has[t.Name] = found
	}
	if unreadable > 0 {
		w.Log(ctx,
			message.WorkTablesUnreadable.With("tables", unreadable, "table", first, "error", purge.Message(problem)))
	}
	return has, nil
}

// read reads a table in a separate transaction.
func (w WorkTables) read(ctx context.Context, t campaign.WorkTable) (has bool, err error) {
	if err := w.Binder.Engine.Recorder.Proceed(ctx); err != nil {
		return false, err
	}
	if err := w.Binder.Engine.Wait(ctx); err != nil {
		return false, err
	}
	err = w.Binder.Engine.InTx(ctx, func(tx pgx.Tx) (err error) { has, err = w.hasRecipients(ctx, tx, t); return err })
	return has, err
}

// hasRecipients reports whether a table has a row of a recipient on hold. It fails if row security might hide a
// row.
func (w WorkTables) hasRecipients(ctx context.Context, tx pgx.Tx, t campaign.WorkTable) (has bool, err error) {
	if !w.mayHaveRecipients(t) {
		return false, nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL row_security = off"); err != nil {
		return false, err
	}
	is := sqlexpr.OneOf
	if t.RecipientTexts {
		is = sqlexpr.OneOfTexts
	}
	query := sqlexpr.Format("SELECT EXISTS (SELECT FROM %s WHERE %s)", t.Quoted(),
		is("irecipientid", w.Binder.Env.Holds.Recipients))
	err = query.QueryRow(ctx, tx).Scan(&has)
	return has, err
}

// Check fails with ErrTable if one of the tables, which belong to lists, is on hold or has a row of a recipient on
// hold.
func (w WorkTables) Check(ctx context.Context, tx pgx.Tx, tables []campaign.WorkTable) error {
	for _, t := range tables {
		if w.Binder.Env.Holds.WorkTable(t, "") {
			return ErrTable
		}
		if has, err := w.hasRecipients(ctx, tx, t); err != nil || has {
			return cmp.Or(err, ErrTable)
		}
	}
	return nil
}
