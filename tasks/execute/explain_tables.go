package execute

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// coalesceStatements is the one by which rows would be replaced by their sums.
func (t *task) coalesceStatements(ctx context.Context) ([]Statement, error) {
	if t.plan.Task.RollUp == nil {
		return nil, nil
	}
	w, skip := t.coalescing()
	if skip != nil {
		t.log(ctx, skip.Level, skip.Text)
		return nil, nil
	}
	if err := w.refusal(); err != nil {
		t.log(ctx, severity.Warning, "the task fails: "+err.Error())
		return nil, nil
	}
	if err := w.find(ctx, t.Pool); err != nil {
		return nil, err
	}
	if w.upToDate() {
		t.log(ctx, severity.Info, "coalesceUpToDate")
		return nil, nil
	}
	sql, err := w.sql(ctx)
	return []Statement{
		{
			Table:      w.table.Quoted(),
			Action:     Delete,
			Rule:       w.rule(),
			SQL:        sql,
			Parameters: shown([]any{w.start, w.Now, []pgtype.TID{}}),
			Way:        "PostgreSQL's own plan",
			Partitions: 1,
		},
	}, err
}

// dropStatements are the queries for what work tables are in use by, and the statements that drop the others, for each
// kind: views first.
func (t *task) dropStatements(ctx context.Context) (all []Statement, err error) {
	found, asks, err := t.workTables(ctx)
	if err != nil {
		return nil, err
	}
	for i, d := range t.plan.Drops {
		mask := Statement{Table: maskOf(d.Prefix), Action: Drop, Rule: ruleOfDrop(d)}
		if asks[i] == nil || len(found[i]) == 0 {
			all = append(all, mask)
			continue
		}
		unused, err := asks[i](ctx, t.Pool, found[i])
		if err != nil {
			return nil, err
		}
		var ids, lists []int64
		for _, w := range found[i] {
			ids, lists = append(ids, w.ID), append(lists, w.ListIDs()...)
		}
		all = append(
			all,
			Statement{Table: d.Owner.Quoted(), Rule: "which of the ids in the names are in use", SQL: d.InUse.SQL},
		)
		if err := t.withParameters(ctx, &all[len(all)-1], ids, d.InUse); err != nil {
			return nil, err
		}
		if d.Groups != nil && len(lists) > 0 {
			all = append(
				all,
				Statement{
					Table: d.Groups.Quoted(),
					Rule:  "which of the ids after _grp are those of lists",
					SQL:   d.KnownLists.SQL,
				},
			)
			if err := t.withParameters(ctx, &all[len(all)-1], lists, d.KnownLists); err != nil {
				return nil, err
			}
		}
		if len(unused) == 0 {
			all = append(all, mask)
		}
		for _, views := range []bool{true, false} {
			some := those(unused, views)
			if len(some) == 0 {
				continue
			}
			told := mask
			told.Rule = fmt.Sprintf("%s; %d of them, in groups", mask.Rule, len(some))
			var args []any
			told.SQL, args = dropping(some[:min(len(some), firstGroup)])
			told.Parameters = shown(args)
			all = append(all, told)
		}
	}
	return all, nil
}

// withParameters adds to a statement those of a query for ids, whose first parameter is ids, too.
func (t *task) withParameters(ctx context.Context, s *Statement, ids []int64, q plan.Query) error {
	args, err := t.values(ctx, q.Args, nil)
	s.Parameters = shown(append([]any{ids}, args...))
	return err
}

// vacuumStatements are those of a task that vacuums, one for all tables that it does the same with.
func (t *task) vacuumStatements(ctx context.Context) (all []Statement, err error) {
	if !t.plan.Task.Vacuums {
		return nil, nil
	}
	mode, tables, err := t.vacuuming(ctx)
	if err != nil {
		return nil, err
	}
	commands := t.byCommand(tables, mode)
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		of := commands[command]
		all = append(
			all,
			Statement{
				Table: of[0].Quoted(),
				Rule:  fmt.Sprintf("%d tables, one after another", len(of)),
				SQL:   command + " " + of[0].Quoted(),
			},
		)
	}
	return all, nil
}
