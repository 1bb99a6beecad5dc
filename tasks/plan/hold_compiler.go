package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Limits on following foreign keys from one row: the number of keys, and of visits to one table. Rows behind further
// keys count as on hold.
const (
	maxCascades = 100
	maxVisits   = 3
)

// holdCompiler compiles one condition that a row is on hold.
type holdCompiler struct {
	sql      compiler
	cascades int // foreign keys followed so far
}

// row returns the condition that a row is on hold because of the values in its columns, or because of its partition. It
// is empty if no row of the table can be.
func (c *holdCompiler) row(r row) (string, error) {
	own, err := findHoldLinks(c.sql.env, r.table)
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
		sides = append(sides, purge.In(r.alias+"."+l.column, c.sql.bind(l.ids, "bigint[]")))
	}
	for _, l := range own.messages {
		for _, log := range messageLogs(c.sql.env) {
			c.sql.recordRead(log)
			sides = append(sides, fmt.Sprintf(
				"%s.%s IN (SELECT m.iBroadLogId FROM %s AS m WHERE %s)",
				r.alias, l.column, log.Quoted(), purge.In("m.iDeliveryId", c.sql.bind(l.ids, "bigint[]")),
			))
		}
	}
	return joinOr(sides), nil
}

// withChildren returns the condition that a row is on hold, or one that foreign keys delete with it. It is empty if
// none can be. path has the tables that foreign keys were followed through.
func (c *holdCompiler) withChildren(r row, path []*campaign.Table) (string, error) {
	visits := 1
	for _, t := range path {
		if t == r.table {
			visits++
		}
	}
	if c.cascades++; c.cascades > maxCascades || visits == maxVisits {
		schema := c.sql.env.Catalog.Schema
		c.sql.plan.note(message.HoldTooDeep.With("table", path[0].NameIn(schema), "last", r.table.NameIn(schema)))
		return "true", nil
	}
	own, err := c.row(r)
	if err != nil {
		return "", err
	}
	sides := []string{own}
	for _, k := range r.table.Cascades {
		side, err := c.child(r, k, append(slices.Clone(path), r.table))
		if err != nil {
			return "", err
		}
		sides = append(sides, side)
	}
	return joinOr(sides), nil
}

// child returns the condition that a row on hold refers to a row by a foreign key. It is empty if none can be on hold.
func (c *holdCompiler) child(r row, k campaign.Cascade, path []*campaign.Table) (string, error) {
	child := row{fmt.Sprint("k", len(path)), k.Table}
	if may, err := mayBeOnHold(c.sql.env, k.Table, map[*campaign.Table]bool{}); err != nil || !may {
		return "", err
	}
	if !c.sql.plan.seesRowsOnHold(c.sql.env, r.table, k.Table) {
		return "true", nil
	}
	onHold, err := c.withChildren(child, path)
	if err != nil || onHold == "" {
		return "", err
	}
	c.sql.recordRead(k.Table)
	var on []string
	for i := range k.Columns {
		on = append(on, fmt.Sprintf("%s.%s = %s.%s", child.alias, k.Columns[i], r.alias, k.Keys[i]))
	}
	return fmt.Sprintf(
		"EXISTS (SELECT FROM %s AS %s WHERE %s AND (%s))",
		k.Table.Quoted(), child.alias, strings.Join(on, " AND "), onHold,
	), nil
}

// seesRowsOnHold reports whether the role can read all rows of a child table that may be on hold. If not, it notes that
// rows of the parent table are retained.
func (p *Plan) seesRowsOnHold(env Env, parent, child *campaign.Table) bool {
	if child.CanSelect && !child.RowSecurity {
		return true
	}
	role := pgx.Identifier{env.Catalog.Role}.Sanitize()
	remedy := fmt.Sprintf(
		"GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %[2]s",
		pgx.Identifier{child.Schema}.Sanitize(), role, child.Quoted(),
	)
	if child.CanSelect {
		remedy = fmt.Sprintf("ALTER ROLE %s BYPASSRLS", role)
	}
	schema := env.Catalog.Schema
	p.note(message.HoldHidden.With(
		"table", parent.NameIn(schema), "child", child.NameIn(schema), "statement", remedy,
	))
	return false
}
