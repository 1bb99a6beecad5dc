package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// compileParents compiles the parents for a database. If that is not possible, it adds notes and returns nil.
func compileParents(p *Plan, s ParentRule, env Env) (*Parents, error) {
	table := env.Catalog.Table(s.Parent)
	if table == nil && p.skipInPlaceOf(s.Parent, env.Catalog) {
		return nil, nil
	}
	if table == nil || !table.Has(s.Key) {
		p.notef("table %s, or its column %s, is missing: skipped", s.Parent, s.Key)
		return nil, nil
	}
	c := compiler{env: env, plan: p, table: table}
	if why := c.unusable(); why != nil {
		p.note(*why)
		p.SkippedTables = append(p.SkippedTables, table)
		return nil, nil
	}
	p.requireRights(env, table, "SELECT")
	where, _ := c.anyRule(s.Rules, row{"r", table})
	if where.IsZero() || !table.CanSelect {
		return nil, nil
	}
	parents := &Parents{
		Table: table,
		Key:   s.Key,
		From:  c.afterPredecessors(table),
		Where: where,
		Rule:  s.Rules.describe(env),
	}
	parents.Date, _ = s.Rules.date(row{"r", table})
	var err error
	parents.OnHold, err = rowOnHold(env, p, table)
	return parents, err
}

// dependsOnParents is the condition that a row is a parent or depends on one. ids is the query for its parents. If
// the step is not applicable, it adds a note and both are empty.
func (c *compiler) dependsOnParents(step Step) (where sqlexpr.Expr, ids string, err error) {
	switch {
	case c.plan.Parents == nil:
		return where, "", nil
	case step.Message != "":
		return c.messageOfParent(step.Message)
	case step.OfParents:
		return c.isParent(), "SELECT r." + c.plan.Parents.Key, nil
	case !c.requireColumns(row{"r", c.table}, step.Link):
		return where, "", nil
	}
	return c.linksToParent("r." + step.Link), "SELECT r." + step.Link, nil
}

func (c *compiler) parentCondition() sqlexpr.Expr {
	return c.anyRuleOf(c.plan.Task.ParentRule.Rules, row{"r", c.plan.Parents.Table})
}

// isParent is the condition that a row is one of the chosen parents. It evaluates the rules again, so that a parent is
// retained if the application has changed it since. A dry run does not, as it has only just chosen them.
func (c *compiler) isParent() sqlexpr.Expr {
	chosen := oneOf("r."+c.plan.Parents.Key, sqlexpr.Arg(ParentIDs{}, "bigint[]"))
	if c.env.DryRun {
		return chosen
	}
	return sqlexpr.Join(" AND ", c.parentCondition(), chosen)
}

// linksToParent is the condition that a column refers to one of the parents. PostgreSQL hashes the ids once per
// statement, and evaluates the rules for the parent of each matching row; without OFFSET it would read all parents. For
// a table on another server, the parents are read first and their ids are sent there.
func (c *compiler) linksToParent(column string) sqlexpr.Expr {
	ids := sqlexpr.Arg(ParentIDs{}, "bigint[]")
	if c.env.DryRun && !c.cannotJoin() {
		return oneOf(column, ids)
	}
	where, p := c.parentCondition(), c.plan.Parents
	if c.cannotJoin() {
		return sqlexpr.Format(
			"%[1]s <> 0 AND %[1]s = ANY (%[2]s) AND %[1]s IN (SELECT r.%[4]s FROM %[3]s AS r WHERE r.%[4]s = ANY "+
				"(%[2]s) AND %[5]s)",
			column, ids, p.Table.Quoted(), p.Key, where,
		)
	}
	return sqlexpr.Format(
		"%s AND EXISTS (SELECT FROM (SELECT %s AS id) AS child, %s AS r WHERE r.%s = child.id AND %s OFFSET 0)",
		oneOf(column, ids), column, p.Table.Quoted(), p.Key, where)
}

// oneOf is the condition that a column is one of some ids. 0 is not an id.
func oneOf(column string, ids sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("%s <> 0 AND %s", column, sqlexpr.In(column, ids))
}

