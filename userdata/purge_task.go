package userdata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// purgeTask makes a purge a task of runs.
type purgeTask struct {
	*Manager
	rule Purge
}

func (p purgeTask) Candidates(ctx context.Context, now time.Time) (*external.Candidates, error) {
	criteria := p.rule.at(now)
	c := &external.Candidates{
		Table:  forms.InstanceTable,
		Rule:   criteria.describe(),
		Cutoff: time.Unix(criteria.Cutoff, 0),
	}
	err := p.snapshot(ctx, func(tx *forms.Transaction) error {
		if err := tx.Each(ctx, "SELECT count(*) FROM "+c.Table, nil, []any{&c.Total}, func() {}); err != nil {
			return err
		}
		s, err := criteria.search(ctx, tx)
		if err != nil {
			return err
		}
		c.Notes = s.Notes
		return s.each(ctx, func(id int64, date time.Time) {
			c.Items = append(c.Items, external.Item{ID: id, Date: date})
		})
	})
	return c, p.explain(ctx, err)
}

// Preview counts only process instances if the Forms server purges, since the other rows that the server deletes are
// unknown.
func (p purgeTask) Preview(
	ctx context.Context, c *external.Candidates, found func(ctx context.Context, rows map[string]int64) error,
) error {
	err := p.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		remover := forms.NewRemover(tx, true)
		for ids := range slices.Chunk(idsOf(c.Items), itemsPerTransaction) {
			rows := forms.Rows{forms.InstanceTable: int64(len(ids))}
			if p.Server == nil {
				removed, err := remover.Instances(ctx, ids, p.InDatabase)
				if err != nil {
					return err
				}
				rows = removed.Total()
			}
			if err := found(ctx, rows); err != nil {
				return err
			}
		}
		return nil
	})
	return p.explain(ctx, err)
}

func idsOf(items []external.Item) (ids []int64) {
	for _, i := range items {
		ids = append(ids, i.ID)
	}
	return ids
}

// instancesPerErasure is high, because each erasure searches the folder of the document storage.
const instancesPerErasure = 10_000

// Delete requests erasures, so that their receipts show what was deleted, and documents whose files cannot be
// deleted are not forgotten.
func (p purgeTask) Delete(
	ctx context.Context, run string, c *external.Candidates, done func(ctx context.Context, rows int64) error,
) error {
	if err := p.Own(ctx); err != nil {
		return err
	}
	progress := func(ctx context.Context) error {
		rows, err := p.Deleted(ctx, run)
		if err != nil {
			return err
		}
		return done(ctx, rows)
	}
	criteria := criteria{Purge: p.rule, Cutoff: c.Cutoff.Unix()}
	for ids := idsOf(c.Items); ; {
		id, err := p.of(run).unfinished(ctx, p.Record)
		if err == nil && id == "" {
			if len(ids) == 0 {
				break
			}
			batch := ids[:min(len(ids), instancesPerErasure)]
			ids = ids[len(batch):]
			id, err = p.request(ctx, run, criteria, batch)
		}
		if err != nil {
			return p.explain(ctx, err)
		}
		if id == "" { // another worker has erased all of them
			continue
		}
		claimed := false
		err = p.claims().do(ctx, id, func(ctx context.Context, e *erasure) error {
			claimed = true
			stopped, err := p.eraser().run(ctx, e, progress)
			return cmp.Or(err, stopped)
		})
		switch {
		case errors.As(err, new(*heldError)): // done lets the run notice the hold and begin the task again
			return cmp.Or(progress(ctx), err)
		case err != nil:
			return p.explain(ctx, err)
		case !claimed: // a replica that lost the run still works on it
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(workInterval):
			}
		}
	}
	// a worker may have ended between its last transaction and its report
	if err := progress(ctx); err != nil {
		return err
	}
	return p.checkFailures(ctx, run)
}

func (p purgeTask) of(run string) purgeRun { return purgeRun{RunID: run, Name: p.rule.Name} }

// request requests an erasure of those process instances that the run has not requested before. It returns "" if
// there are none.
func (p purgeTask) request(
	ctx context.Context, run string, criteria criteria, ids []int64,
) (id string, err error) {
	err = pgx.BeginFunc(ctx, p.Record, func(tx pgx.Tx) error {
		fresh, err := p.of(run).unrequested(ctx, tx, ids)
		if err != nil || len(fresh) == 0 {
			return err
		}
		e, err := request{
			FormsID:     p.Forms.Identity(),
			RequestedBy: "run " + run,
			RunID:       run,
			Purge:       &criteria,
			Instances:   fresh,
		}.insert(ctx, tx)
		id = e.ID
		return err
	})
	return id, err
}

// checkFailures fails if process instances, or their documents, could not be erased in a run.
func (p purgeTask) checkFailures(ctx context.Context, run string) error {
	receipt, instances, sessions, err := p.of(run).failures(ctx, p.Record)
	if err != nil || receipt == "" {
		return err
	}
	return fmt.Errorf(
		"%d process instances could not be erased, and documents of %d sessions are retained; receipt %s has the reasons",
		instances, sessions, receipt)
}

// Deleted counts only process instances if the Forms server purges.
func (p purgeTask) Deleted(ctx context.Context, run string) (rows int64, err error) {
	if p.Server != nil {
		return p.of(run).instances(ctx, p.Record)
	}
	return p.of(run).rows(ctx, p.Record)
}

func (p purgeTask) RecentlyDeleted(ctx context.Context, run string, period time.Duration) (items int64, err error) {
	return recentlyPurged(ctx, p.Record, p.Forms.Identity(), forms.InstanceTable, run, period)
}

// explain hides that the Forms database is lost, since the caller would conclude that the run's own database is
// lost.
func (p purgeTask) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && p.Forms.Lost(err) && p.Ready(ctx) != nil {
		return errors.New("the Forms database is not available: " + sqlstate.Explain(err))
	}
	return err
}

func (p purgeTask) Statements(ctx context.Context, now time.Time) (list []external.Statement, err error) {
	err = p.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		s, err := p.rule.at(now).search(ctx, tx)
		if err == nil {
			list = s.statements()
		}
		return err
	})
	return list, p.explain(ctx, err)
}
