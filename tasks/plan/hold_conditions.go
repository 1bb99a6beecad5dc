package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// HoldCondition is one way in which a row r of a table is on hold.
type HoldCondition struct {
	// Condition says that it is. It reads other tables if Reads is true, and a distributed one if Elsewhere is.
	Condition              purge.Condition
	ReadsOthers, Elsewhere bool
	// Column is an integer column of r that has one of the ids of the query IDs then; empty if there is only the
	// condition.
	Column string
	IDs    purge.Condition
	// All are the ids on hold, of which the query returns those that the table has; nil if the query returns others.
	All []int64
}

// link is a column by which a row is on hold: it has one of some ids, or the id of a log of one of some deliveries.
type link struct {
	column string
	ids    []int64
}

// links has everything by which a row of a table is on hold itself.
type links struct {
	whole    bool     // all rows of the table are
	leaves   []uint32 // partitions on hold
	columns  []link
	messages []link
}

// any reports whether rows of the table may be on hold themselves.
func (l links) any() bool { return l.whole || len(l.leaves)+len(l.columns)+len(l.messages) > 0 }

// fresh returns a compiler of SQL with parameters of its own.
func (c *compiler) fresh() *compiler {
	return &compiler{Env: c.Env, plan: c.plan, table: c.table}
}

// or joins conditions, of which those without text are none.
func or(sides []string) string {
	return strings.Join(slices.DeleteFunc(sides, func(side string) bool { return side == "" }), " OR ")
}

// held returns the condition that a row r of a table is on hold, or one that would be deleted with it. It has no text
// if none is.
func (c *compiler) held(table *campaign.Table) (purge.Condition, error) {
	ways, err := c.heldBy(table)
	var conditions []purge.Condition
	for _, way := range ways {
		conditions = append(conditions, way.Condition)
	}
	return purge.Or(conditions...), err
}

// heldBy returns the ways in which a row r of a table is on hold, or one that would be deleted with it: the one that
// shares its id, or that a foreign key deletes.
func (c *compiler) heldBy(table *campaign.Table) (ways []HoldCondition, err error) {
	if len(c.Holds.Names) == 0 {
		return nil, nil
	}
	r := row{"r", table}
	own, err := c.links(table)
	if err != nil {
		return nil, err
	}
	if own.whole {
		return []HoldCondition{{Condition: purge.Condition{Where: "true"}}}, nil
	}
	for _, leaf := range own.leaves {
		ways = append(ways, HoldCondition{Condition: purge.Condition{Where: fmt.Sprintf("r.tableoid = %d", leaf)}})
	}
	for _, l := range own.columns {
		ways = append(ways, HoldCondition{
			Condition: purge.OneOf("r."+l.column, l.ids),
			Column:    l.column, All: l.ids,
			IDs: purge.Condition{
				Where: fmt.Sprintf(
					"SELECT DISTINCT r.%[1]s::bigint FROM %[2]s AS r WHERE %[3]s",
					l.column,
					table.Quoted(),
					purge.In("r."+l.column, "$1::bigint[]"),
				),
				Args: []any{l.ids},
			},
		})
	}
	for _, m := range own.messages {
		more, err := c.heldMessages(r, m)
		if err != nil {
			return nil, err
		}
		ways = append(ways, more...)
	}
	for _, step := range c.paired() {
		more, err := c.heldPaired(r, step)
		if err != nil {
			return nil, err
		}
		ways = append(ways, more...)
	}
	more, err := c.heldCascades(r)
	return slices.DeleteFunc(
		append(ways, more...),
		func(way HoldCondition) bool { return way.Condition.Where == "" },
	), err
}

// paired returns the steps of all tasks that delete rows together with those of the same id.
func (c *compiler) paired() (steps []Step) {
	for _, t := range c.Pipeline {
		for _, step := range t.Steps {
			if step.Paired != nil {
				steps = append(steps, step)
			}
		}
	}
	return steps
}

// by returns the way that a column leads to a row of another table of which a condition is true: that row's alias is
// "to".
func (c *compiler) by(
	r row,
	column string,
	to row,
	key string,
	condition func(of *compiler) (string, error),
) (HoldCondition, error) {
	of := c.fresh()
	where, err := condition(of)
	if err != nil || where == "" {
		return HoldCondition{}, err
	}
	of.recordRead(to.table)
	query := fmt.Sprintf(
		"SELECT DISTINCT %s.%s::bigint FROM %s AS %[1]s WHERE %[1]s.%[2]s IS NOT NULL AND (%[4]s)",
		to.alias,
		key,
		to.table.Quoted(),
		where,
	)
	exists := fmt.Sprintf(
		"EXISTS (SELECT FROM %s AS %s WHERE %[2]s.%s = %s.%s AND (%s))",
		to.table.Quoted(),
		to.alias,
		key,
		r.alias,
		column,
		where,
	)
	if of.cannotJoin() {
		exists = fmt.Sprintf("%s.%s IN (%s)", r.alias, column, query)
	}
	return HoldCondition{
		Condition: purge.Condition{Where: exists, Args: of.args}, ReadsOthers: true, Elsewhere: of.elsewhere,
		Column: column, IDs: purge.Condition{Where: query, Args: of.args},
	}, nil
}

