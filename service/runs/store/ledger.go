package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// These SQLSTATEs are raised by functions of the schema: the epoch has ended, a hold was created after the task had
// read the holds, or the policy was changed after the task had read it.
const (
	stateFenced        = "CU001"
	stateHoldCreated   = "CU002"
	statePolicyChanged = "CU003"
)

// policyRevision is the SQL for a hash that changes if the rule of a policy changes, or if the policy is enabled or
// disabled.
const policyRevision = "md5(concat(rule - '{description,limit,undo}'::text[], relations))"

// Known is what a task has read that others may change while the task works.
type Known struct {
	// LastHold is the number of the newest hold that the task has read; nil if holds do not matter.
	LastHold *int64
	// Policy and Revision are the policy that the task executes and the revision that it has read; nil if the task is
	// no policy.
	Policy, Revision *string
}

func (k Known) args(args pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	args["last_hold"], args["policy"], args["revision"] = k.LastHold, k.Policy, k.Revision
	return args
}

// orFail returns a query that reads a run's instructions from the given source. The query fails, and its transaction
// with it, if the source has none because the epoch has ended, if a hold was created after @last_hold, or if the
// revision of @policy is no longer @revision. If @last_hold or @policy is NULL, the query skips its check.
func orFail(from string) string {
	return `SELECT CASE WHEN count(fields) <> 1 THEN ARRAY[cleanupd.fenced()]
		WHEN (SELECT max(number) FROM cleanupd.hold) > @last_hold::bigint THEN ARRAY[cleanupd.hold_created()]
		WHEN @policy::text IS NOT NULL AND NOT EXISTS (SELECT FROM cleanupd.policy
			WHERE name = @policy AND ` + policyRevision + ` = @revision) THEN ARRAY[cleanupd.policy_changed()]
		ELSE max(fields) END FROM ` + from
}

// askToProceed only reads the instructions. writeLedger also adds the counts of a batch, and stores the size that
// each table had before its first batch.
var (
	askToProceed = orFail("(SELECT " + instructions + " AS fields) AS asked")

	writeLedger = `
WITH space AS (
  INSERT INTO cleanupd.space AS s (run_id, task, relation, root, rows_deleted, rows_updated, rows_cascaded,
    table_bytes_before, index_bytes_before)
  SELECT @run_id::uuid, @task, relation, root, rows, updated, cascaded,
    COALESCE(NULLIF(table_bytes, 0), pg_table_size(measured), 0),
    COALESCE(NULLIF(index_bytes, 0), pg_indexes_size(measured), 0)
  FROM unnest(@relations::text[], @rows::bigint[], @table_bytes::bigint[], @index_bytes::bigint[], @roots::text[],
    @rows_updated::bigint[], @rows_cascaded::bigint[]) AS e (relation, rows, table_bytes, index_bytes, root, updated,
    cascaded),
    LATERAL (SELECT CASE WHEN NOT EXISTS (
      SELECT FROM cleanupd.space AS known WHERE known.run_id = @run_id::uuid AND known.task = @task
        AND known.relation = e.relation) THEN to_regclass(relation) END AS measured) AS first
  ON CONFLICT (run_id, task, relation) DO UPDATE
    SET rows_deleted = s.rows_deleted + EXCLUDED.rows_deleted, rows_updated = s.rows_updated + EXCLUDED.rows_updated,
      rows_cascaded = s.rows_cascaded + EXCLUDED.rows_cascaded),
counts AS (
  UPDATE cleanupd.task SET rows_deleted = rows_deleted + @deleted, rows_updated = rows_updated + @updated,
    rows_cascaded = rows_cascaded + @cascaded,
    tables_dropped = tables_dropped + @dropped, partitions_removed = partitions_removed + @partitions,
    batches = batches + @batches, cursor = @cursor,
    remote_deliveries_retained = remote_deliveries_retained + @recorded,
    rows_restored = rows_restored + @restored, ` + setRetained + `
  WHERE run_id = @run_id AND epoch = @epoch AND name = @task AND state = 'RUNNING'
  RETURNING ` + instructions + ` AS fields)
` + orFail("counts")
)

const setRetained = `rows_failed = @failed, rows_locked = @locked, rows_suppressed = @suppressed,
	rows_dependent = @dependent, rows_on_hold = @on_hold, tables_retained = @tables_retained`

func addRetained(args pgx.StrictNamedArgs, r purge.Retained) {
	args["failed"], args["locked"], args["suppressed"] = r.Failed, r.Locked, r.Suppressed
	args["dependent"], args["on_hold"], args["tables_retained"] = r.Dependent, r.OnHold, r.Tables
}

// ProceedStatement returns a statement that reads the instructions. ParseInstructions reads its result, and
// LedgerError translates its errors.
func ProceedStatement(e Epoch, k Known) (sql string, args pgx.StrictNamedArgs) {
	return askToProceed, e.args(k.args(pgx.StrictNamedArgs{}))
}

// LedgerStatement returns a statement that adds a batch to the exact counts of a task. Its result and its errors
// are those of ProceedStatement.
func LedgerStatement(e Epoch, k Known, task string, d purge.Delta) (sql string, args pgx.StrictNamedArgs) {
	args = e.args(k.args(pgx.StrictNamedArgs{
		"task":       task,
		"deleted":    d.Deleted,
		"updated":    d.Updated,
		"cascaded":   d.Cascaded,
		"dropped":    d.Dropped,
		"partitions": d.Partitions,
		"batches":    Batches(d),
		"cursor":     d.Cursor,
		"recorded":   d.Recorded,
		"restored":   d.RowsRestored(),
	}))
	relations, roots := []string{}, []string{}
	rows, updated, cascaded, tables, indexes := []int64{}, []int64{}, []int64{}, []int64{}, []int64{}
	for _, s := range d.Space {
		relations, rows = append(relations, s.Relation), append(rows, s.Rows)
		tables, indexes = append(tables, s.TableBytes), append(indexes, s.IndexBytes)
		roots, updated, cascaded = append(roots, s.Root), append(updated, s.Updated), append(cascaded, s.Cascaded)
	}
	args["relations"], args["rows"], args["table_bytes"] = relations, rows, tables
	args["index_bytes"], args["roots"], args["rows_updated"], args["rows_cascaded"] = indexes, roots, updated, cascaded
	addRetained(args, d.Cursor.TotalRetained())
	return writeLedger, args
}

