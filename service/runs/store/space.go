package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Space holds the sizes in bytes of a table that a task deleted from or vacuumed.
type Space struct {
	Relation         string `json:"Relation"` // quoted, with its schema
	RowsDeleted      int64  `json:"RowsDeleted"`
	RowsCascaded     int64  `json:"RowsCascaded,omitempty"` // deleted or changed through foreign keys
	TableBytesBefore int64  `json:"TableBytesBefore"`
	IndexBytesBefore int64  `json:"IndexBytesBefore"`
	TableBytesAfter  int64  `json:"TableBytesAfter"`
	IndexBytesAfter  int64  `json:"IndexBytesAfter"`
	DeadBytes        *int64 `json:"DeadBytes"` // taken by dead rows until the next VACUUM; nil if unknown
	FreeBytes        *int64 `json:"FreeBytes"` // free for new rows; nil if unknown
}

// measureSQL computes dead and free bytes from the statistics of a table's columns. If VACUUM has left little to
// read, it uses pgstattuple (%s) instead. After VACUUM it takes the row count that VACUUM stored, since sessions
// may still report earlier changes to the server's counters.
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
        WHERE s.run_id = $1 AND s.task = $2) AS w
  LEFT JOIN LATERAL (%s) AS exact ON w.clean) AS m
WHERE s.run_id = $1 AND s.task = $2 AND s.relation = m.relation`

// noPgstattuple replaces the query of pgstattuple where that is not installed or not permitted.
const noPgstattuple = "SELECT NULL::bigint AS dead, NULL::bigint AS free"

// Measure stores the sizes of the task's tables, and returns warnings about tables that are much larger than their
// rows. If a table cannot be measured, it neither fails nor waits long, because the end of the run waits for it and
// the lease could expire.
func Measure(ctx context.Context, tx pgx.Tx, id uuid.UUID, task string) ([]Event, error) {
	queries, err := pgstattuple(ctx, tx, id, task)
	if err != nil {
		return nil, err
	}
	for _, exact := range queries {
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
		return []Event{LogEvent(task, message.SizesUnknown.With("error", err))}, nil
	case task != statistics:
		return nil, nil
	}
	return warnOfLargeTables(ctx, tx, id)
}

// pgstattuple returns the queries to try in order: that of pgstattuple, if this role may use it, and its
// replacement. It returns none if the task has no tables to measure.
func pgstattuple(ctx context.Context, tx pgx.Tx, id uuid.UUID, task string) ([]string, error) {
	rows, _ := tx.Query(
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
		UNION ALL SELECT $1) AS ways (way) WHERE EXISTS (SELECT FROM cleanupd.space WHERE run_id = $2
			AND task = $3)`,
		noPgstattuple, id, task,
	)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// statistics is the task that vacuums.
const statistics = "statistics"

// largeTable is the size in bytes from which a table is reported if at least half of it is free.
const largeTable = 64 << 20

// warnOfLargeTables returns a warning for each table that remains much larger than its rows.
func warnOfLargeTables(ctx context.Context, tx pgx.Tx, id uuid.UUID) ([]Event, error) {
	rows, _ := tx.Query(
		ctx,
		`SELECT relation, pg_size_pretty(table_bytes_after), pg_size_pretty(free_bytes)
		FROM cleanupd.space WHERE run_id = $1 AND task = $2 AND table_bytes_after >= $3
			AND free_bytes * 2 > table_bytes_after
		ORDER BY free_bytes DESC`,
		id, statistics, largeTable,
	)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		var table, size, free string
		err := row.Scan(&table, &size, &free)
		m := message.TableMostlyFree.With("table", table, "size", size, "free", free)
		return LogEvent(statistics, m), err
	})
}
