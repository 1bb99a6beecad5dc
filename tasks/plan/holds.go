package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Holds is what stays, whatever the rules say: all that any of some holds is about.
type Holds struct {
	// Names are those of the holds, for people.
	Names []string
	// Everything says that all rows and tables stay.
	Everything bool
	// Tables are stored names of tables that stay with all of their rows: those of the application, partitions, and work tables.
	Tables []string
	// Deliveries, Lists and Workflows are ids of rows that stay with what belongs to them.
	Deliveries, Lists, Workflows []int64
	// Recipients are ids: rows that have one in iRecipientId stay.
	Recipients []int64
}

// of are the ids of the rows of a table that stay with what belongs to them.
func (h Holds) of(table string) []int64 {
	switch table {
	case "NmsDelivery":
		return h.Deliveries
	case "NmsGroup":
		return h.Lists
	case "XtkWorkflow":
		return h.Workflows
	}
	return nil
}

// names reports whether a table stays with all of its rows.
func (h Holds) names(table string) bool {
	return h.Everything || slices.ContainsFunc(h.Tables, func(name string) bool { return strings.EqualFold(name, table) })
}

// Whole reports whether a table, or a partition of it, stays with all of its rows.
func (h Holds) Whole(t *campaign.Table) bool {
	return h.names(t.Name) || slices.ContainsFunc(t.Leaves, func(leaf campaign.Leaf) bool { return h.names(leaf.Name) })
}

// WorkTable reports whether a work table of rows of an owner stays: since it is held, or a partition of it.
func (h Holds) WorkTable(w campaign.WorkTable, owner string) bool {
	return h.names(w.Name) || slices.ContainsFunc(w.Partitions, h.names) || slices.Contains(h.of(owner), w.ID) ||
		slices.ContainsFunc(w.ListIDs(), func(id int64) bool { return slices.Contains(h.Lists, id) })
}

// held is the condition that a row is held, or one that would go with it: the one that shares its id, or that a foreign key takes. Empty: none is.
func (c *compiler) held(r row) (string, error) {
	if len(c.Holds.Names) == 0 {
		return "", nil
	}
	sides, err := c.heldItself(r)
	if err != nil {
		return "", err
	}
	for _, step := range c.paired() {
		more, err := c.heldTwins(r, step)
		if err != nil {
			return "", err
		}
		sides = append(sides, more...)
	}
	more, err := c.heldCascades(r, mostCascades)
	return strings.Join(append(sides, more...), " OR "), err
}

// paired are the steps of all tasks that delete rows together with those of the same id.
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

// heldTwins are the conditions by each of which the row of the same id is held, in the tables of a step.
func (c *compiler) heldTwins(r row, step Step) (sides []string, err error) {
	logs, err := step.On(c.Given, &Plan{})
	twins, key, id := c.Catalog.Table(step.Paired.Table), step.Paired.Key, step.Paired.ID
	if err != nil || twins == nil || !twins.Has(key) || twins != r.table && !slices.Contains(logs, r.table) {
		return nil, err
	}
	of := func(twin row) error {
		for _, log := range logs {
			held, err := c.heldItself(row{"l", log})
			if err != nil {
				return err
			}
			if held != nil && log.Has(id) {
				sides = append(sides, c.refers(twin, key, row{"l", log}, id, held))
			}
		}
		return nil
	}
	if twins == r.table {
		return sides, of(r)
	}
	twin := row{"t", twins}
	if sides, err = c.heldItself(twin); err == nil {
		err = of(twin)
	}
	if err != nil || sides == nil {
		return nil, err
	}
	return []string{c.refers(r, id, twin, key, sides)}, nil
}

// mostCascades is how many foreign keys are followed, one after another.
const mostCascades = 4

