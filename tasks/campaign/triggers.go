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
WHERE t.tgrelid = ANY ($1::oid[]) AND ` + AppTrigger + ` AND t.tgenabled IN ('O', 'A') AND t.tgtype & 16 <> 0`
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

// AppTrigger is true if a row of pg_trigger is a trigger of the application. Before PostgreSQL 15, triggers that a
// partition inherits from its parent count as internal.
const AppTrigger = "(NOT tgisinternal OR tgparentid <> 0 AND tgconstraint = 0)"

// Triggers that deleting rows of the table $1, or updating them ($2, as in pg_trigger.tgtype), fires on it, on its
// partitions and children, and on the tables whose rows foreign keys delete or change with theirs, and whose functions
// run with the rights of the session's role. A batch runs as the owner of its table where the session may become that
// role. Of what foreign keys do, only triggers AFTER run as the session's role, before PostgreSQL 18.
const selectTriggersAsRole = `
WITH RECURSIVE fired (oid, event, cascaded) AS (SELECT $1::oid, $2::int, false
  UNION SELECT more.oid, more.event, more.cascaded FROM fired CROSS JOIN LATERAL (
    SELECT inhrelid, fired.event, fired.cascaded FROM pg_inherits WHERE inhparent = fired.oid
    UNION SELECT f.conrelid, CASE f.confdeltype WHEN 'c' THEN 8 ELSE 16 END, true
    FROM pg_trigger t JOIN pg_constraint f ON f.oid = t.tgconstraint
    WHERE fired.event = 8 AND t.tgrelid = fired.oid AND t.tgconstrrelid <> 0 AND f.contype = 'f'
      AND f.confrelid = fired.oid AND f.confdeltype IN ('c', 'n', 'd')) AS more (oid, event, cascaded))
SELECT DISTINCT format('%I of %I.%I (%s)', t.tgname, n.nspname, c.relname, p.oid::regprocedure)
FROM fired JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_trigger t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE ` + AppTrigger + ` AND t.tgenabled IN ('O', 'A') AND t.tgtype & event <> 0
  AND NOT p.prosecdef AND NOT pg_has_role(c.relowner, 'MEMBER')
  AND NOT EXISTS (SELECT FROM pg_trigger above JOIN fired f ON f.oid = above.tgrelid WHERE above.oid = t.tgparentid)
  AND (NOT cascaded OR t.tgtype & 2 = 0 AND current_setting('server_version_num')::int < 180000)
ORDER BY 1`

// TriggersAsRole returns the triggers, with their tables and functions, that run with the rights of the session's role
// when rows of a table, given by its object id, are deleted or, if update is set, updated.
func TriggersAsRole(ctx context.Context, db Querier, table uint32, update bool) ([]string, error) {
	event := 8
	if update {
		event = 16
	}
	rows, _ := db.Query(ctx, selectTriggersAsRole, table, event)
	triggers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the triggers: %w", err)
	}
	return triggers, nil
}
