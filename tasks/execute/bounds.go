package execute

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// tolerated is how many rows a task may delete by a saved plan with so many rows. A hundredth and a thousand more
// may have become obsolete in the meantime, by rules that do not depend on age.
func tolerated(planned int64) int64 { return planned + planned/100 + 1_000 }

// limit is how many rows of a table the saved plan allows. A table whose rows only foreign keys delete or change
// must be in the plan. Rows that foreign keys change may be rows that the plan deletes later.
func (b *bounded) limit(of bound, cascaded bool) int64 {
	planned, shown := b.planned[of]
	if deleted, ok := b.planned[bound{of.table, preview.Delete}]; of.action == preview.Update && cascaded && ok {
		planned, shown = planned+deleted, true
	}
	if cascaded && !shown {
		return 0
	}
	return tolerated(planned)
}

// bounded is a ledger that refuses a batch by which a task would delete more rows of a table than its saved plan
// has, or a larger share of it than guards have estimated.
type bounded struct {
	next purge.Ledger

	mu   sync.Mutex
	done map[bound]int64
	// planned are the rows of the saved plan; nil without a saved plan.
	planned map[bound]int64
	// shares are the limits of tables for which a guard decided by an estimate.
	shares map[string]guard.Trip
}

type bound struct {
	table  string
	action preview.Action
}

// startTask sets the bounds for a task. A previous worker may have deleted some of its rows already.
func (b *bounded) startTask(saved *preview.Task, done []purge.Space) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.planned, b.shares, b.done = nil, map[string]guard.Trip{}, rowsByTable(done)
	if saved == nil {
		return
	}
	b.planned = map[bound]int64{}
	for _, t := range saved.Tables {
		b.planned[bound{t.Table, t.Action}] = t.Rows
	}
}

func (b *bounded) setShare(t guard.Trip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares[t.Table] = t
}

func rowsByTable(spaces []purge.Space) map[bound]int64 {
	rows := map[bound]int64{}
	for _, s := range spaces {
		if s.Rows > 0 {
			rows[bound{s.Root, preview.Delete}] += s.Rows
		}
		if s.Updated > 0 {
			rows[bound{s.Root, preview.Update}] += s.Updated
		}
	}
	return rows
}

func (b *bounded) Write(ctx context.Context, batch *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	rows := rowsByTable(d.Space)
	if err := b.reserve(rows, d); err != nil {
		return nil, err
	}
	written, err := b.next.Write(ctx, batch, d)
	if err != nil {
		b.release(rows)
		return nil, err
	}
	return func(err error) error {
		if err != nil {
			b.release(rows)
		}
		return written(err)
	}, nil
}

// reserve adds the rows of a batch to those done. It fails if the batch exceeds a bound.
func (b *bounded) reserve(rows map[bound]int64, d purge.Delta) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	cascaded := map[string]bool{}
	for _, s := range d.Space {
		cascaded[s.Root] = cascaded[s.Root] || s.Cascaded > 0
	}
	for of, n := range rows {
		if limit := b.limit(of, cascaded[of.table]); b.planned != nil && b.done[of]+n > limit {
			return planExceeded(of, b.planned[of], limit)
		}
		share, ok := b.shares[of.table]
		if ok && share.Number+n > share.Limit {
			share.Number = share.Limit + 1
			return guard.Refuse([]guard.Trip{share})
		}
	}
	for of, n := range rows {
		b.add(of, n)
	}
	return nil
}

func (b *bounded) release(rows map[bound]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, n := range rows {
		b.add(of, -n)
	}
}

func (b *bounded) add(of bound, rows int64) {
	b.done[of] += rows
	if share, ok := b.shares[of.table]; ok {
		share.Number += rows
		b.shares[of.table] = share
	}
}

func planExceeded(of bound, planned, limit int64) error {
	return &refused.Error{
		Reason:   refused.PlanExceeded,
		Metadata: map[string]string{"table": of.table, "planned": fmt.Sprint(planned)},
		Message: fmt.Sprintf("%s: the plan has %d rows to %s, and more than %d are due: stopped before these", of.table,
			planned, strings.ToLower(string(of.action)), limit),
	}
}
