package plan

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// dependsOnParents is the condition that a row is one of the set, or depends on one, and the query for the parents that it does;
// both are empty, with a note, when it is not applicable.
func (c *compiler) dependsOnParents(step Step) (where, ids string, err error) {
	switch {
	case c.plan.Parents == nil:
		return "", "", nil
	case step.Message != "":
		return c.messageOfParent(step.Message)
	case step.OfParents:
		return c.isParent(), "SELECT r." + c.plan.Parents.Key, nil
	case !c.requireColumns(row{"r", c.table}, step.Link):
		return "", "", nil
	}
	return c.linksToParent("r." + step.Link), "SELECT r." + step.Link, nil
}

// parentCondition is the set's own condition, on a row r of the parent table.
func (c *compiler) parentCondition() string {
	table := c.plan.Parents.Table
	of := compiler{Env: c.Env, plan: c.plan, table: table, args: c.args}
	where := of.anyRule(c.plan.Task.ParentSet.Rules, row{"r", table})
	c.args = of.args
	return where
}

// isParent is the condition that a row of the parent table is one of the set. It includes the set's own condition, so
// that a parent that the application changed in the meantime stays.
func (c *compiler) isParent() string {
	if c.DryRun { // the ids are those of rows that have just been judged
		return oneOf("r."+c.plan.Parents.Key, c.bind(ParentIDs{}, "bigint[]"))
	}
	where, key := c.parentCondition(), c.plan.Parents.Key
	return where + " AND " + oneOf("r."+key, c.bind(ParentIDs{}, "bigint[]"))
}

// linksToParent is the condition that a column refers to a row of the set. The ids are hashed once per statement; the set's
// own condition is checked for the parent of each matching row, and OFFSET keeps PostgreSQL from reading all parents
// instead. Another server is sent the ids, and the parents are read first.
func (c *compiler) linksToParent(column string) string {
	if c.DryRun && !c.cannotJoin() {
		return oneOf(column, c.bind(ParentIDs{}, "bigint[]"))
	}
	where, p := c.parentCondition(), c.plan.Parents
	ids := c.bind(ParentIDs{}, "bigint[]")
	if c.cannotJoin() {
		return fmt.Sprintf(
			"%[1]s <> 0 AND %[1]s = ANY (%[2]s) AND %[1]s IN (SELECT r.%[4]s FROM %[3]s AS r WHERE r.%[4]s = ANY "+
				"(%[2]s) AND %[5]s)",
			column,
			ids,
			p.Table.Quoted(),
			p.Key,
			where,
		)
	}
	return fmt.Sprintf(
		"%s AND EXISTS (SELECT FROM (SELECT %s AS id) AS child, %s AS r WHERE r.%s = child.id AND %s OFFSET 0)",
		oneOf(column, ids),
		column,
		p.Table.Quoted(),
		p.Key,
		where,
	)
}

// oneOf is the condition that a column leads to one of some rows, whose ids are a parameter.
func oneOf(column, ids string) string { return column + " <> 0 AND " + purge.In(column, ids) }

// messageOfParent is the condition that the log whose id is in a column is that of a message of a delivery of the set.
func (c *compiler) messageOfParent(column string) (where, ids string, err error) {
	if !c.requireColumns(row{"r", c.table}, column) {
		return "", "", nil
	}
	logs, err := DeliveryAndExclusionLogs(c.Env, c.plan)
	if err != nil || logs == nil {
		return "", "", err
	}
	for _, log := range logs {
		c.recordRead(log)
	}
	of := c.linksToParent("l.iDeliveryId")
	var sides, parents []string
	for _, log := range logs {
		from := fmt.Sprintf("%s AS l WHERE l.iBroadLogId = r.%s", log.Quoted(), column)
		parents = append(parents, "SELECT l.iDeliveryId FROM "+from)
		if c.cannotJoin() {
			sides = append(
				sides,
				fmt.Sprintf("r.%s IN (SELECT l.iBroadLogId FROM %s AS l WHERE %s)", column, log.Quoted(), of),
			)
			continue
		}
		// OFFSET keeps PostgreSQL from reading all logs of the set for each batch; with IS TRUE it hashes the set's ids
		// once per batch.
		sides = append(sides, fmt.Sprintf("EXISTS (SELECT FROM %s AND (%s) IS TRUE OFFSET 0)", from, of))
	}
	return fmt.Sprintf(
			"r.%s <> 0 AND (%s)",
			column,
			strings.Join(sides, " OR "),
		), strings.Join(
			parents,
			" UNION ALL ",
		), nil
}

// neededByRetained returns the logs that a task needs to find the dependent rows of its retained parents: those of the
// messages that such rows refer to. It returns nil if there are none. Notes and missing rights are those of that task.
func (c *compiler) neededByRetained(t Task) (*Except, error) {
	if c.table.Missing("iBroadLogId", "iDeliveryId") != nil {
		return nil, nil
	}
	its := &Plan{Task: t}
	set, err := compileParents(its, *t.ParentSet, c.Env)
	if err != nil {
		return nil, err
	}
	logs, err := DeliveryAndExclusionLogs(c.Env, its)
	if err != nil {
		return nil, err
	}
	of := compiler{Env: c.Env, plan: its, table: c.table}
	retained, rest := of.bind(ParentIDs{}, "bigint[]"), func(string) string { return "true" }
	if c.DryRun { // nothing has been deleted: rows of other parents are still there
		deleted := of.bind(DryRunParents(t.Name), "bigint[]")
		rest = func(message string) string { return messageOf(logs, message, deleted) + " IS NOT TRUE" }
	}
	var needed []string
	for _, step := range t.Steps {
		if step.Message == "" {
			continue
		}
		tables, err := step.On(c.Env, its)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			if !t.Has(step.Message) {
				continue
			}
			of.recordRead(t)
			format := "EXISTS (SELECT FROM %[2]s AS m WHERE m.%[1]s = r.iBroadLogId AND %[3]s)"
			if of.cannotJoin() {
				format = "r.iBroadLogId IN (SELECT m.%[1]s FROM %[2]s AS m WHERE %[3]s)"
			}
			needed = append(needed, fmt.Sprintf(format, step.Message, t.Quoted(), rest("m."+step.Message)))
		}
	}
	if needed == nil || set == nil {
		return nil, nil
	}
	return &Except{
		Task:    t.Name,
		Parents: set,
		Condition: purge.Condition{
			Where: "r.iDeliveryId = ANY (" + retained + ") AND (" + strings.Join(needed, " OR ") + ")",
			Args:  of.args,
		},
		Elsewhere: of.elsewhere,
		Rights:    its.Rights,
	}, nil
}

// messageOf returns the condition that a message is that of a delivery, by the logs. The ids of the deliveries are a
// parameter.
func messageOf(logs []*campaign.Table, message, ids string) string {
	var sides []string
	for _, log := range logs {
		sides = append(sides, fmt.Sprintf(
			"%s IN (SELECT l.iBroadLogId FROM %s AS l WHERE l.iDeliveryId = ANY (%s))",
			message,
			log.Quoted(),
			ids,
		))
	}
	return "(" + strings.Join(sides, " OR ") + ")"
}