// messageOfParent is the condition that a column refers to the log of a message whose delivery is one of the parents.
// ids is the query for the deliveries. If the step is not applicable, it adds a note and both are empty.
func (c *compiler) messageOfParent(column string) (where sqlexpr.Expr, ids string, err error) {
	if !c.requireColumns(row{"r", c.table}, column) {
		return where, "", nil
	}
	logs, err := DeliveryAndExclusionLogs(c.env, c.plan)
	if err != nil || logs == nil {
		return where, "", err
	}
	for _, log := range logs {
		c.recordRead(log)
	}
	linked := c.linksToParent("l.iDeliveryId")
	var sides []sqlexpr.Expr
	var parents []string
	for _, log := range logs {
		from := fmt.Sprintf("%s AS l WHERE l.iBroadLogId = r.%s", log.Quoted(), column)
		parents = append(parents, "SELECT l.iDeliveryId FROM "+from)
		if c.cannotJoin() {
			sides = append(sides,
				sqlexpr.Format("r.%s IN (SELECT l.iBroadLogId FROM %s AS l WHERE %s)", column, log.Quoted(), linked))
			continue
		}
		// Without OFFSET, PostgreSQL would read all logs of the parents for each batch. IS TRUE makes it hash the ids
		// once per batch.
		sides = append(sides, sqlexpr.Format("EXISTS (SELECT FROM %s AND (%s) IS TRUE OFFSET 0)", from, linked))
	}
	where = sqlexpr.Format("r.%s <> 0 AND (%s)", column, sqlexpr.Or(sides...))
	return where, strings.Join(parents, " UNION ALL "), nil
}

// neededByRetained returns the logs that another task needs to find the dependent rows of parents that it retained: a
// row that refers to a message is linked to its delivery only through the message's log. If such rows may be hidden, it
// returns all logs of the retained parents; if no table has such rows, nil. It adds no notes, since the other task has
// them already.
func (c *compiler) neededByRetained(t Task) (*Except, error) {
	if c.table.Missing("iBroadLogId", "iDeliveryId") != nil {
		return nil, nil
	}
	p := &Plan{Task: t}
	parents, err := compileParents(p, *t.ParentRule, c.env)
	if err != nil {
		return nil, err
	}
	logs, err := DeliveryAndExclusionLogs(c.env, p)
	if err != nil {
		return nil, err
	}
	other := compiler{env: c.env, plan: p, table: c.table}
	rest := func(string) sqlexpr.Expr { return sqlexpr.SQL("true") }
	if c.env.DryRun { // rows that would be deleted need no logs
		deleted := sqlexpr.Arg(DryRunParents(t.Name), "bigint[]")
		rest = func(message string) sqlexpr.Expr {
			return sqlexpr.Format("(%s) IS NOT TRUE", messageOf(logs, message, deleted))
		}
	}
	var needed []sqlexpr.Expr
	for _, step := range t.Steps {
		if step.Message == "" {
			continue
		}
		skipped := len(p.SkippedTables)
		tables, err := step.On(c.env, p)
		if err != nil {
			return nil, err
		}
		for _, t := range slices.Concat(tables, p.SkippedTables[skipped:]) {
			switch {
			case !t.Has(step.Message):
				continue
			case c.hidesRows(t):
				needed = append(needed, sqlexpr.SQL("true"))
				continue
			}
			other.recordRead(t)
			format := "EXISTS (SELECT FROM %[2]s AS m WHERE m.%[1]s = r.iBroadLogId AND %[3]s)"
			if other.cannotJoin() {
				format = "r.iBroadLogId IN (SELECT m.%[1]s FROM %[2]s AS m WHERE %[3]s)"
			}
			needed = append(needed, sqlexpr.Format(format, step.Message, t.Quoted(), rest("m."+step.Message)))
		}
	}
	if needed == nil || parents == nil {
		return nil, nil
	}
	return &Except{
		Task:    t.Name,
		Parents: parents,
		Condition: sqlexpr.Format("r.iDeliveryId = ANY (%s) AND (%s)", sqlexpr.Arg(ParentIDs{}, "bigint[]"),
			sqlexpr.Or(needed...)),
		ReadsDistributed: other.distributed,
		Rights:           p.Rights,
	}, nil
}

func messageOf(logs []*campaign.Table, message string, ids sqlexpr.Expr) (condition sqlexpr.Expr) {
	for _, log := range logs {
		condition = sqlexpr.Or(condition,
			sqlexpr.Format("%s IN (SELECT l.iBroadLogId FROM %s AS l WHERE l.iDeliveryId = ANY (%s))", message,
				log.Quoted(), ids))
	}
	return condition
}
