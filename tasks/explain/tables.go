package explain

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rollup"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
	"github.com/cleanupd/cleanupd/tasks/vacuum"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

func rollUp(ctx context.Context, a *pipeline.Attempt, skips *skipLog) ([]Statement, error) {
	if a.Task.RollUp == nil {
		return nil, nil
	}
	p, skip := rollup.New(a.Binder.Env, *a.Task.RollUp)
	if skip != nil {
		skips.add(skip.Text)
		return nil, nil
	}
	if err := p.Check(); err != nil {
		skips.add("the task fails: " + err.Error())
		return nil, nil
	}
	if err := p.Find(ctx, a.Binder.Pool); err != nil {
		return nil, err
	}
	if p.UpToDate() {
		a.Log(ctx, message.Infof("coalesceUpToDate"))
		return nil, nil
	}
	statement, err := p.Statement(ctx, a.Binder.Pool, []pgtype.TID{})
	sql, args := statement.Build()
	return []Statement{{
		Table:      p.Table.Quoted(),
		Action:     preview.Delete,
		Rule:       p.Rule(),
		SQL:        sql,
		Parameters: format(args),
		Scan:       purge.Scan{Method: purge.PlannerScan},
		Partitions: 1,
	}}, err
}

// drops returns, for each kind, the queries for which work tables are in use, and the statements that drop the
// others, views first.
func drops(ctx context.Context, a *pipeline.Attempt, _ *skipLog) (all []Statement, err error) {
	finder := worktables.Finder{Attempt: a, Exclude: func(campaign.WorkTable) bool { return false }}
	kinds, _, err := finder.Find(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		statements, err := dropsOf(ctx, a, k)
		if err != nil {
			return nil, err
		}
		all = append(all, statements...)
	}
	return all, nil
}

func dropsOf(ctx context.Context, a *pipeline.Attempt, k worktables.Kind) (all []Statement, err error) {
	drop := Statement{Table: worktables.Mask(k.Drop.Prefix), Action: preview.Drop, Rule: worktables.Rule(k.Drop)}
	if k.Unused == nil || len(k.Tables) == 0 {
		return []Statement{drop}, nil
	}
	unused, err := k.Unused(ctx, a.Binder.Pool, k.Tables)
	if err != nil {
		return nil, err
	}
	var ids, lists []int64
	for _, w := range k.Tables {
		ids, lists = append(ids, w.ID), append(lists, w.ListIDs()...)
	}
	query := func(table *campaign.Table, rule string, q sqlexpr.Expr, ids []int64) error {
		bound, err := a.Binder.Bind(ctx, q, ids)
		sql, args := bound.Build()
		all = append(all, Statement{Table: table.Quoted(), Rule: rule, SQL: sql, Parameters: format(args)})
		return err
	}
	if err := query(k.Drop.Owner, "which of the ids in the names are in use", k.Drop.InUse, ids); err != nil {
		return nil, err
	}
	if k.Drop.Groups != nil && len(lists) > 0 {
		rule := "which of the ids after _grp are those of lists"
		if err := query(k.Drop.Groups, rule, k.Drop.KnownLists, lists); err != nil {
			return nil, err
		}
	}
	if len(unused) == 0 {
		all = append(all, drop)
	}
	for _, views := range []bool{true, false} {
		tables := worktables.OfKind(unused, views)
		if len(tables) == 0 {
			continue
		}
		statement := drop
		statement.Rule = fmt.Sprintf("%s; %d of them, in groups", drop.Rule, len(tables))
		var args []any
		statement.SQL, args = worktables.DropStatement(tables[:min(len(tables), worktables.FirstGroup)])
		statement.Parameters = format(args)
		all = append(all, statement)
	}
	return all, nil
}

// vacuums returns one statement for all tables that have the same command.
func vacuums(ctx context.Context, a *pipeline.Attempt, truncate bool) (all []Statement, err error) {
	if !a.Task.Vacuums {
		return nil, nil
	}
	commands, tables, err := vacuum.Prepare(ctx, a, truncate)
	if err != nil {
		return nil, err
	}
	for _, g := range commands.Groups(tables) {
		first := g.Tables[0].Quoted()
		all = append(all, Statement{
			Table: first,
			Rule:  fmt.Sprintf("%d tables, one after another", len(g.Tables)),
			SQL:   g.Command + " " + first,
		})
	}
	return all, nil
}
