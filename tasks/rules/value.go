package rules

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Assignment struct {
	Column string
	Value  Value
}

type Value interface {
	// sql returns the SQL of the value. If the column is to be left unchanged, it adds a note and ok is false.
	sql(c *compiler, column string) (value sqlexpr.Expr, ok bool)
}

type Number int64

func (v Number) sql(*compiler, string) (sqlexpr.Expr, bool) { return sqlexpr.Format("%d", v), true }

// Text is a value for a column of a policy's table; nil means NULL. PostgreSQL converts it to the column's type.
type Text struct{ Value *string }

func (v Text) sql(c *compiler, column string) (value sqlexpr.Expr, ok bool) {
	if v.Value == nil {
		return sqlexpr.SQL("NULL"), true
	}
	detail, ok := c.table.Column(column)
	return typed(*v.Value, detail.Type), ok // not cast to its length: a long value fails instead of being cut
}

// FromKey is a text in which "{key}" stands for the row's key, and "{hash}" for the key's MD5 in hexadecimal. The table
// must have a single key.
type FromKey string

func (v FromKey) sql(c *compiler, column string) (value sqlexpr.Expr, ok bool) {
	detail, ok := c.table.Column(column)
	key, has := c.table.SingleKey()
	text := "r." + pgx.Identifier{key.Name}.Sanitize() + "::text"
	return sqlexpr.Format("replace(replace(%[1]s, '{key}', %[2]s), '{hash}', md5(%[2]s))::%[3]s",
		sqlexpr.Arg(string(v), "text"), text, detail.Type), ok && has
}

// Clock is the reference time, or the value of the column Unless if the table has that column and it is not NULL.
type Clock struct{ Unless string }

func (v Clock) sql(c *compiler, column string) (sqlexpr.Expr, bool) {
	now := c.written(c.table, column, sqlexpr.Arg(c.env.Now, "timestamptz"))
	if v.Unless == "" || !c.table.Has(v.Unless) {
		return now, true
	}
	unless := sqlexpr.SQL("r." + v.Unless)
	if !c.table.IsLocalDate(v.Unless) {
		unless = c.written(c.table, column, unless)
	}
	return sqlexpr.Format("COALESCE(%s, %s)", unless, now), true
}

// written returns a time as the column stores it, which may be in another zone than that in which dates are compared.
func (c *compiler) written(t *campaign.Table, column string, value sqlexpr.Expr) sqlexpr.Expr {
	zone := c.env.Catalog.Zone.WrittenIn
	if zone == "" || !t.IsLocalDate(column) {
		return value
	}
	return sqlexpr.Format("(%s AT TIME ZONE %s)", value, sqlexpr.Arg(zone, "text"))
}

// Message is the lowest id of a message with this text. Without such a message, the column is left unchanged.
type Message string

func (v Message) sql(c *compiler, column string) (value sqlexpr.Expr, ok bool) {
	t := c.env.Catalog.Table("NmsBroadLogMsg")
	if t == nil || !t.Has("iBroadLogMsgId", "sText") {
		c.plan.notef("table NmsBroadLogMsg, or a column of it, is missing: %s keeps its message", c.table.Name)
		return value, false
	}
	c.plan.requireRights(c.env, t, "SELECT")
	if !t.CanSelect {
		return value, false
	}
	id := Lookup(fmt.Sprintf(
		"SELECT min(iBroadLogMsgId)::bigint FROM %s WHERE sText = '%s' AND iBroadLogMsgId <> 0", t.Quoted(), string(v),
	))
	return sqlexpr.Format("COALESCE(%s, r.%s)", sqlexpr.Arg(id, "bigint"), column), true
}
