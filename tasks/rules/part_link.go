package rules

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Orphan is true if a link refers to a row that does not exist. 0, an empty text and the zero UUID are not links.
// Orphan is not true if the parent table is empty, or if the role cannot see all of its rows: a missing row then proves
// nothing.
type Orphan struct {
	noOption
	Column string
	// Column refers to Key, the id column of Parent.
	Parent, Key string
	// EmptyAfter is the name of a task that may empty the parent table: once it has succeeded in this run, the empty
	// table is trusted.
	EmptyAfter string
}

func (p Orphan) applies(c *compiler, r row) bool {
	return c.requireColumns(r, p.Column) && c.trustedParent(p.Parent, p.Key) != nil
}

// sql makes the deleting statement itself check that the parent table has rows.
func (p Orphan) sql(c *compiler, r row) (sqlexpr.Expr, bool) {
	parent := c.env.Catalog.Table(p.Parent)
	from := c.afterPredecessors(parent)
	link, isLink := r.column(p.Column), p.isLink(r)
	equal, comparable := parent.Equality(p.Key, r.table, p.Column)
	if !comparable {
		return sqlexpr.Expr{}, false
	}
	spelled := parent.Spell(p.Key)
	missing := sqlexpr.Format("NOT EXISTS (SELECT FROM %s AS p WHERE %s)", from, equal.Of("p."+spelled, link))
	// If the key has no index, or if tables cannot be joined, PostgreSQL hashes the parents once per statement.
	key, _ := parent.Column(p.Key)
	if (!strings.EqualFold(parent.Key, p.Key) && !key.Indexed) || c.cannotJoin() {
		missing = sqlexpr.Format("(%s) IS NOT TRUE", equal.Among(link, spelled, from))
	}
	orphan := sqlexpr.Format("%s %s AND %s", link, isLink, missing)
	has := sqlexpr.Format("EXISTS (SELECT 1 FROM %s AS p)", from)
	if p.EmptyAfter != "" {
		has = sqlexpr.Format("(%s OR %s)", sqlexpr.Arg(SucceededTask(p.EmptyAfter), "boolean"), has)
	}
	return sqlexpr.Join(" AND ", orphan, has), true
}

// isLink returns the SQL that, put after a column, tests whether it is a link. Applications also write 0, an empty text
// or the zero UUID if there is no link.
func (p Orphan) isLink(r row) string {
	column, _ := r.table.Column(p.Column)
	switch {
	case r.table.HasInteger(p.Column), column.Kind == "N" && column.Type != "pg_catalog.money":
		return "<> 0"
	case column.Kind == "S":
		return "::pg_catalog.text NOT IN ('', '0')"
	case column.Type == "pg_catalog.uuid":
		return "<> '00000000-0000-0000-0000-000000000000'"
	}
	return "IS NOT NULL"
}

func (p Orphan) describe(Env) string { return fmt.Sprintf("its %s (%s) is gone", p.Parent, p.Column) }

func (p Orphan) columns() []string { return []string{p.Column} }

// Unreferenced is true if no row of another table refers to the row by a foreign key. It is not applicable if there is
// no such key, or if the role cannot see all rows of the tables that have one.
type Unreferenced struct{ noOption }

func (Unreferenced) applies(c *compiler, r row) bool {
	keys := r.table.KeysTo()
	if keys == nil {
		c.plan.notef("no foreign key of another table refers to %s: skipped", r.table.Name)
	}
	for _, k := range keys {
		if c.recordRead(k.Table); !k.Table.ShowsAllRows() {
			return false
		}
	}
	return len(keys) > 0
}

func (Unreferenced) sql(c *compiler, r row) (sqlexpr.Expr, bool) {
	return sqlexpr.Format("NOT (%s)", c.referredBy(r, r.table.KeysTo())), true
}

// referredBy is the condition that a row of another table refers to the row by one of the keys.
func (c *compiler) referredBy(r row, keys []*campaign.Cascade) (condition sqlexpr.Expr) {
	for _, k := range keys {
		condition = sqlexpr.Or(condition, sqlexpr.Format("EXISTS (SELECT FROM %s AS c WHERE %s)",
			c.afterPredecessors(k.Table), k.On(r.alias, "c")))
	}
	return condition
}

func (Unreferenced) describe(Env) string { return "no row of another table refers to it" }

func (Unreferenced) columns() []string { return nil }

// Linked is true if Column refers to a row of another table that a rule matches.
type Linked struct {
	noOption
	Column string
	// Key is the id column of To.
	To, Key string
	That    Rule
}

func (p Linked) applies(c *compiler, r row) bool {
	to := row{"p", c.env.Catalog.Table(p.To)}
	if to.table == nil {
		c.plan.notef("table %s, on which rows of %s depend, is missing: skipped", p.To, c.table.Name)
		return false
	}
	c.recordRead(to.table)
	return c.requireColumns(to, p.Key) && c.requireColumns(r, p.Column) && c.applies(p.That, to)
}

func (p Linked) sql(c *compiler, r row) (sqlexpr.Expr, bool) {
	to := row{"p", c.env.Catalog.Table(p.To)}
	that, ok := c.allParts(p.That, to)
	return sqlexpr.Format("EXISTS (SELECT FROM %s AS p WHERE p.%s = %s.%s AND %s)", c.afterPredecessors(to.table),
		p.Key, r.alias, p.Column, that), ok
}

func (p Linked) describe(env Env) string {
	return fmt.Sprintf("its %s (%s) has %s", p.To, p.Column, Rules{p.That}.describe(env))
}

func (p Linked) columns() []string { return []string{p.Column} }
