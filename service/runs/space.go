package runs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Space is the size, in bytes, of a table that a task deleted from, or vacuumed.
type Space struct {
	Relation         string `json:"Relation"` // quoted, with its schema
	RowsDeleted      int64  `json:"RowsDeleted"`
	TableBytesBefore int64  `json:"TableBytesBefore"`
	IndexBytesBefore int64  `json:"IndexBytesBefore"`
	TableBytesAfter  int64  `json:"TableBytesAfter"`
	IndexBytesAfter  int64  `json:"IndexBytesAfter"`
	DeadBytes        *int64 `json:"DeadBytes"` // held by dead rows until VACUUM; nil: unknown
	FreeBytes        *int64 `json:"FreeBytes"` // that new rows will use; nil: unknown
}

// withSpace begins the account of a batch: it records a table's size as it was before the first one.
const withSpace = `WITH space AS (
  INSERT INTO cleanupd.space AS s (run_id, task, relation, root, rows_deleted, rows_updated, table_bytes_before,
    index_bytes_before)
  SELECT $1::text::uuid, $3, relation, root, rows, updated, COALESCE(NULLIF(table_bytes, 0), pg_table_size(asked), 0),
    COALESCE(NULLIF(index_bytes, 0), pg_indexes_size(asked), 0)
  FROM unnest($9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bigint[]) AS e (relation,
    rows, table_bytes, index_bytes, root, updated), LATERAL (SELECT CASE WHEN NOT EXISTS (
    SELECT FROM cleanupd.space AS known WHERE known.run_id = $1::text::uuid AND known.task = $3
      AND known.relation = e.relation) THEN to_regclass(relation) END AS asked) AS first
  ON CONFLICT (run_id, task, relation) DO UPDATE
    SET rows_deleted = s.rows_deleted + EXCLUDED.rows_deleted, rows_updated = s.rows_updated + EXCLUDED.rows_updated)`

// spaceArgs are the parameters of withSpace, from the ninth on.
func spaceArgs(spaces []purge.Space) []any {
	relations, rows, tables, indexes, roots, updated := []string{}, []int64{}, []int64{}, []int64{}, []string{}, []int64{}
	for _, s := range spaces {
		relations, rows = append(relations, s.Relation), append(rows, s.Rows)
		tables, indexes = append(tables, s.TableBytes), append(indexes, s.IndexBytes)
		roots, updated = append(roots, s.Root), append(updated, s.Updated)
	}
	return []any{relations, rows, tables, indexes, roots, updated}
}

// measureSQL records the size of tables. Dead and free bytes are computed from the statistics of a table's columns, or
// come from pgstattuple (%s) if VACUUM has left little for it to read. After VACUUM its row count is used, since
// sessions may still report earlier changes to the server's counters.
const measureSQL = `
UPDATE cleanupd.space AS s
  SET table_bytes_after = m.table_bytes, index_bytes_after = m.index_bytes, dead_bytes = m.dead, free_bytes = m.free
FROM (SELECT w.relation, w.table_bytes, w.index_bytes,
        COALESCE(exact.dead, least(w.dead * width, heap))::bigint AS dead,
        COALESCE(exact.free, greatest(heap - (w.dead + live) * width, 0))::bigint AS free
  FROM (SELECT s.relation, c.oid, COALESCE(pg_table_size(c.oid), 0) AS table_bytes, COALESCE(pg_indexes_size(c.oid),
    0) AS index_bytes,
          pg_relation_size(c.oid) * 8168.0 / 8192 AS heap, c.relallvisible >= 0.9 * c.relpages AS clean,
          CASE WHEN vacuumed THEN c.reltuples::numeric WHEN c.reltuples = 0
            OR pg_stat_get_live_tuples(c.oid) > 0 THEN pg_stat_get_live_tuples(c.oid) END AS live,
          CASE
            WHEN vacuumed THEN pg_stat_get_dead_tuples(c.oid) ELSE greatest(pg_stat_get_dead_tuples(c.oid),
            s.rows_deleted) END AS dead,
          (SELECT 4 + ceil((24 + sum(avg_width * (1 - null_frac))) / 8) * 8 FROM pg_stats
            WHERE schemaname = n.nspname AND tablename = c.relname AND NOT inherited) AS width
        FROM cleanupd.space AS s JOIN cleanupd.task AS t ON t.run_id = s.run_id AND t.name = s.task
        LEFT JOIN pg_class AS c ON c.oid = to_regclass(s.relation) LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
        CROSS
          JOIN LATERAL (SELECT COALESCE(greatest(pg_stat_get_last_vacuum_time(c.oid),
          pg_stat_get_last_autovacuum_time(c.oid)) > t.start_time, false) AS vacuumed) AS v
        WHERE s.run_id = $1::text::uuid AND s.task = $2) AS w
  LEFT JOIN LATERAL (%s) AS exact ON w.clean) AS m
WHERE s.run_id = $1::text::uuid AND s.task = $2 AND s.relation = m.relation`