func Batches(d purge.Delta) int64 {
	if d.Empty() {
		return 0
	}
	return max(d.Statements, 1)
}

// LedgerError translates the errors that the ledger raises to ErrFenced, cleanup.ErrHoldCreated or
// cleanup.ErrPolicyChanged, and returns other errors unchanged.
func LedgerError(err error) error {
	switch {
	case sqlstate.Is(err, stateFenced):
		return ErrFenced
	case sqlstate.Is(err, stateHoldCreated):
		return cleanup.ErrHoldCreated
	case sqlstate.Is(err, statePolicyChanged):
		return cleanup.ErrPolicyChanged
	}
	return err
}

type StartedTask struct {
	Instructions *Instructions // nil if the epoch has ended
	Started      bool          // false if a previous worker had started the task
	Progress
}

// StartTask starts a task, and reads its counts so far. It does not change a task that a previous worker has
// started.
func StartTask(ctx context.Context, tx pgx.Tx, e Epoch, name string) (t StartedTask, err error) {
	var fields []string
	err = tx.QueryRow(
		ctx,
		`WITH started AS (UPDATE cleanupd.task SET state = 'RUNNING', start_time = clock_timestamp()
			WHERE run_id = @run_id AND name = @task AND epoch = @epoch AND state <> 'RUNNING' RETURNING name)
		SELECT `+instructions+`, EXISTS (SELECT FROM started), rows_deleted, rows_updated, rows_cascaded, rows_restored,
			tables_dropped, partitions_removed, batches
			FROM cleanupd.task
		WHERE run_id = @run_id AND name = @task`,
		e.args(pgx.StrictNamedArgs{"task": name}),
	).Scan(&fields, &t.Started, &t.RowsDeleted, &t.RowsUpdated, &t.RowsCascaded, &t.RowsRestored, &t.TablesDropped,
		&t.PartitionsRemoved, &t.Batches)
	t.Instructions = ParseInstructions(fields)
	return t, err
}

// FinishTask stores the outcome of a task, including the preview of a dry run. It locks the run before the task, as
// pauses and AppendEvents do, to avoid deadlocks.
func FinishTask(ctx context.Context, tx pgx.Tx, e Epoch, task string, o cleanup.Outcome) error {
	args := e.args(pgx.StrictNamedArgs{
		"task":       task,
		"state":      string(o.State),
		"error":      connection.Text(o.Problem),
		"detail":     connection.Text(message.Join(o.Details)),
		"details":    nil,
		"preview":    nil,
		"saved_plan": o.Preview,
		"existing":   o.Existing,
		"reason":     o.Reason,
		"metadata":   o.Metadata,
	})
	if o.Preview != nil {
		args["preview"] = o.Preview.Tables
	}
	if o.Details != nil {
		args["details"] = o.Details
	}
	retained := ""
	if o.State != cleanup.Cancelled { // the batches have already counted the retained rows
		retained = setRetained + ", "
		addRetained(args, o.Retained)
	}
	_, err := tx.Exec(
		ctx,
		`WITH run AS (SELECT FROM cleanupd.run WHERE `+inEpoch+` FOR UPDATE)
		UPDATE cleanupd.task
			SET state = @state, error = @error, detail = @detail, details = @details, `+retained+`preview = @preview,
			rows_existing = @existing,
			saved_plan = @saved_plan, reason = @reason, metadata = @metadata, end_time = clock_timestamp()
		WHERE EXISTS (SELECT FROM run) AND run_id = @run_id AND name = @task AND epoch = @epoch`,
		args,
	)
	return err
}

// DoneByTable returns how many rows a task has deleted and updated in each relation.
func DoneByTable(ctx context.Context, db campaign.Querier, id uuid.UUID, task string) ([]purge.Space, error) {
	rows, _ := db.Query(ctx,
		`SELECT relation, root, rows_deleted, rows_updated, rows_cascaded FROM cleanupd.space
			WHERE run_id = $1 AND task = $2`,
		id, task)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s purge.Space, err error) {
		return s, row.Scan(&s.Relation, &s.Root, &s.Rows, &s.Updated, &s.Cascaded)
	})
}

// Emptied returns the quoted names of the tables from which a task has deleted rows, those with the most rows
// first. If task is "", all tasks of the run count.
func Emptied(ctx context.Context, db campaign.Querier, id uuid.UUID, task string) ([]string, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT relation FROM cleanupd.space WHERE run_id = $1 AND $2 IN ('', task) AND rows_deleted > 0
		GROUP BY relation ORDER BY sum(rows_deleted) DESC, relation`,
		id, task,
	)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

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

// measureSQL computes dead and free bytes from the statistics of a table's columns. If at least 90 percent of the pages
// are all-visible, it uses pgstattuple (%s) instead, which then has little to read. After VACUUM it takes the row count
// that VACUUM stored, since sessions may still report earlier changes to the server's counters.
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

// noPgstattuple replaces the query of pgstattuple if the extension is missing, not permitted, or fails.
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
