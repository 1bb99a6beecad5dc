package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// RetainForSkipped retains parents with rows in tables that the task skips, since these rows would become orphans.
// It returns the other parents.
func (a *Attempt) RetainForSkipped(ctx context.Context, parents []int64) ([]int64, error) {
	if a.Plan.Parents == nil || len(parents) == 0 {
		return parents, nil
	}
	for _, r := range a.Plan.Parents.Retaining {
		retained := parents
		var why string
		switch {
		case r.Table.RowSecurity:
			why = "row security may hide dependent rows in " + r.Table.Name
		case !r.Table.ShowsAllRows():
			why = fmt.Sprintf("%s is %s, which may hide dependent rows", r.Table.Name, r.Table.Kind)
		case r.Link == "":
			why = r.Table.Name + " was skipped and may have rows of their messages"
		case !r.Table.HasInteger(r.Link):
			why = fmt.Sprintf("%s was skipped and may have rows that refer to them: its column %s is not an integer",
				r.Table.Name, r.Link)
		default:
			var err error
			why = "dependent rows are in " + r.Table.Name + ", which was skipped"
			query := sqlexpr.Format("SELECT DISTINCT r.%[1]s::bigint FROM %[2]s AS r WHERE r.%[1]s = ANY (%[3]s)",
				r.Link, r.Table.Quoted(), sqlexpr.Arg(parents, "bigint[]"))
			if retained, err = a.Binder.IDs(ctx, r.Table, query); err != nil {
				return nil, err
			}
		}
		if len(retained) > 0 {
			name := a.Plan.Parents.Table.Name
			a.Log(ctx, message.ParentsRetained.With("rows", len(retained), "table", name, "problem", why))
		}
		parents = a.RetainParents(parents, retained)
	}
	return parents, nil
}

// RetainParents returns the parents that are not retained. The retained ones count as dependent rows.
func (a *Attempt) RetainParents(parents, retained []int64) []int64 {
	rest := rules.Without(parents, retained)
	a.ParentsRetained = a.ParentsRetained || len(rest) < len(parents)
	a.Retained.Dependent += int64(len(parents) - len(rest))
	return rest
}

// Uncounted returns an error of counting if it fails the task. Otherwise it logs why the rows were not counted.
func (a *Attempt) Uncounted(ctx context.Context, j rules.Job, s purge.Sweep, err error) error {
	switch {
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		a.Log(ctx, message.TableLocked.With("table", j.Name))
	case slices.Contains(a.dropped, j.Name) && sqlstate.Is(err, pgerrcode.UndefinedTable): // it has no rows on hold
	case campaign.Dropped(ctx, a.Binder.Pool, err, s.Relation):
		a.Log(ctx, message.TableDropped.With("table", j.Name))
	case s.NoTIDs && err != nil && !sqlstate.Lost(err) && ctx.Err() == nil:
		a.OtherServerFailed(ctx, j, s, err)
	default:
		return err
	}
	return nil
}

// OtherServerFailed makes the task fail at its end, unless no obsolete rows are left on the other server. It returns
// the retained rows.
func (a *Attempt) OtherServerFailed(ctx context.Context, j rules.Job, s purge.Sweep, failed error) purge.Retained {
	var rows int64
	err := a.Binder.Engine.Count(ctx, s, func(_ context.Context, n purge.Tally) error {
		rows += n.Rows + n.Paired
		return nil
	})
	left := fmt.Sprint(rows)
	switch {
	case err != nil:
		left = "unknown"
	case rows == 0:
		a.Log(ctx, message.OtherServerClean.With("table", j.Name, "location", j.Location, "error", failed))
		return purge.Retained{}
	}
	m := message.OtherServerFailed.With("table", j.Name, "location", j.Location, "error", failed, "rows", left)
	a.Log(ctx, m)
	a.Unfinished = errors.Join(a.Unfinished, errors.New(m.Text))
	retained := purge.Retained{Tables: 1}
	a.Retained = a.Retained.Plus(retained)
	return retained
}

// A task succeeds if at most one in maxFailedShare rows fails.
const maxFailedShare = 10

// Err returns why the attempt fails although its jobs were done.
func (a *Attempt) Err() error { return errors.Join(a.Unfinished, a.tooManyFailed()) }

// tooManyFailed returns an error if too many rows failed. Rows of policies that are still referenced do not count:
// every run finds them again, and its preview has counted them.
func (a *Attempt) tooManyFailed() error {
	failed := a.Retained.Failed
	if a.Task.Kind == rules.Policy {
		failed -= a.Retained.Kept
	}
	all := failed + a.run.Journal.Done()
	text := fmt.Sprintf("%s of %s rows failed", humanize.Comma(failed), humanize.Comma(all))
	switch {
	case failed <= purge.MaxFailedRows && failed*maxFailedShare <= all:
		return nil
	case a.RowError == nil: // all failed under a previous worker
		return errors.New(text)
	}
	return fmt.Errorf("%s, the first of them with: %w", text, a.RowError)
}

// whyDependent says why a sweep retained rows that it did not try to delete.
func whyDependent(j rules.Job, rows int64) message.Message {
	if j.Cascade.Circular() {
		return message.RowsDependent.With("table", j.Name, "rows", rows)
	}
	return referenced(j, rows)
}

// referenced names the tables whose rows keep rows of a policy by foreign keys.
func referenced(j rules.Job, rows int64) message.Message {
	var children []string
	for _, k := range j.Table.Keeping() {
		if name := k.Table.NameIn(j.Table.Schema); !slices.Contains(children, name) {
			children = append(children, name)
		}
	}
	return message.RowsReferenced.With("table", j.Name, "rows", rows, "children", strings.Join(children, ", "))
}