// noPgstattuple replaces its query where it may not be used.
const noPgstattuple = "SELECT NULL::bigint AS dead, NULL::bigint AS free"

// measure records the size of a task's tables, and reports which stay much larger than their rows. It neither fails nor
// waits long for a table that cannot be measured, since the end of the run would wait, too, and its lease run out.
func measure(ctx context.Context, tx pgx.Tx, id, task string) ([]Event, error) {
	asked, err := pgstattuple(ctx, tx, id, task)
	if err != nil {
		return nil, err
	}
	for _, exact := range asked {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("SET LOCAL lock_timeout = '100ms'")
			b.Queue("SET LOCAL statement_timeout = '2s'")
			b.Queue(fmt.Sprintf(measureSQL, exact), id, task)
			b.Queue("SET LOCAL lock_timeout TO DEFAULT") // for the rest of the transaction
			b.Queue("SET LOCAL statement_timeout TO DEFAULT")
			return tx.SendBatch(ctx, b).Close()
		})
		if err == nil || sqlstate.Lost(err) {
			break
		}
	}
	switch {
	case sqlstate.Lost(err):
		return nil, err
	case err != nil:
		return []Event{
			{
				Kind:    LogLine,
				Level:   severity.Warning,
				Task:    task,
				Message: "the size of the tables can not be told: " + err.Error(),
			},
		}, nil
	case task != statistics:
		return nil, nil
	}
	return large(ctx, tx, id)
}

// pgstattuple are the query of it, if this role may use it, and the one that does without it; none for a task without
// tables to measure.
func pgstattuple(ctx context.Context, tx pgx.Tx, id, task string) ([]string, error) {
	rows, err := tx.Query(
		ctx,
		`SELECT way
			FROM
			(SELECT
			format('SELECT dead_tuple_len AS dead, approx_free_space AS free FROM %I.pgstattuple_approx(w.oid)',
			n.nspname)
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_depend d ON d.objid = p.oid
			AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pgstattuple'
		WHERE p.proname = 'pgstattuple_approx' AND has_function_privilege(p.oid, 'EXECUTE')
			AND has_schema_privilege(n.oid, 'USAGE')
		UNION ALL SELECT $1) AS ways (way) WHERE EXISTS (SELECT FROM cleanupd.space WHERE run_id = $2::text::uuid
			AND task = $3)`,
		noPgstattuple,
		id,
		task,
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// statistics is the task that vacuums.
const statistics = "statistics"

// largeTable is from which size on a table is reported if half of it is free.
const largeTable = 64 << 20

// large names the tables that stay much larger than their rows, and what helps.
func large(ctx context.Context, tx pgx.Tx, id string) ([]Event, error) {
	rows, err := tx.Query(
		ctx,
		`SELECT
			format('%s is %s, of which %s are free: new rows will use them; to give them back to the disk, run pg_repack, '
		'or VACUUM FULL in a quiet hour (nobody can read the table meanwhile)', relation,
			pg_size_pretty(table_bytes_after), pg_size_pretty(free_bytes))
		FROM cleanupd.space WHERE run_id = $1::text::uuid AND task = $2 AND table_bytes_after >= $3
			AND free_bytes * 2 > table_bytes_after
		ORDER BY free_bytes DESC`,
		id,
		statistics,
		largeTable,
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		e := Event{Kind: LogLine, Level: severity.Warning, Task: statistics}
		return e, row.Scan(&e.Message)
	})
}

// Emptied implements pipeline.Counts.
func (j *journal) Emptied(ctx context.Context, task string) ([]string, error) {
	rows, err := j.m.pool.Query(
		ctx,
		`SELECT relation FROM cleanupd.space WHERE run_id = $1::text::uuid AND $2 IN ('', task) AND rows_deleted > 0
		GROUP BY relation ORDER BY sum(rows_deleted) DESC, relation`,
		j.claim.id,
		task,
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
