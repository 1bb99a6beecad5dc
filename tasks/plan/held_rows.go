package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// HeldRows are the rows of a table with given values in all of some columns. They are on hold with the rows that
// refer to them by foreign keys, and with those that refer to these.
type HeldRows struct {
	// OID is the table's, and Table its full name.
	OID     uint32       `json:"-"`
	Table   string       `json:"table"`
	Columns []HeldColumn `json:"columns"`
	// Instead is empty, or tells what became of the table of the hold, if this is another one with its name.
	Instead string `json:"-"`
}

type HeldColumn struct {
	Number int16  `json:"number"` // in the table
	Column string `json:"column"` // as stored
	// Type is the type of the column when the hold was created.
	Type  string `json:"type"`
	Value string `json:"value"`
}

// TablesOfRows returns the tables that have rows on hold.
func (h Holds) TablesOfRows() (names []string) {
	for _, rows := range h.Rows {
		names = append(names, rows.Table)
	}
	return names
}

// changed returns why the rows cannot be found in a table any more; empty if they can.
func (h HeldRows) changed(t *campaign.Table) string {
	for _, c := range h.Columns {
		switch column, ok := t.Column(c.Column); {
		case !ok:
			return fmt.Sprintf("it has no column %s any longer", c.Column)
		case column.Type != c.Type:
			return fmt.Sprintf("its column %s is now of the type %s, not %s", c.Column, column.Type, c.Type)
		}
	}
	return ""
}

// condition is the condition that a row is one of the rows on hold. It is true if this cannot be known.
func (h HeldRows) condition(c *compiler, r row) sqlexpr.Expr {
	held := c.env.Catalog.Table(h.Table)
	if h.Instead != "" {
		c.plan.noteUnusable(c.env, c.table, h.Table, h.Instead)
	}
	if why := h.changed(held); why != "" {
		c.plan.noteUnusable(c.env, c.table, h.Table, why)
		return sqlexpr.SQL("true")
	}
	var equal []sqlexpr.Expr
	for _, column := range h.Columns {
		if !r.table.Has(column.Column) { // a table that another one inherits from
			return sqlexpr.SQL("true")
		}
		of, _ := held.Column(column.Column)
		equal = append(equal, sqlexpr.Format("%s.%s %s %s", r.alias, pgx.Identifier{of.Name}.Sanitize(), of.Operator("="),
			typed(column.Value, of.Type)))
	}
	return sqlexpr.Format("(%s)", sqlexpr.Join(" AND ", equal...))
}

func (p *Plan) noteUnusable(env Env, t *campaign.Table, held, why string) {
	p.note(message.HoldUnusable.With("table", t.NameIn(env.Catalog.Schema), "held", held, "problem", why))
}

// lost reports whether the table of rows on hold no longer exists. As any row might belong to them, all rows of the
// given table are then retained, which it notes.
func (p *Plan) lost(env Env, t *campaign.Table) bool {
	for _, h := range env.Holds.Rows {
		if held := env.Catalog.Table(h.Table); held == nil || held.OID != h.OID {
			p.noteUnusable(env, t, h.Table, "there is no such table any longer")
			return true
		}
	}
	return false
}

// matching returns the rows on hold that may be in a table: its own, and those of tables that inherit from it or
// from which it inherits.
func (h Holds) matching(c *campaign.Catalog, t *campaign.Table) (rows []HeldRows) {
	has := func(t, part *campaign.Table) bool {
		return slices.ContainsFunc(t.Leaves, func(leaf campaign.Leaf) bool { return leaf.OID == part.OID })
	}
	for _, held := range h.Rows {
		if of := c.Table(held.Table); of != nil && (of == t || has(of, t) || has(t, of)) {
			rows = append(rows, held)
		}
	}
	return rows
}

// mayBelong reports whether a row of the table can be one of the rows on hold, or refer to one by foreign keys.
// Tables in visited are skipped.
func (l holdLinker) mayBelong(t *campaign.Table, visited map[*campaign.Table]bool) bool {
	if visited[t] || len(l.env.Holds.Rows) == 0 {
		return false
	}
	visited[t] = true
	return len(l.env.Holds.matching(l.env.Catalog, t)) > 0 ||
		slices.ContainsFunc(slices.Concat(t.ForeignKeys, t.ChildKeys),
			func(k *campaign.Cascade) bool { return l.mayBelong(k.Parent, visited) })
}

