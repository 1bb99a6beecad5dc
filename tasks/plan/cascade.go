package plan

import (
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
			Clears: k.Action == campaign.Clears, Refuses: k.Action == campaign.Refuses,
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
			if k.Table == job.Table { // whether rows of other tables refuse shows when the deletion is tried
				cascade.Keys = append(cascade.Keys, key(parent, k))
			}
		}
	}
	follow(0)
	if len(cascade.Keys) == 0 && !s.pairedCascades() {
		return ""
	}
	for _, t := range tables {
		cascade.Tables = append(cascade.Tables, t.Quoted())
		if t == job.Table {
			continue
		}
		if s.env.AllRights {
			s.plan.requireRights(s.env, t, "SELECT")
			continue
		}
		if t.CanSelect && !t.RowSecurity {
			continue
		}
		table, child, role := job.Table.Name, t.Quoted(), s.env.Catalog.Role
		if cascade.Circular() {
			if s.plan.Task.Kind == Policy {
				s.plan.requireRights(s.env, t, "SELECT")
			}
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

// refused is the condition that foreign keys of other tables keep a row r from being deleted. It is empty if none
// does, or if that cannot be told from the rows: a table may lose its rows together with r.
func (c *compiler) refused(step Step, r row) (condition sqlexpr.Expr) {
	if c.plan.Task.Kind != Policy || step.Update != nil || step.childless() || c.cannotJoin() {
		return condition
	}
	goes := c.table.Dependents()
	if c.env.AllRights {
		for _, k := range c.table.KeysTo() {
			c.plan.requireRights(c.env, k.Table, "SELECT")
		}
	}
	keys := slices.DeleteFunc(c.table.KeysTo(), func(k *campaign.Cascade) bool {
		return k.Action != campaign.Refuses || !k.Table.CanSelect || !k.Table.ShowsAllRows() ||
			k.Table.Location != "" || slices.Contains(goes, k.Table)
	})
	if slices.Contains(goes, c.table) {
		return condition
	}
	return c.referredBy(r, keys)
}

// pairedCascades reports whether foreign keys delete or change rows with rows of the step's paired table.
func (s *stepCompiler) pairedCascades() bool {
	if s.step.Paired == nil {
		return false
	}
	paired := s.env.Catalog.Table(s.step.Paired.Table)
	return paired != nil && len(paired.Cascades) > 0
}
