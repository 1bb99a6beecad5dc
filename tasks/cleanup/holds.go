package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// chooseParents returns the parents of the task without those that skipped tables or holds retain, and counts the
// retained ones.
func chooseParents(ctx context.Context, a *Attempt) (parents rules.ChosenParents, err error) {
	ids, err := a.RetainForSkipped(ctx, a.Parents)
	if err != nil {
		return parents, err
	}
	parents, retained, err := spareParents(ctx, a.Binder, a.Jobs, ids)
	if err != nil {
		return parents, err
	}
	a.Retained.OnHold += retained
	a.ParentsRetained = a.ParentsRetained || len(parents.IDs) < len(ids) || len(parents.RowsOnHold) > 0
	return parents, nil
}

// spareParents leaves out the parents of a message whose log is on hold, since only that log links the message to its
// parent. The others are processed, except for the own rows of parents that are on hold themselves or have a dependent
// row on hold. retained is how many parents are retained only because of their dependent rows.
func spareParents(
	ctx context.Context, b *rules.Binder, jobs []rules.Job, ids []int64,
) (parents rules.ChosenParents, retained int64, err error) {
	themselves, err := parentsOnHold(ctx, b)
	if err != nil {
		return parents, 0, err
	}
	onHold := slices.Clone(themselves)
	for _, j := range jobs {
		if !j.Step.Dependent() || j.Step.OfParents || len(ids) == 0 {
			continue
		}
		by, err := parentsOfRowsOnHold(ctx, b, j, ids)
		if err != nil {
			return parents, 0, err
		}
		if j.Step.Message == "" {
			onHold = append(onHold, by...)
			continue
		}
		retained += int64(len(rules.Without(rules.Intersection(ids, by), themselves)))
		ids = rules.Without(ids, by)
	}
	parents = rules.ChosenParents{IDs: ids, RowsOnHold: rules.Intersection(ids, onHold)}
	return parents, retained + int64(len(rules.Without(parents.RowsOnHold, themselves))), nil
}

func parentsOnHold(ctx context.Context, b *rules.Binder) ([]int64, error) {
	p := b.Plan.Parents
	if p == nil || p.OnHold.IsZero() {
		return nil, nil
	}
	onHold := *p
	onHold.Where = sqlexpr.Format("%s AND (%s) IS TRUE", p.Where, p.OnHold)
	return b.Parents(ctx, &onHold)
}

// parentsOfRowsOnHold returns the parents of those rows of the job that are on hold.
func parentsOfRowsOnHold(ctx context.Context, b *rules.Binder, j rules.Job, ids []int64) (by []int64, err error) {
	s, any, err := b.SweepOnHold(ctx, &j, ids)
	if err != nil || !any {
		return nil, err
	}
	err = b.Engine.Retry(ctx, j.Name, func() (err error) { by, err = b.ParentsOf(ctx, j, s); return err })
	if err != nil && !campaign.Dropped(ctx, b.Pool, err, s.Relation) {
		return nil, fmt.Errorf("find rows on hold in %s: %w", j.Name, err)
	}
	return by, nil
}

// countOnHold counts the obsolete rows of all jobs that are on hold.
func countOnHold(ctx context.Context, a *Attempt) error {
	ofParents := func(j rules.Job) bool { return j.Step.OfParents }
	for i, j := range a.Jobs {
		countedLater := ofParents(j) && slices.ContainsFunc(a.Jobs[i+1:], ofParents)
		if countedLater || (j.Step.Dependent() && len(a.Parents) == 0) {
			continue
		}
		rows, err := countRows(ctx, a, j)
		if a.Retained.OnHold += rows; err != nil {
			return fmt.Errorf("count rows on hold in %s: %w", j.Name, err)
		}
	}
	return nil
}

// countRows counts the rows of a job that are on hold. For dependent rows a single statement is sufficient, since
// it finds them by their link to the parents.
func countRows(ctx context.Context, a *Attempt, j rules.Job) (rows int64, err error) {
	b := a.Binder
	j.Except = nil
	s, any, err := b.SweepOnHold(ctx, &j, a.Parents)
	if err != nil || !any {
		return 0, err
	}
	if j.Step.Dependent() {
		query := sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE %s", s.Relation, s.Where)
		count := func(tx pgx.Tx) error { return query.QueryRow(ctx, tx).Scan(&rows) }
		err = b.Engine.Retry(ctx, j.Name, func() error { return b.Engine.InTx(ctx, count) })
	} else {
		if s.Paired != nil {
			alone := *s.Paired
			alone.Before = nil // other jobs delete no rows on hold
			s.Paired = &alone
		}
		err = b.Engine.Count(ctx, s, func(_ context.Context, n purge.Tally) error {
			rows += n.Rows + n.Paired
			return nil
		})
	}
	return rows, a.Uncounted(ctx, j, s, err)
}

// ErrTableOnHold means that a work table is on hold.
var ErrTableOnHold = errors.New("its table is on hold")

// heldWorkTables applies holds to work tables: named tables, tables whose owner is on hold, and tables with a row of a
// recipient on hold.
type heldWorkTables struct{ *Attempt }

// Filter returns the tables that are not on hold, and the number of those that are. owner is the table of the tables'
// owners. Tables that may have rows of a recipient on hold are read only if unused returns them, and retained
// otherwise.
func (w heldWorkTables) Filter(
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

func (w heldWorkTables) mayHaveRecipients(t campaign.WorkTable) bool {
	return t.Recipients && len(w.Binder.Env.Holds.Recipients) > 0
}

// WithRecipients returns the names of the tables that were read, and whether they have rows of a recipient on hold.
// A table that cannot be read counts as having some, with a warning.
func (w heldWorkTables) WithRecipients(ctx context.Context, tables []campaign.WorkTable) (map[string]bool, error) {
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
func (w heldWorkTables) read(ctx context.Context, t campaign.WorkTable) (has bool, err error) {
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
func (w heldWorkTables) hasRecipients(ctx context.Context, tx pgx.Tx, t campaign.WorkTable) (has bool, err error) {
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

// Check fails with ErrTableOnHold if one of the tables is on hold or has a row of a recipient on hold. owner is the
// table of their owners; "" for the tables of lists that are locked.
func (w heldWorkTables) Check(ctx context.Context, tx pgx.Tx, owner string, tables []campaign.WorkTable) error {
	for _, t := range tables {
		if w.Binder.Env.Holds.WorkTable(t, owner) {
			return ErrTableOnHold
		}
		if has, err := w.hasRecipients(ctx, tx, t); err != nil || has {
			return cmp.Or(err, ErrTableOnHold)
		}
	}
	return nil
}