// referring returns the foreign keys by which a row of the table may refer to a row on hold.
func (l holdLinker) referring(t *campaign.Table) (keys []*campaign.Cascade) {
	for _, k := range t.ForeignKeys {
		if l.mayBelong(k.Parent, map[*campaign.Table]bool{}) {
			keys = append(keys, k)
		}
	}
	return keys
}

// heldKeys is a query for the keys, as arrays of texts, of the rows to which a foreign key refers and that are on
// hold as HeldRows. It begins with these, and follows the foreign keys that lead from them to others, each row once,
// so that keys may lead in a circle. ok is false if the role cannot see all of these rows.
func (c *holdCompiler) heldKeys(k *campaign.Cascade) (query sqlexpr.Expr, ok bool) {
	followed := []*campaign.Cascade{k} // keys that refer to the same columns are followed once
	number := func(k *campaign.Cascade) int {
		is := func(other *campaign.Cascade) bool {
			return other.Parent == k.Parent && slices.Equal(other.Keys, k.Keys)
		}
		if !slices.ContainsFunc(followed, is) {
			followed = append(followed, k)
		}
		return slices.IndexFunc(followed, is)
	}
	var first, next []sqlexpr.Expr
	for i := 0; i < len(followed); i++ {
		t := followed[i].Parent
		if !c.sql.plan.seesRowsOnHold(c.sql.env, c.sql.table, t) {
			return query, false
		}
		c.sql.recordRead(t)
		var texts []string
		for _, key := range followed[i].Keys {
			texts = append(texts, fmt.Sprintf(`t.%s::text COLLATE "C"`, key))
		}
		rows := fmt.Sprintf("SELECT %d, ARRAY[%s] FROM %s AS t", i, strings.Join(texts, ", "), t.Quoted())
		for _, h := range c.sql.env.Holds.matching(c.sql.env.Catalog, t) {
			first = append(first, sqlexpr.Format("%s WHERE %s", rows, h.condition(&c.sql, row{"t", t})))
		}
		for _, up := range c.linker.referring(t) {
			next = append(next, sqlexpr.Format("%s WHERE held.number = %d AND %s", rows, number(up), refers(up, "held", "t")))
		}
	}
	query = sqlexpr.Join(" UNION ", first...)
	if next != nil {
		query = sqlexpr.Format("%s UNION SELECT next.* FROM held, LATERAL (%s) AS next", query,
			sqlexpr.Join(" UNION ALL ", next...))
	}
	return sqlexpr.Format("WITH RECURSIVE held (number, key) AS (%s)", query), true
}

// refers is the condition that a row refers to a row of heldKeys by a foreign key.
func refers(k *campaign.Cascade, held, alias string) string {
	var on []string
	for i, column := range k.Columns {
		on = append(on, k.Equal[i].Of(fmt.Sprintf("(%s.key[%d]::%s)", held, i+1, k.Equal[i].Type), alias+"."+column))
	}
	return strings.Join(on, " AND ")
}

// belongs is the condition that a row refers, by a foreign key, to a row that is on hold as HeldRows. If the key is
// an integer, ids is a query for the ids of such rows.
func (c *holdCompiler) belongs(r row, k *campaign.Cascade) (condition, ids sqlexpr.Expr) {
	keys, ok := c.heldKeys(k)
	switch {
	case !ok:
		return sqlexpr.SQL("true"), ids
	case k.Table != r.table: // a partition or child
		var leaves []string
		for _, leaf := range k.Table.Leaves {
			if leaf.Location != "" { // its rows have another tableoid on their server
				return sqlexpr.SQL("true"), ids
			}
			leaves = append(leaves, fmt.Sprint(leaf.OID))
		}
		return sqlexpr.Format("%s.tableoid IN (%s) AND EXISTS (%s SELECT FROM held WHERE number = 0 AND %s)", r.alias,
			strings.Join(leaves, ", "), keys, refers(k, "held", r.alias)), ids
	case len(k.Keys) == 1 && r.table.HasInteger(k.Columns[0]) && k.Parent.HasInteger(k.Keys[0]):
		ids = sqlexpr.Format("%s SELECT DISTINCT key[1]::bigint FROM held WHERE number = 0 AND key[1] IS NOT NULL", keys)
		return sqlexpr.Format("%s.%s IN (%s)", r.alias, k.Columns[0], ids), ids
	}
	return sqlexpr.Format("EXISTS (%s SELECT FROM held WHERE number = 0 AND %s)", keys, refers(k, "held", r.alias)), ids
}
