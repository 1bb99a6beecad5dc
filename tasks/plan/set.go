package plan

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// ofSet is the condition that a row is one of the set, or depends on one, and the query for the parents that it does;
// both are empty, with a note, when it is not applicable.
func (c *compiler) ofSet(step Step) (where, ids string, err error) {
	switch {
	case c.plan.Parents == nil:
		return "", "", nil
	case step.Message != "":
		return c.ofMessage(step.Message)
	case step.OfParents:
		return c.member(), "SELECT r." + c.plan.Parents.Key, nil
	case !c.has(row{"r", c.table}, step.Link):
		return "", "", nil
	}
	return c.linked("r." + step.Link), "SELECT r." + step.Link, nil
}

// eligible is the set's own condition, on a row r of the parent table.
func (c *compiler) eligible() string {
	table := c.plan.Parents.Table
	of := compiler{Env: c.Env, plan: c.plan, table: table, args: c.args}
	where := of.any(c.plan.Task.ParentSet.Rules, row{"r", table})
	c.args = of.args
	return where
}

// member is the condition that a row of the parent table is one of the set. It includes the set's own condition, so
// that a parent that the application changed in the meantime stays.
func (c *compiler) member() string {
	if c.DryRun { // the ids are those of rows that have just been judged
		return among("r."+c.plan.Parents.Key, c.bind(ParentIDs{}, "bigint[]"))
	}
	where, key := c.eligible(), c.plan.Parents.Key
	return where + " AND " + among("r."+key, c.bind(ParentIDs{}, "bigint[]"))
}

// linked is the condition that a column refers to a row of the set. The ids are hashed once per statement; the set's
// own condition is checked for the parent of each matching row, and OFFSET keeps PostgreSQL from reading all parents
// instead. Another server is sent the ids, and the parents are read first.
func (c *compiler) linked(column string) string {
	if c.DryRun && !c.apart() {
		return among(column, c.bind(ParentIDs{}, "bigint[]"))
	}
	where, p := c.eligible(), c.plan.Parents
	ids := c.bind(ParentIDs{}, "bigint[]")
	if c.apart() {
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
		among(column, ids),
		column,
		p.Table.Quoted(),
		p.Key,
		where,
	)
}

// among is the condition that a column leads to one of some rows, whose ids are a parameter.
func among(column, ids string) string { return column + " <> 0 AND " + purge.In(column, ids) }

// ofMessage is the condition that the log whose id is in a column is that of a message of a delivery of the set.
func (c *compiler) ofMessage(column string) (where, ids string, err error) {
	if !c.has(row{"r", c.table}, column) {
		return "", "", nil
	}
	logs, err := DeliveryAndExclusionLogs(c.Env, c.plan)
	if err != nil || logs == nil {
		return "", "", err
	}
	for _, log := range logs {
		c.reads(log)
	}
	of := c.linked("l.iDeliveryId")
	var sides, parents []string
	for _, log := range logs {
		from := fmt.Sprintf("%s AS l WHERE l.iBroadLogId = r.%s", log.Quoted(), column)
		parents = append(parents, "SELECT l.iDeliveryId FROM "+from)
		if c.apart() {
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

// neededBy is the logs by which alone rows are known to be those of a task's parents; nil: there are none. What is
// missing for it, that task has noted.
func (c *compiler) neededBy(t Task) (*Except, error) {
	if c.table.Missing("iBroadLogId", "iDeliveryId") != nil {
		return nil, nil
	}
	its := &Plan{Task: t}
	set, err := parents(its, *t.ParentSet, c.Env)
	if err != nil {
		return nil, err
	}
	e := &Except{Task: t.Name, Parents: set}
	of := compiler{Env: c.Env, plan: its, table: c.table}
	logs, err := DeliveryAndExclusionLogs(c.Env, its)
	if err != nil {
		return nil, err
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
			of.reads(t)
			stays := "true"
			if c.DryRun { // those of other parents are still there
				stays = goes(logs, "m."+step.Message) + " IS NOT TRUE"
			}
			if of.apart() {
				needed = append(
					needed,
					fmt.Sprintf(
						"r.iBroadLogId IN (SELECT m.%s FROM %s AS m WHERE %s)",
						step.Message,
						t.Quoted(),
						stays,
					),
				)
			} else {
				needed = append(
					needed,
					fmt.Sprintf(
						"EXISTS (SELECT FROM %s AS m WHERE m.%s = r.iBroadLogId AND %s)",
						t.Quoted(),
						step.Message,
						stays,
					),
				)
			}
		}
	}
	if needed == nil || e.Parents == nil {
		return nil, nil
	}
	e.Where = "r.iDeliveryId = ANY ($%[1]d::bigint[]) AND (" + strings.Join(needed, " OR ") + ")"
	e.Elsewhere, e.Rights = of.elsewhere, its.Rights
	return e, nil
}

// goes is the condition that a message is one of the parents with whose rows it goes, which are a parameter, $%[2]d.
func goes(logs []*campaign.Table, message string) string {
	var sides []string
	for _, log := range logs {
		sides = append(
			sides,
			fmt.Sprintf(
				"%s IN (SELECT l.iBroadLogId FROM %s AS l WHERE l.iDeliveryId = ANY ($%%[2]d::bigint[]))",
				message,
				log.Quoted(),
			),
		)
	}
	return "(" + strings.Join(sides, " OR ") + ")"
}
