package execute

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// More rows than were planned may be due by other means than age: a hundredth, and a thousand.
func allowed(planned int64) int64 { return planned + planned/100 + 1_000 }

// bounded is the account of a run that deletes: a batch fails with which a task would take too many rows of a table, as
// planned, or as guards have estimated.
type bounded struct {
	Journal

	mu    sync.Mutex
	taken map[bound]int64
	// most are those that are planned; nil: whatever is due is.
	most map[bound]int64
	// shares are the guard's, by table, of those that were not counted.
	shares map[string]Trip
}

type bound struct {
	table  string
	action Action
}

// begin begins a task, of which some rows are gone already.
func (a *bounded) begin(p *Planned, gone []purge.Space) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most, a.shares, a.taken = nil, map[string]Trip{}, taken(gone)
	if p == nil {
		return
	}
	a.most = map[bound]int64{}
	for _, t := range p.Preview {
		a.most[bound{t.Table, t.Action}] = t.Rows
	}
}

// share bounds what goes of a table from now on.
func (a *bounded) share(t Trip) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shares[t.Table] = t
}

// taken is what was taken, table by table.
func taken(spaces []purge.Space) map[bound]int64 {
	rows := map[bound]int64{}
	for _, s := range spaces {
		if s.Rows > 0 {
			rows[bound{s.Root, Delete}] += s.Rows
		}
		if s.Updated > 0 {
			rows[bound{s.Root, Update}] += s.Updated
		}
	}
	return rows
}

// Write implements Journal.
func (a *bounded) Write(ctx context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	rows := taken(d.Space)
	if err := a.take(rows); err != nil {
		return nil, err
	}
	written, err := a.Journal.Write(ctx, b, d)
	if err != nil {
		a.giveBack(rows)
		return nil, err
	}
	return func(err error) error {
		if err != nil {
			a.giveBack(rows)
		}
		return written(err)
	}, nil
}

func (a *bounded) take(rows map[bound]int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range rows {
		if most := allowed(a.most[of]); a.most != nil && a.taken[of]+n > most {
			return &RefusedError{
				Reason:   PlanExceeded,
				Metadata: map[string]string{"table": of.table, "planned": fmt.Sprint(a.most[of])},
				Message: fmt.Sprintf(
					"%s: the plan has %d rows to %s, and more than %d are due: stopped before these",
					of.table,
					a.most[of],
					strings.ToLower(string(of.action)),
					most,
				),
			}
		}
		share, some := a.shares[of.table]
		if some && share.Number+n > share.Most {
			share.Number = share.Most + 1
			return tripped([]Trip{share})
		}
	}
	for of, n := range rows {
		a.taken[of] += n
		a.grow(of.table, n)
	}
	return nil
}

// grow adds rows to those of a share.
func (a *bounded) grow(table string, rows int64) {
	if share, some := a.shares[table]; some {
		share.Number += rows
		a.shares[table] = share
	}
}

func (a *bounded) giveBack(rows map[bound]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range rows {
		a.taken[of] -= n
		a.grow(of.table, -n)
	}
}
