package plan

import (
	"fmt"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// Assignment is a column and its new value.
type Assignment struct {
	Column string
	Value  Value
}

// Value is what a column of a row is set to.
type Value interface {
	// sql is the value as SQL; not ok, with a note, if the column keeps what it has.
	sql(c *compiler, column string) (sql string, ok bool)
}

// Number is a number.
type Number int64

func (v Number) sql(*compiler, string) (string, bool) { return fmt.Sprint(int64(v)), true }

// Clock is the run's clock; where Unless is given, there, and not NULL, it is what that column has.
type Clock struct{ Unless string }

func (v Clock) sql(c *compiler, _ string) (string, bool) {
	now := c.bind(c.Now, "timestamptz")
	if v.Unless == "" || !c.table.Has(v.Unless) {
		return now, true
	}
	return fmt.Sprintf("COALESCE(r.%s, %s)", v.Unless, now), true
}

// Message is the id of the message with a text, the lowest if there are several. A column keeps what it has if there is
// none.
type Message string

func (v Message) sql(c *compiler, column string) (string, bool) {
	t := c.Catalog.Table("NmsBroadLogMsg")
	if t == nil || !t.Has("iBroadLogMsgId", "sText") {
		c.note(severity.Info, "table NmsBroadLogMsg, or a column of it, is missing: %s keeps its message", c.table.Name)
		return "", false
	}
	c.needsRights(t, "SELECT")
	if !t.CanSelect {
		return "", false
	}
	id := Lookup(
		fmt.Sprintf(
			"SELECT min(iBroadLogMsgId)::bigint FROM %s WHERE sText = '%s' AND iBroadLogMsgId <> 0",
			t.Quoted(),
			string(v),
		),
	)
	return fmt.Sprintf("COALESCE(%s, r.%s)", c.bind(id, "bigint"), column), true
}
