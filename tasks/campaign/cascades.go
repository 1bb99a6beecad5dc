package campaign

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Cascade is a foreign key by which rows of a table are deleted, or changed, with the row that they refer to.
type Cascade struct {
	// Table has the rows, Columns refer to Keys of the other one.
	Table         *Table
	Columns, Keys []string // quoted where needed
}

const loadCascades = `
SELECT p.relname::text, c.relname::text,
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i) JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.confkey) WITH ORDINALITY AS u (n, i) JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.i)
FROM pg_constraint k JOIN pg_class p ON p.oid = k.confrelid JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND k.confdeltype IN ('c', 'n', 'd') AND k.conparentid = 0 AND p.relnamespace = to_regnamespace(quote_ident($1)) AND c.relnamespace = p.relnamespace
ORDER BY 2`

// readCascades reads the foreign keys of tables by which others' rows go with theirs.
func (c *Catalog) readCascades(ctx context.Context, db Querier) error {
	rows, err := db.Query(ctx, loadCascades, c.Schema)
	if err != nil {
		return fmt.Errorf("read the foreign keys: %w", err)
	}
	var parent, child string
	var columns, keys []string
	if _, err := pgx.ForEachRow(rows, []any{&parent, &child, &columns, &keys}, func() error {
		if to, from := c.tables[parent], c.tables[child]; to != nil && from != nil {
			to.Cascades = append(to.Cascades, Cascade{from, columns, keys})
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the foreign keys: %w", err)
	}
	return nil
}
