package execute

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// More rows than were planned may be due by other means than age: a hundredth, and a thousand.
func allowed(planned int64) int64 { return planned + planned/100 + 1_000 }

// bounded is the account of the run of a plan: a batch fails with which a task would take too many rows of a table.
type bounded struct {
	Journal

	mu sync.Mutex
	// most and taken are of the task's tables, by action; tables are the tables of relations.
	most, taken map[bound]int64
	tables      map[string]string
	updates     string // the table whose rows are updated
}

type bound struct {
	table  string
	action Action
}

// begin begins a task, of which some rows are gone already, by relation.
func (a *bounded) begin(p Planned, jobs []plan.Job, gone map[string]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most, a.taken, a.tables = map[bound]int64{}, map[bound]int64{}, map[string]string{}
	for _, t := range p.Preview {
		a.most[bound{t.Table, t.Action}] = t.Rows
	}
	for _, j := range jobs {
		a.tables[j.Relation] = j.Table.Quoted()
	}
	for relation, rows := range gone {
		a.taken[a.of(relation)] += rows
	}
}

// of is the table of a relation that rows are deleted from.
func (a *bounded) of(relation string) bound {
	if table, ok := a.tables[relation]; ok {
		return bound{table, Delete}
	}
	return bound{relation, Delete}
}

// Write implements Journal.
func (a *bounded) Write(ctx context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	rows := map[bound]int64{}
	for _, s := range d.Space {
		rows[a.of(s.Relation)] += s.Rows
	}
	if d.Updated > 0 {
		rows[bound{a.updates, Update}] += d.Updated
	}
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
		if most := allowed(a.most[of]); a.taken[of]+n > most {
			return &RefusedError{PlanExceeded, map[string]string{"table": of.table, "planned": fmt.Sprint(a.most[of])},
				fmt.Sprintf("%s: the plan has %d rows to %s, and more than %d are due: stopped before these", of.table, a.most[of], strings.ToLower(string(of.action)), most)}
		}
	}
	for of, n := range rows {
		a.taken[of] += n
	}
	return nil
}

func (a *bounded) giveBack(rows map[bound]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range rows {
		a.taken[of] -= n
	}
}
