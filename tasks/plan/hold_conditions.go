package plan

import (
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// HoldCondition is one way in which a row r of a table is on hold.
type HoldCondition struct {
	Condition sqlexpr.Expr
	// ReadsOthers is set if Condition reads other tables, and ReadsDistributed if it reads a distributed one.
	ReadsOthers, ReadsDistributed bool
	// Column is an integer column of r, or empty. Condition is then true if the column contains one of the ids that
	// the query IDs returns.
	Column string
	IDs    sqlexpr.Expr
	// All are the ids of the holds, if IDs returns those of them that the table contains; it is nil if IDs returns ids
	// of other rows.
	All []int64
}

// holdFinder finds the ways in which rows of a table are on hold. It adds notes and missing rights to the plan.
type holdFinder struct {
	env    Env
	plan   *Plan
	table  *campaign.Table
	linker holdLinker
}

// findOnHold returns the ways in which a row r of a table is on hold. A row also counts as on hold if a row that
// would be deleted with it is: one with the same id in a paired table, or one that a foreign key deletes. So does a row
// that refers to rows on hold, if these are HeldRows.
func findOnHold(env Env, p *Plan, table *campaign.Table) ([]HoldCondition, error) {
	p.noteNamesakes(env, table)
	switch {
	case len(env.Holds.Names) == 0:
		return nil, nil
	case holdLinker{env: env}.links(table).whole:
		return []HoldCondition{{Condition: sqlexpr.SQL("true")}}, nil
	case p.lost(env, table):
		return []HoldCondition{{Condition: sqlexpr.SQL("true")}}, nil
	}
	linker, err := newHoldLinker(env)
	if err != nil {
		return nil, err
	}
	f := holdFinder{env, p, table, linker}
	found := f.byColumns()
	paired, err := f.byPairedRows()
	found = slices.Concat(found, f.byForeignKeys(), paired, f.byCascades())
	return slices.DeleteFunc(found, func(h HoldCondition) bool { return h.Condition.IsZero() }), err
}

// onHold is the condition that a row r is on hold, or a row that would be deleted with it. It is empty if no row
// is.
func onHold(env Env, p *Plan, table *campaign.Table) (condition sqlexpr.Expr, err error) {
	found, err := findOnHold(env, p, table)
	for _, h := range found {
		condition = sqlexpr.Or(condition, h.Condition)
	}
	return condition, err
}

// byColumns returns the ways in which r itself is on hold: by its partition, by an id, or by its message, whose
// delivery is on hold. There is one condition for each log of messages.
func (f holdFinder) byColumns() (found []HoldCondition) {
	own := f.linker.links(f.table)
	for _, leaf := range own.leaves {
		found = append(found, HoldCondition{Condition: sqlexpr.Format("r.tableoid = %d", leaf)})
	}
	for _, l := range own.columns {
		condition := l.of("r")
		if !l.integer {
			found = append(found, HoldCondition{Condition: condition})
			continue
		}
		found = append(found, HoldCondition{
			Condition: condition,
			Column:    l.column, All: l.ids,
			IDs: sqlexpr.Format("SELECT DISTINCT r.%s::bigint FROM %s AS r WHERE %s", l.column, f.table.Quoted(),
				condition),
		})
	}
	for _, h := range own.rows {
		found = append(found, HoldCondition{Condition: h.condition(&f.newCompiler().sql, row{"r", f.table})})
	}
	for _, l := range own.messages {
		for _, log := range messageLogs(f.env, f.plan) {
			onHold := func(*holdCompiler) sqlexpr.Expr { return sqlexpr.OneOf("l.iDeliveryId", l.ids) }
			found = append(found, f.through(l.column, row{"l", log}, "iBroadLogId", onHold))
		}
	}
	return found
}

func (f holdFinder) newCompiler() *holdCompiler {
	return &holdCompiler{sql: compiler{env: f.env, plan: f.plan, table: f.table}, linker: f.linker}
}

// through is the condition that a column of r contains the key of a row of another table that is on hold, as
// compiled by onHold. It is true for all rows if that table may not show all of its rows.
func (f holdFinder) through(
	column string, other row, key string, onHold func(c *holdCompiler) sqlexpr.Expr,
) HoldCondition {
	c := f.newCompiler()
	where := onHold(c)
	if where.IsZero() {
		return HoldCondition{}
	}
	if c.sql.hidesRows(other.table) {
		return HoldCondition{Condition: sqlexpr.SQL("true")}
	}
	c.sql.recordRead(other.table)
	query := sqlexpr.Format("SELECT DISTINCT %s.%s::bigint FROM %s AS %[1]s WHERE %[1]s.%[2]s IS NOT NULL AND (%[4]s)",
		other.alias, key, other.table.Quoted(), where)
	exists := sqlexpr.Format("EXISTS (SELECT FROM %s AS %s WHERE %[2]s.%s = r.%s AND (%s))", other.table.Quoted(),
		other.alias, key, column, where)
	if c.sql.cannotJoin() {
		exists = sqlexpr.Format("r.%s IN (%s)", column, query)
	}
	return HoldCondition{
		Condition:        exists,
		ReadsOthers:      true,
		ReadsDistributed: c.sql.distributed,
		Column:           column,
		IDs:              query,
	}
}

// byForeignKeys returns the ways in which r refers to a row that is on hold as HeldRows.
func (f holdFinder) byForeignKeys() (found []HoldCondition) {
	for _, k := range f.linker.referring(f.table) {
		c := f.newCompiler()
		condition, ids := c.belongs(row{"r", f.table}, k)
		h := HoldCondition{Condition: condition, ReadsOthers: true, ReadsDistributed: c.sql.distributed}
		if !ids.IsZero() {
			h.Column, h.IDs = k.Columns[0], ids
		}
		found = append(found, h)
	}
	return found
}

// byPairedRows returns the ways in which a row of a paired table with the same id is on hold.
func (f holdFinder) byPairedRows() (found []HoldCondition, err error) {
	for _, t := range f.env.Pipeline {
		for _, step := range t.Steps {
			if step.Paired == nil {
				continue
			}
			paired, err := f.byPairedStep(step)
			if err != nil {
				return nil, err
			}
			found = append(found, paired...)
		}
	}
	return found, nil
}

func (f holdFinder) byPairedStep(step Step) (found []HoldCondition, err error) {
	skipped := &Plan{}
	logs, err := step.On(f.env, skipped)
	logs = slices.Concat(logs, skipped.SkippedTables) // a log that is not cleaned may have rows on hold, too
	paired, key, id := f.env.Catalog.Table(step.Paired.Table), step.Paired.Key, step.Paired.ID
	if err != nil || paired == nil || !paired.Has(key) || (paired != f.table && !slices.Contains(logs, f.table)) {
		return nil, err
	}
	f.plan.requireMappings(f.env)
	logs = slices.DeleteFunc(logs, func(log *campaign.Table) bool { return !log.Has(id) })
	path := []*campaign.Table{f.table}
	if paired == f.table {
		for _, log := range logs {
			onHold := func(c *holdCompiler) sqlexpr.Expr { return c.withChildren(row{"l", log}, nil, path) }
			found = append(found, f.through(key, row{"l", log}, id, onHold))
		}
		return found, nil
	}
	return []HoldCondition{f.through(id, row{"t", paired}, key, func(c *holdCompiler) sqlexpr.Expr {
		sides := []sqlexpr.Expr{c.withChildren(row{"t", paired}, nil, path)}
		for _, log := range logs {
			if log == f.table { // the row of this table with the same id is r
				continue
			}
			switch where := c.withChildren(row{"l", log}, nil, path); {
			case where.IsZero():
			case c.sql.hidesRows(log):
				return sqlexpr.SQL("true")
			default:
				c.sql.recordRead(log)
				sides = append(sides,
					sqlexpr.Format("t.%s IN (SELECT l.%s FROM %s AS l WHERE %s)", key, id, log.Quoted(), where))
			}
		}
		return sqlexpr.Or(sides...)
	})}, nil
}

// byCascades returns the ways in which a row that a foreign key deletes or changes with r is on hold.
func (f holdFinder) byCascades() (found []HoldCondition) {
	path := []*campaign.Table{f.table}
	for _, k := range f.table.Cascades {
		switch {
		case !f.linker.mayLink(k, map[*campaign.Cascade]bool{}):
		case !f.plan.seesRowsOnHold(f.env, f.table, k.Table):
			found = append(found, HoldCondition{Condition: sqlexpr.SQL("true")})
		case len(k.Keys) == 1 && f.table.HasInteger(k.Keys[0]) && k.Table.HasInteger(k.Columns[0]):
			child := row{"k1", k.Table}
			onHold := func(c *holdCompiler) sqlexpr.Expr { return c.withChildren(child, k, path) }
			found = append(found, f.through(k.Keys[0], child, k.Columns[0], onHold))
		default:
			c := f.newCompiler()
			where := c.child(row{"r", f.table}, k, path)
			found = append(found,
				HoldCondition{Condition: where, ReadsOthers: true, ReadsDistributed: c.sql.distributed})
		}
	}
	return found
}
