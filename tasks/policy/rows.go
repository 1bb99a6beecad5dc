package policy

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

const (
	maxHeldColumns = 10
	maxHeldValue   = 1_000 // in characters
)

// zoned matches times with a zone.
var zoned = regexp.MustCompile(`(?:Z|:.*[+-]\d\d(?::?\d\d)?)$`)

// CheckRows checks the rows of a hold against a database, by the same rules as the filters of policies, and fills in
// their stored names and types. It returns their table, and fails as Policy.Check does.
func CheckRows(
	ctx context.Context, pool *pgxpool.Pool, catalog *campaign.Catalog, rows *rules.HeldRows,
) (*campaign.Table, error) {
	c := &checker{env: rules.Env{Catalog: catalog}}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		c.tx, c.similar = tx, hints(ctx, tx)
		if n := len(rows.Columns); n == 0 || n > maxHeldColumns {
			c.wrong.Addf("hold.rows.columns", "must have 1 to %d columns, not %d", maxHeldColumns, n)
			return c.wrong.Err()
		}
		if c.table = c.find("hold.rows.table", rows.Table); c.table == nil {
			return c.wrong.Err()
		}
		readable := c.table.CanSelect
		for i := range rows.Columns {
			column, err := c.checkHeld(ctx, fmt.Sprintf("hold.rows.columns[%d]", i), rows.Columns[i])
			if err != nil {
				return err
			}
			readable = readable && column.CanSelect
			rows.Columns[i].Number, rows.Columns[i].Column, rows.Columns[i].Type = column.Number, column.Name, column.Type
			if slices.ContainsFunc(rows.Columns[:i], func(c rules.HeldColumn) bool { return c.Column == column.Name }) {
				c.wrong.Addf(fmt.Sprintf("hold.rows.columns[%d].column", i), "%s is named twice", column.Name)
			}
		}
		if c.wrong == nil && !readable {
			return c.unreadable()
		}
		rows.OID, rows.Table = c.table.OID, c.table.FullName()
		return c.wrong.Err()
	})
	return c.table, err
}

// checkHeld checks a column of a hold and its value.
func (c *checker) checkHeld(
	ctx context.Context, field string, held rules.HeldColumn,
) (column campaign.Column, err error) {
	column, ok := c.column(field+".column", c.table, held.Column)
	if !ok {
		return column, nil
	}
	c.checkOrder(field+".column", column)
	field += ".value"
	switch {
	case !connection.IsStorable(held.Value):
		c.wrong.Add(field, "contains a character that the database cannot store")
		return column, nil
	case utf8.RuneCountInString(held.Value) > maxHeldValue:
		c.wrong.Addf(field, "is longer than %d characters", maxHeldValue)
		return column, nil
	case column.Type == "pg_catalog.timestamptz" && !zoned.MatchString(held.Value):
		c.wrong.Addf(field, "%.64q depends on the time zone: write it as 2026-02-03T16:05:00Z", held.Value)
		return column, nil
	}
	meant, err := c.checkMeaning(ctx, field, column, held.Value)
	if err != nil || !meant {
		return column, err
	}
	return column, c.try(ctx, field, sqlexpr.Format("SELECT %s::%s", sqlexpr.Arg(held.Value, "text"), column.Type))
}

// unreadable fails with the statements that let the role read the table.
func (c *checker) unreadable() error {
	role := pgx.Identifier{c.env.Catalog.Role}.Sanitize()
	grants := []string{fmt.Sprintf("GRANT SELECT ON %s TO %s", c.table.Quoted(), role)}
	if !c.table.CanUse {
		schema := pgx.Identifier{c.table.Schema}.Sanitize()
		grants = append([]string{fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", schema, role)}, grants...)
	}
	return failure.New(failure.Precondition,
		"the role cannot find the rows; have the table's owner execute: "+strings.Join(grants, "; "))
}
