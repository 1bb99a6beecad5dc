package campaign_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// The key of each table that a task deletes from is the column of its unique index: the zero record is recognized by
// it.
func TestKeysOfKnownTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	catalog, err := campaign.LoadCatalog(t.Context(), db.Pool, campaign.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(t.Context(), `SELECT c.relname::text, min(a.attname)::text FROM pg_index i
		JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
		WHERE c.relnamespace = 'public'::regnamespace AND i.indisunique AND i.indnatts = 1
			AND a.atttypid IN ('int4'::regtype, 'int8'::regtype)
		GROUP BY 1 HAVING count(*) = 1`)
	if err != nil {
		t.Fatal(err)
	}
	var name, column string
	tables := 0
	if _, err := pgx.ForEachRow(rows, []any{&name, &column}, func() error {
		tables++
		if key := catalog.Table(name).Key; !strings.EqualFold(key, column) {
			t.Errorf("%s has the key %q, want %q", name, key, column)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if tables < 20 {
		t.Errorf("only %d tables have such an index", tables)
	}
}