// heldCascades are the conditions by each of which a row is held that a foreign key takes with this one.
func (c *compiler) heldCascades(r row, most int) (sides []string, err error) {
	if most == 0 {
		return nil, nil
	}
	for _, k := range r.table.Cascades {
		child := row{fmt.Sprint("k", most), k.Table}
		held, err := c.heldItself(child)
		if err != nil {
			return nil, err
		}
		more, err := c.heldCascades(child, most-1)
		if err != nil {
			return nil, err
		}
		if held = append(held, more...); held == nil {
			continue
		}
		c.reads(k.Table)
		var on []string
		for i := range k.Columns {
			on = append(on, fmt.Sprintf("%s.%s = %s.%s", child.alias, k.Columns[i], r.alias, k.Keys[i]))
		}
		sides = append(sides, fmt.Sprintf("EXISTS (SELECT FROM %s AS %s WHERE %s AND (%s))", k.Table.Quoted(), child.alias, strings.Join(on, " AND "), strings.Join(held, " OR ")))
	}
	return sides, nil
}

// refers is the condition that a row's column leads to a row of another table, of which one of some conditions is true.
func (c *compiler) refers(r row, column string, to row, key string, those []string) string {
	c.reads(to.table)
	that := strings.Join(those, " OR ")
	if c.apart() {
		return fmt.Sprintf("%s.%s IN (SELECT %s.%s FROM %s AS %[3]s WHERE %[6]s)", r.alias, column, to.alias, key, to.table.Quoted(), that)
	}
	return fmt.Sprintf("EXISTS (SELECT FROM %s AS %s WHERE %[2]s.%s = %s.%s AND (%s))", to.table.Quoted(), to.alias, key, r.alias, column, that)
}

// heldItself are the conditions by each of which a row is held for what it has in its columns, or for its partition.
func (c *compiler) heldItself(r row) (sides []string, err error) {
	if c.Holds.names(r.table.Name) {
		return []string{"true"}, nil
	}
	for _, leaf := range r.table.Leaves {
		switch {
		case leaf.Name == r.table.Name || !c.Holds.names(leaf.Name):
		case leaf.Elsewhere != "": // whose parts have other OIDs there
			return []string{"true"}, nil
		default:
			sides = append(sides, fmt.Sprintf("%s.tableoid = %d", r.alias, leaf.OID))
		}
	}
	links := map[string][]int64{"iRecipientId": c.Holds.Recipients, "iWorkflowId": c.Holds.Workflows}
	belongs := false
	for _, t := range c.Pipeline {
		if t.Set == nil || len(c.Holds.of(t.Set.Parent)) == 0 {
			continue
		}
		ids := c.Holds.of(t.Set.Parent)
		for _, step := range t.Steps {
			tables, err := step.On(c.Given, &Plan{})
			if err != nil {
				return nil, err
			}
			switch {
			case !slices.Contains(tables, r.table):
			case step.OfSet:
				links[t.Set.Key], belongs = ids, true
			case step.Link != "":
				links[step.Link], belongs = ids, true
			case step.Message != "" && r.table.Has(step.Message):
				if err := c.heldMessage(&sides, r, step.Message, ids); err != nil {
					return nil, err
				}
				belongs = true
			}
		}
	}
	if !belongs { // a table that the operator includes
		links["iDeliveryId"] = c.Holds.Deliveries
	}
	for _, column := range []string{"iDeliveryId", "iJobId", "iGroupId", "iWorkflowId", "iRecipientId"} {
		if ids := links[column]; len(ids) > 0 && r.table.Has(column) {
			sides = append(sides, constants(r.alias, column, ids))
		}
	}
	return sides, nil
}

// heldMessage adds the conditions that the log in a column is that of a message of some deliveries.
func (c *compiler) heldMessage(sides *[]string, r row, column string, deliveries []int64) error {
	logs, err := DeliveryAndExclusionLogs(c.Given, &Plan{})
	for _, log := range logs {
		if to := (row{"l", log}); log.Has("iBroadLogId", "iDeliveryId") && err == nil {
			*sides = append(*sides, c.refers(r, column, to, "iBroadLogId", []string{constants("l", "iDeliveryId", deliveries)}))
		}
	}
	return err
}

// constants is the condition that a column has one of some ids. They are in the text, since an unused parameter would have no type; the cast lets
// the server look them up in a hash.
func constants(alias, column string, ids []int64) string {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]")
	return fmt.Sprintf("%s.%s::bigint = ANY ('{%s}'::bigint[])", alias, column, list)
}
