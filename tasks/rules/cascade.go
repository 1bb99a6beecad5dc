package rules

import (
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// addCascade adds to a job the foreign keys that matter when its rows are deleted. If keys lead back to the table
// and the role cannot follow them, it skips the table and returns why.
func (s *stepCompiler) addCascade(job *Job) (skipped string) {
	if job.Set != nil {
		return ""
	}
	tables := []*campaign.Table{job.Table}
	index := func(t *campaign.Table) int {
		if !slices.Contains(tables, t) {
			tables = append(tables, t)
		}
		return slices.Index(tables, t)
	}
	key := func(parent int, k *campaign.Cascade) purge.ForeignKey {
		return purge.ForeignKey{
			Parent: parent, Child: index(k.Table),
			Keys: k.Keys, Columns: k.Columns, Equal: k.Equal,
			Clears: k.Action == campaign.Clears, Refuses: k.Action == campaign.Refuses, Indexed: k.Indexed,
		}
	}
	cascade := &purge.Cascade{}
	followed := map[int]bool{}
	var follow func(parent int)
	follow = func(parent int) {
		followed[parent] = true
		for _, k := range tables[parent].Cascades {
			cascade.Keys = append(cascade.Keys, key(parent, k))
			if child := index(k.Table); k.Action == campaign.Deletes && !followed[child] {
				follow(child)
			}
		}
		for _, k := range tables[parent].Refusals {
			if k.Table == job.Table { // if rows of other tables refuse, the deletion fails
				cascade.Keys = append(cascade.Keys, key(parent, k))
			}
		}
	}
	follow(0)
	if len(cascade.Keys) == 0 && !s.pairedCascades() {
		return ""
	}
	undoable := !s.step.childless() // otherwise no rows of these tables go along
	for _, t := range tables {
		cascade.Tables = append(cascade.Tables, t.Quoted())
		undoable = undoable && (t == job.Table || t.Location == "")
	}
	undoable = undoable && (&purge.Sweep{NoTIDs: job.NoTIDs, Cascade: cascade}).NotUndoable() == ""
	for _, t := range tables {
		if t == job.Table {
			continue
		}
		isPolicy := s.plan.Task.Kind == Policy
		if isPolicy {
			s.requireCascaded(t, undoable)
		}
		if !t.RowSecurity && (isPolicy || readable(t)) || s.env.AllRights {
			continue
		}
		table, child, role := job.Table.Name, t.Quoted(), s.env.Catalog.Role
		if cascade.Circular() {
			why := message.CircleHidden.With("table", table, "child", child, "role", role)
			s.plan.Skip(job.Table, why)
			return why.Text
		}
		s.plan.note(message.CascadeHidden.With("table", table, "child", child, "role", role))
	}
	job.Cascade, job.Affected = cascade, tables
	if cascade.Circular() {
		job.Newest = nil // the statement also checks rows of other groups
	}
	return ""
}

// readable reports whether the role may read the table, and each of its partitions by itself, unless it is empty.
func readable(t *campaign.Table) bool {
	return t.CanSelect && !slices.ContainsFunc(t.Leaves, func(l campaign.Leaf) bool { return !l.CanSelect && !l.Empty })
}

// requireCascaded requires the rights that a policy needs to a table whose rows foreign keys delete or change: previews
// count these rows in each partition, and undo locks them unless it refuses the task.
func (s *stepCompiler) requireCascaded(t *campaign.Table, undoable bool) {
	rights := []string{"SELECT"}
	if undo := s.plan.Task.Undo; undoable && undo != nil && *undo > 0 && s.step.Update == nil &&
		s.step.Partitions != purge.DetachPartitions {
		rights = append(rights, "UPDATE")
	}
	s.plan.requireRights(s.env, t, rights...)
	for _, l := range t.Leaves {
		now, later := missing(s.env, l.Schema, l.Quoted(), l.Rights, []string{"SELECT"})
		if l.Empty && now != nil && !s.env.AllRights {
			s.plan.note(message.PartitionWithoutRights.With("table", l.Quoted(), "reason", isEmpty, "grant", now[0]))
			continue
		}
		s.plan.addRights(now, later)
	}
}

// refused is the condition that foreign keys of other tables refuse to delete a row r, or a row that would be deleted
// with it. It is empty if none can, and for tasks other than policies.
func (c *compiler) refused(step Step, r row) sqlexpr.Expr {
	if c.plan.Task.Kind != Policy || step.Update != nil || step.childless() || c.cannotJoin() {
		return sqlexpr.Expr{}
	}
	going := slices.DeleteFunc(r.table.Going(), isHidden)
	isCircular := slices.ContainsFunc(going, func(t *campaign.Table) bool {
		return slices.ContainsFunc(t.Cascades, func(k *campaign.Cascade) bool {
			return k.Action == campaign.Deletes && k.Table == r.table
		})
	})
	var own, below []*campaign.Cascade
	for _, k := range r.table.Keeping() {
		if c.env.AllRights { // without the right, deleting the rows is tried and fails
			c.plan.requireRights(c.env, k.Table, "SELECT")
		}
		switch {
		case isHidden(k.Table):
		case k.Parent == r.table && !isCircular && !slices.Contains(going, k.Table):
			own = append(own, k)
		case slices.Contains(going, k.Parent):
			below = append(below, k)
		}
	}
	condition := c.referredBy(r, own)
	if below != nil {
		condition = sqlexpr.Or(condition, c.refusedBelow(r, going, below))
	}
	return condition
}

// isHidden reports whether conditions cannot tell all rows of a table.
func isHidden(t *campaign.Table) bool { return !t.CanSelect || !t.ShowsAllRows() || t.Location != "" }

// refusedBelow is the condition that one of the refusing keys prevents deleting r, or a row that would be deleted with
// r, because of a row that would remain. It follows the keys from row to row, since they may lead from a table back to
// itself.
func (c *compiler) refusedBelow(r row, going []*campaign.Table, refusing []*campaign.Cascade) sqlexpr.Expr {
	step := func(k *campaign.Cascade, columns string) sqlexpr.Expr {
		return sqlexpr.Format("SELECT %s FROM %s AS p JOIN %s AS c ON %s WHERE down.t = %d AND p.tableoid = down.rel "+
			"AND p.ctid = down.place", columns, c.afterPredecessors(k.Parent, "tableoid", "ctid"),
			c.afterPredecessors(k.Table, "tableoid", "ctid"), k.On("p", "c"), slices.Index(going, k.Parent))
	}
	var steps, refusals []sqlexpr.Expr
	for _, parent := range going {
		for _, k := range parent.Cascades {
			if child := slices.Index(going, k.Table); k.Action == campaign.Deletes && child >= 0 {
				steps = append(steps, step(k, fmt.Sprintf("%d AS t, c.tableoid AS rel, c.ctid AS place", child)))
			}
		}
	}
	for _, k := range refusing {
		refusal := step(k, "true")
		if child := slices.Index(going, k.Table); child >= 0 {
			refusal = sqlexpr.Format("%s AND NOT EXISTS (SELECT FROM down AS too WHERE too.t = %d AND too.rel = c.tableoid "+
				"AND too.place = c.ctid)", refusal, child)
		}
		refusals = append(refusals, refusal)
	}
	return sqlexpr.Format("EXISTS (WITH RECURSIVE down (t, rel, place) AS (SELECT 0, %[1]s.tableoid, %[1]s.ctid UNION "+
		"SELECT step.* FROM down, LATERAL (%[2]s) AS step) SELECT FROM down, LATERAL (%[3]s) AS refusal)", r.alias,
		sqlexpr.Join(" UNION ALL ", steps...), sqlexpr.Join(" UNION ALL ", refusals...))
}

// pairedCascades reports whether foreign keys delete or change rows with rows of the step's paired table.
func (s *stepCompiler) pairedCascades() bool {
	if s.step.Paired == nil {
		return false
	}
	paired := s.env.Catalog.Table(s.step.Paired.Table)
	return paired != nil && len(paired.Cascades) > 0
}
