package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// How far foreign keys are followed from a row: so many of them in all, and so often to the same table. What further
// ones delete or change counts as on hold.
const (
	maxCascades = 100
	maxVisits   = 3
)

// heldCascades returns the ways in which a row is on hold that a foreign key deletes with this one.
func (c *compiler) heldCascades(r row) (ways []HoldCondition, err error) {
	path := []*campaign.Table{r.table}
	for _, k := range r.table.Cascades {
		may, err := c.mayBeHeld(k.Table, map[*campaign.Table]bool{})
		switch {
		case err != nil:
			return nil, err
		case !may:
			continue
		case !c.sees(r.table, k.Table):
			ways = append(ways, HoldCondition{Condition: purge.Condition{Where: "true"}})
			continue
		}
		child := row{"k1", k.Table}
		if len(k.Keys) == 1 && r.table.HasInteger(k.Keys[0]) && k.Table.HasInteger(k.Columns[0]) {
			way, err := c.by(
				r,
				k.Keys[0],
				child,
				k.Columns[0],
				func(of *compiler) (string, error) { return of.heldWithChildren(child, path) },
			)
			if err != nil {
				return nil, err
			}
			ways = append(ways, way)
			continue
		}
		of := c.fresh()
		where, err := of.cascade(r, k, path)
		if err != nil {
			return nil, err
		}
		if where != "" {
			ways = append(
				ways,
				HoldCondition{
					Condition:   purge.Condition{Where: where, Args: of.args},
					ReadsOthers: true,
					Elsewhere:   of.elsewhere,
				},
			)
		}
	}
	return ways, nil
}

// mayBeHeld reports whether a row of a table can be on hold, or one that foreign keys delete with it.
func (c *compiler) mayBeHeld(table *campaign.Table, seen map[*campaign.Table]bool) (bool, error) {
	if seen[table] {
		return false, nil
	}
	seen[table] = true
	own, err := c.links(table)
	if err != nil || own.any() {
		return err == nil, err
	}
	for _, k := range table.Cascades {
		if may, err := c.mayBeHeld(k.Table, seen); err != nil || may {
			return may, err
		}
	}
	return false, nil
}

// sees reports whether all rows of a child can be seen, of which some may be on hold. It notes which rows of the parent
// are retained if not.
func (c *compiler) sees(parent, child *campaign.Table) bool {
	if child.CanSelect && !child.RowSecurity {
		return true
	}
	role := pgx.Identifier{c.Catalog.Role}.Sanitize()
	remedy := fmt.Sprintf(
		"GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %[2]s",
		pgx.Identifier{child.Schema}.Sanitize(),
		role,
		child.Quoted(),
	)
	if child.CanSelect {
		remedy = fmt.Sprintf("ALTER ROLE %s BYPASSRLS", role)
	}
	c.note(
		severity.Warning,
		"rows of %s are retained while there are holds: a foreign key deletes or changes rows of %s with them, which "+
			"may be on hold and cannot be seen: %s",
		parent.NameIn(c.Catalog.Schema),
		child.NameIn(c.Catalog.Schema),
		remedy,
	)
	return false
}

// cascade returns the condition that a foreign key leads from a row on hold to this one, which other keys have led to
// along a path of tables; empty if there is none on hold.
func (c *compiler) cascade(r row, k campaign.Cascade, path []*campaign.Table) (string, error) {
	child := row{fmt.Sprint("k", len(path)), k.Table}
	if may, err := c.mayBeHeld(k.Table, map[*campaign.Table]bool{}); err != nil || !may {
		return "", err
	}
	if !c.sees(r.table, k.Table) {
		return "true", nil
	}
	held, err := c.heldWithChildren(child, path)
	if err != nil || held == "" {
		return "", err
	}
	c.recordRead(k.Table)
	var on []string
	for i := range k.Columns {
		on = append(on, fmt.Sprintf("%s.%s = %s.%s", child.alias, k.Columns[i], r.alias, k.Keys[i]))
	}
	return fmt.Sprintf(
		"EXISTS (SELECT FROM %s AS %s WHERE %s AND (%s))",
		k.Table.Quoted(),
		child.alias,
		strings.Join(on, " AND "),
		held,
	), nil
}

// heldWithChildren returns the condition that a row is on hold by itself, or one that foreign keys delete with it;
// empty if none is. Keys have led to it along a path of tables.
func (c *compiler) heldWithChildren(r row, path []*campaign.Table) (string, error) {
	visits := 1
	for _, t := range path {
		if t == r.table {
			visits++
		}
	}
	if c.cascades++; c.cascades > maxCascades || visits == maxVisits {
		c.note(
			severity.Warning,
			"rows of %s are retained while there are holds if foreign keys lead from them to %s, and on: what these "+
				"delete or change is not followed",
			path[0].NameIn(c.Catalog.Schema),
			r.table.NameIn(c.Catalog.Schema),
		)
		return "true", nil
	}
	own, err := c.heldItself(r)
	if err != nil {
		return "", err
	}
	sides := []string{own}
	for _, k := range r.table.Cascades {
		side, err := c.cascade(r, k, append(slices.Clone(path), r.table))
		if err != nil {
			return "", err
		}
		sides = append(sides, side)
	}
	return or(sides), nil
}
