package plan

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// These limit following foreign keys from one row: the number of keys, and how often one table is visited. Rows
// behind further keys count as on hold.
const (
	maxCascades = 100
	maxVisits   = 3
)

type holdCompiler struct {
	sql      compiler
	linker   holdLinker
	cascades int // foreign keys followed so far
}

// row is the condition that a row is on hold because of its columns or its partition. It is empty if no row of the
// table can be.
func (c *holdCompiler) row(r row) sqlexpr.Expr {
	own := c.linker.links(r.table)
	if own.whole {
		return sqlexpr.SQL("true")
	}
	var sides []sqlexpr.Expr
	for _, leaf := range own.leaves {
		sides = append(sides, sqlexpr.Format("%s.tableoid = %d", r.alias, leaf))
	}
	for _, l := range own.columns {
		sides = append(sides, l.of(r.alias))
	}
	for _, h := range own.rows {
		sides = append(sides, h.condition(&c.sql, r))
	}
	for _, l := range own.messages {
		for _, log := range messageLogs(c.sql.env, c.sql.plan) {
			if c.sql.hidesRows(log) {
				return sqlexpr.SQL("true")
			}
			c.sql.recordRead(log)
			sides = append(sides,
				sqlexpr.Format("%s.%s IN (SELECT m.iBroadLogId FROM %s AS m WHERE %s)", r.alias, l.column, log.Quoted(),
					sqlexpr.OneOf("m.iDeliveryId", l.ids)))
		}
	}
	return sqlexpr.Or(sides...)
}

// withChildren is the condition that a row, or a row that foreign keys delete with it, is on hold. It is empty if
// none can be. path has the tables through which foreign keys were followed, the last one by the key arrived: whether
// the row is on hold since it refers by this key to a row on hold is judged for that row.
func (c *holdCompiler) withChildren(r row, arrived *campaign.Cascade, path []*campaign.Table) sqlexpr.Expr {
	visits := 1
	for _, t := range path {
		if t == r.table {
			visits++
		}
	}
	if c.cascades++; c.cascades > maxCascades || visits == maxVisits {
		schema := c.sql.env.Catalog.Schema
		c.sql.plan.note(message.HoldTooDeep.With("table", path[0].NameIn(schema), "last", r.table.NameIn(schema)))
		return sqlexpr.SQL("true")
	}
	sides := []sqlexpr.Expr{c.row(r)}
	for _, k := range c.linker.referring(r.table) {
		if k != arrived {
			condition, _ := c.belongs(r, k)
			sides = append(sides, condition)
		}
	}
	for _, k := range r.table.Cascades {
		sides = append(sides, c.child(r, k, append(slices.Clone(path), r.table)))
	}
	return sqlexpr.Or(sides...)
}

// child is the condition that a row on hold refers to the row by a foreign key. It is empty if none can be.
func (c *holdCompiler) child(r row, k *campaign.Cascade, path []*campaign.Table) sqlexpr.Expr {
	child := row{fmt.Sprint("k", len(path)), k.Table}
	if !c.linker.mayLink(k, map[*campaign.Cascade]bool{}) {
		return sqlexpr.Expr{}
	}
	if !c.sql.plan.seesRowsOnHold(c.sql.env, r.table, k.Table) {
		return sqlexpr.SQL("true")
	}
	onHold := c.withChildren(child, k, path)
	if onHold.IsZero() {
		return onHold
	}
	c.sql.recordRead(k.Table)
	return sqlexpr.Format("EXISTS (SELECT FROM %s AS %s WHERE %s AND (%s))", k.Table.Quoted(), child.alias,
		k.On(r.alias, child.alias), onHold)
}

// seesRowsOnHold reports whether the role can read all rows of the child table that may be on hold. If not, it
// notes that rows of the parent table are retained.
func (p *Plan) seesRowsOnHold(env Env, parent, child *campaign.Table) bool {
	if child.CanSelect && !child.RowSecurity {
		return true
	}
	role := pgx.Identifier{env.Catalog.Role}.Sanitize()
	remedy := fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %[2]s",
		pgx.Identifier{child.Schema}.Sanitize(), role, child.Quoted())
	if child.CanSelect {
		remedy = fmt.Sprintf("ALTER ROLE %s BYPASSRLS", role)
	}
	schema := env.Catalog.Schema
	p.note(message.HoldHidden.With("table", parent.NameIn(schema), "child", child.NameIn(schema), "statement", remedy))
	return false
}
