package campaign

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// SimilarTables returns a hint for the end of an error about a table that does not exist: the tables that the name may
// mean; "" if no name is similar.
func SimilarTables(ctx context.Context, db Querier, name string) (string, error) {
	const sql = `SELECT n.nspname, c.relname, pg_table_is_visible(c.oid)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND n.nspname !~ '^(pg_|information_schema$|cleanupd$)'
			AND has_schema_privilege(n.oid, 'USAGE') ORDER BY 1, 2`
	var (
		schema, table string
		visible       bool
		known, hidden []string // hidden are the tables of this name that are not on the search path
	)
	rows, _ := db.Query(ctx, sql)
	_, err := pgx.ForEachRow(rows, []any{&schema, &table, &visible}, func() error {
		switch {
		case strings.Contains(name, "."):
			known = append(known, FullName(schema, table))
		case visible:
			known = append(known, table)
		case strings.EqualFold(name, table):
			hidden = append(hidden, FullName(schema, table))
		}
		return nil
	})
	if hidden != nil {
		return fmt.Sprintf(" (did you mean %s?)", strings.Join(hidden, " or ")), err
	}
	return flags.Similar(name, known), err
}
