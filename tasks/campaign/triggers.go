package campaign

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Trigger is an enabled trigger on UPDATE.
type Trigger struct {
	Name string
	// Columns are the unquoted names of the columns whose update fires the trigger; it is empty if any update does.
	Columns []string
}

// FiredBy reports whether updating the columns (unquoted names) fires the trigger.
func (t Trigger) FiredBy(columns []string) bool {
	return len(t.Columns) == 0 || slices.ContainsFunc(columns, func(c string) bool {
		return slices.Contains(t.Columns, c)
	})
}

func readTriggers(ctx context.Context, db Querier, tables map[uint32]*Table) error {
	byLeaf, oids := map[uint32]*Table{}, []uint32{}
	for _, t := range tables {
		byLeaf[t.OID], oids = t, append(oids, t.OID)
		for _, leaf := range t.Leaves {
			byLeaf[leaf.OID], oids = t, append(oids, leaf.OID)
		}
	}
	const sql = `
SELECT DISTINCT t.tgrelid, t.tgname::text, ARRAY(SELECT a.attname::text FROM pg_attribute a
  WHERE a.attrelid = t.tgrelid AND a.attnum = ANY (t.tgattr) ORDER BY 1)
FROM pg_trigger t
WHERE t.tgrelid = ANY ($1::oid[]) AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 16 <> 0`
	var (
		oid     uint32
		trigger Trigger
	)
	rows, _ := db.Query(ctx, sql, oids)
	if _, err := pgx.ForEachRow(rows, []any{&oid, &trigger.Name, &trigger.Columns}, func() error {
		t := byLeaf[oid]
		t.UpdateTriggers = append(t.UpdateTriggers, Trigger{trigger.Name, slices.Clone(trigger.Columns)})
		return nil
	}); err != nil {
		return fmt.Errorf("read the triggers: %w", err)
	}
	return nil
}
