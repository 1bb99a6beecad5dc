package plan

import (
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
	// Tables are stored names of tables that stay with all of their rows: those of the application, partitions, and
	// work tables.
	Tables []string
	// Deliveries, Lists and Workflows are ids of rows that stay with what belongs to them.
	Deliveries, Lists, Workflows []int64
	// Recipients are ids: rows that have one in iRecipientId stay.
	Recipients []int64
}

// idsOf are the ids of the rows of a table that stay with what belongs to them.
func (h Holds) idsOf(table string) []int64 {
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

// namesTable reports whether a table stays with all of its rows.
func (h Holds) namesTable(table string) bool {
	return h.Everything ||
		slices.ContainsFunc(h.Tables, func(name string) bool { return strings.EqualFold(name, table) })
}

// WholeTable reports whether a table, or a partition of it, stays with all of its rows.
func (h Holds) WholeTable(t *campaign.Table) bool {
	return h.namesTable(t.Name) ||
		slices.ContainsFunc(t.Leaves, func(leaf campaign.Leaf) bool { return h.namesTable(leaf.Name) })
}

// WorkTable reports whether a work table of rows of an owner stays: since it is held, or a partition of it.
func (h Holds) WorkTable(w campaign.WorkTable, owner string) bool {
	return h.namesTable(w.Name) || slices.ContainsFunc(w.Partitions, h.namesTable) ||
		slices.Contains(h.idsOf(owner), w.ID) ||
		slices.ContainsFunc(w.ListIDs(), func(id int64) bool { return slices.Contains(h.Lists, id) })
}
