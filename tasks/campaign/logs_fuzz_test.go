package campaign_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// TableName returns the name that PostgreSQL gives to a table that is created with the unquoted name, as Campaign does.
func FuzzSchemaName(f *testing.F) {
	for _, name := range []string{
		"nms:broadLogRcp",
		"cus:Log_2",
		"",
		":",
		"nms:",
		":x",
		"a:b:c",
		"nms:broadLog\u212ap",
		"İ:x",
		"nms:ÄÖ",
		"nms:a b",
		"nms:a\"b",
		"nms:a.b",
		"x:1",
		"1:x",
		"nms:\x00", "nms:\xff", "nms:" + strings.Repeat("x", 80),
	} {
		f.Add(name)
	}
	db := pgtest.Empty(f)
	f.Fuzz(func(t *testing.T, schema string) {
		name, ok := campaign.TableName(schema)
		if !ok {
			return
		}
		var parts []string
		if err := db.QueryRow(t.Context(), "SELECT parse_ident($1)", strings.Replace(schema, ":", "", 1)).
			Scan(&parts); err != nil {
			t.Fatalf("%q is not a name in SQL: %v", schema, err)
		}
		if !slices.Equal(parts, []string{name}) {
			t.Errorf("%q is the table %q, PostgreSQL says %q", schema, name, parts)
		}
	})
}