// messageLogs returns the logs that have the messages of deliveries.
func (c *compiler) messageLogs() []*campaign.Table {
	logs, err := DeliveryAndExclusionLogs(c.Env, &Plan{})
	if err != nil { // the tasks that need the logs fail by it
		return nil
	}
	return slices.DeleteFunc(logs, func(t *campaign.Table) bool { return !t.Has("iBroadLogId", "iDeliveryId") })
}

// heldMessages returns the ways in which a row is on hold by the log of a message of a delivery.
func (c *compiler) heldMessages(r row, m link) (ways []HoldCondition, err error) {
	for _, log := range c.messageLogs() {
		way, err := c.by(r, m.column, row{"l", log}, "iBroadLogId", func(of *compiler) (string, error) {
			return purge.In("l.iDeliveryId", of.bind(m.ids, "bigint[]")), nil
		})
		if err != nil {
			return nil, err
		}
		ways = append(ways, way)
	}
	return ways, nil
}

// heldPaired returns the ways in which the row of the same id is on hold, in the tables of a step.
func (c *compiler) heldPaired(r row, step Step) (ways []HoldCondition, err error) {
	logs, err := step.On(c.Env, &Plan{})
	paired, key, id := c.Catalog.Table(step.Paired.Table), step.Paired.Key, step.Paired.ID
	if err != nil || paired == nil || !paired.Has(key) || (paired != r.table && !slices.Contains(logs, r.table)) {
		return nil, err
	}
	path := []*campaign.Table{r.table}
	if paired == r.table {
		for _, log := range logs {
			if !log.Has(id) {
				continue
			}
			way, err := c.by(
				r,
				key,
				row{"l", log},
				id,
				func(of *compiler) (string, error) { return of.heldWithChildren(row{"l", log}, path) },
			)
			if err != nil {
				return nil, err
			}
			ways = append(ways, way)
		}
		return ways, nil
	}
	other := row{"t", paired}
	way, err := c.by(r, id, other, key, func(of *compiler) (string, error) {
		where, err := of.heldWithChildren(other, path)
		sides := []string{where}
		for _, log := range logs {
			if !log.Has(id) || log == r.table || err != nil { // its row of the same id is this one
				continue
			}
			if where, err = of.heldWithChildren(row{"l", log}, path); err == nil && where != "" {
				of.recordRead(log)
				sides = append(
					sides,
					fmt.Sprintf("t.%s IN (SELECT l.%s FROM %s AS l WHERE %s)", key, id, log.Quoted(), where),
				)
			}
		}
		return or(sides), err
	})
	return []HoldCondition{way}, err
}

// heldItself returns the condition that a row is on hold for what it has in its columns, or for its partition; empty if
// none is.
func (c *compiler) heldItself(r row) (string, error) {
	own, err := c.links(r.table)
	if err != nil {
		return "", err
	}
	if own.whole {
		return "true", nil
	}
	var sides []string
	for _, leaf := range own.leaves {
		sides = append(sides, fmt.Sprintf("%s.tableoid = %d", r.alias, leaf))
	}
	for _, l := range own.columns {
		sides = append(sides, purge.In(r.alias+"."+l.column, c.bind(l.ids, "bigint[]")))
	}
	for _, m := range own.messages {
		for _, log := range c.messageLogs() {
			c.recordRead(log)
			sides = append(
				sides,
				fmt.Sprintf(
					"%s.%s IN (SELECT m.iBroadLogId FROM %s AS m WHERE %s)",
					r.alias,
					m.column,
					log.Quoted(),
					purge.In("m.iDeliveryId", c.bind(m.ids, "bigint[]")),
				),
			)
		}
	}
	return or(sides), nil
}

// links returns everything by which a row of a table is on hold itself.
func (c *compiler) links(table *campaign.Table) (own links, err error) {
	if c.Holds.namesTable(table.Name) {
		return links{whole: true}, nil
	}
	for _, leaf := range table.Leaves {
		switch {
		case leaf.Name == table.Name || !c.Holds.namesTable(leaf.Name):
		case leaf.Elsewhere != "": // whose parts have other OIDs there
			return links{whole: true}, nil
		default:
			own.leaves = append(own.leaves, leaf.OID)
		}
	}
	columns := map[string][]int64{"iRecipientId": c.Holds.Recipients, "iWorkflowId": c.Holds.Workflows}
	belongs := false
	for _, t := range c.Pipeline {
		if t.ParentSet == nil || len(c.Holds.idsOf(t.ParentSet.Parent)) == 0 {
			continue
		}
		ids := c.Holds.idsOf(t.ParentSet.Parent)
		for _, step := range t.Steps {
			tables, err := step.On(c.Env, &Plan{})
			if err != nil {
				return links{}, err
			}
			switch {
			case !slices.Contains(tables, table):
			case step.OfParents:
				columns[t.ParentSet.Key], belongs = ids, true
			case step.Link != "":
				columns[step.Link], belongs = ids, true
			case step.Message != "" && table.Has(step.Message):
				own.messages, belongs = append(own.messages, link{step.Message, ids}), true
			}
		}
	}
	if !belongs { // a table that the operator includes
		columns["iDeliveryId"] = c.Holds.Deliveries
	}
	for _, column := range []string{"iDeliveryId", "iJobId", "iGroupId", "iWorkflowId", "iRecipientId"} {
		if ids := columns[column]; len(ids) > 0 && table.Has(column) {
			own.columns = append(own.columns, link{column, ids})
		}
	}
	return own, nil
}
