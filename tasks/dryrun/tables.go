package dryrun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

const maxNames = 20

// table is what the current task would do to a table, or to its work tables.
type table struct {
	preview.Table
	of        *campaign.Table // nil for work tables
	relations []string        // the relations that have the rows
	dropped   []string        // all names, quoted
}

type tables struct{ all []*table }

func (ts *tables) at(name string, action preview.Action, rule string) *table {
	for _, t := range ts.all {
		if t.Table.Table == name && t.Action == action {
			if rule != "" && !strings.Contains(t.Rule, rule) {
				t.Rule += "; or " + rule
			}
			return t
		}
	}
	t := &table{Table: preview.Table{Table: name, Action: action, Rule: rule}}
	ts.all = append(ts.all, t)
	return t
}

func (ts *tables) has(name string, action preview.Action) bool {
	return slices.ContainsFunc(ts.all, func(t *table) bool { return t.Table.Table == name && t.Action == action })
}

// take returns the tables, and removes them from ts. It leaves out a table without rows, unless a guard trips for
// it or its rows were not counted.
func (ts *tables) take() (taken []*table) {
	for _, t := range ts.all {
		if t.Rows > 0 || t.Tables > 0 || t.Partitions > 0 || t.Guards != nil || t.Remarks != nil {
			taken = append(taken, t)
		}
	}
	ts.all = nil
	return taken
}

func (t *table) add(of *campaign.Table, relation string, found purge.Tally) {
	t.of = of
	sum := purge.Tally{Oldest: t.Oldest, Newest: t.Newest, Keys: t.Sample}
	sum.Add(found)
	t.Rows, t.Oldest, t.Newest, t.Sample = t.Rows+found.Rows, sum.Oldest, sum.Newest, sum.Keys
	if !slices.Contains(t.relations, relation) {
		t.relations = append(t.relations, relation)
	}
}

func (t *table) addDropped(w campaign.WorkTable) {
	t.Tables++
	t.dropped = append(t.dropped, w.Quoted())
	if len(t.Names) < maxNames {
		t.Names = append(t.Names, w.Name)
	}
}

// addPartition adds a partition that would be dropped or detached with all of its rows.
func (t *table) addPartition(j plan.Job) {
	t.Partitions++
	t.of = j.Table // if it has no rows
	if t.Action == preview.Detach {
		t.dropped = append(t.dropped, j.Relation)
	}
	if len(t.Names) < maxNames {
		t.Names = append(t.Names, j.Name)
	}
}

func (t *table) logPartitions(ctx context.Context, to *task) {
	if t.Partitions == 0 {
		return
	}
	names := strings.Join(t.Names, ", ")
	if more := t.Partitions - int64(len(t.Names)); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	m := message.PartitionsToDrop.With("table", t.of.Name, "partitions", t.Partitions, "names", names)
	if t.Action == preview.Detach {
		m = message.PartitionsToDetach.With("table", t.of.Name, "partitions", t.Partitions, "names", names)
	}
	to.Log(ctx, m)
}

// remark adds a remark on what cannot be known before the rows are deleted.
func (t *table) remark(text string) {
	if !slices.Contains(t.Remarks, text) {
		t.Remarks = append(t.Remarks, text)
	}
}

// addCaveats adds remarks on what else the database would do with the rows of a job, which is not counted.
func (t *table) addCaveats(j plan.Job) {
	if j.NoTIDs {
		t.remark("rows are " + j.Location + ": what another server does with them is not known")
	}
	if j.Companion != nil && j.CompanionWrites != "" {
		t.remark(j.CompanionWrites + " are inserted")
	}
	if t.Action != preview.Delete {
		return
	}
	for _, c := range j.Table.Cascades {
		remark := "a foreign key deletes or changes rows of " + c.Table.NameIn(j.Table.Schema) + " that refer to these"
		if !c.Table.CanSelect || j.NoTIDs || c.Table.Location != "" {
			remark += ", which are not counted here"
		}
		t.remark(remark)
	}
}
