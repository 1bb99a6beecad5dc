package store

import (
	"context"

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
const policyRevision = "md5(concat(rule - '{description,limit}'::text[], relations))"

// Known is what a task has read and what may change while the task works.
type Known struct {
	// LastHold is the number of the newest hold that the task knows; nil if holds do not matter.
	LastHold *int64
	// Policy and Revision are the policy that the task executes and the revision that it has read; nil if the task is
	// no policy.
	Policy, Revision *string
}

func (k Known) args(args pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	args["last_hold"], args["policy"], args["revision"] = k.LastHold, k.Policy, k.Revision
	return args
}

// orFail returns a query that reads a run's instructions from the given source. The query fails, and its
// transaction with it, if the source has none because the epoch has ended, if a hold was created after @last_hold,
// or if the revision of @policy is no longer @revision. With NULL for @last_hold or @policy it does not check that.
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
    remote_deliveries_retained = remote_deliveries_retained + @recorded, ` + setRetained + `
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
		SELECT `+instructions+`, EXISTS (SELECT FROM started), rows_deleted, rows_updated, rows_cascaded, tables_dropped,
			partitions_removed, batches
			FROM cleanupd.task
		WHERE run_id = @run_id AND name = @task`,
		e.args(pgx.StrictNamedArgs{"task": name}),
	).Scan(&fields, &t.Started, &t.RowsDeleted, &t.RowsUpdated, &t.RowsCascaded, &t.TablesDropped, &t.PartitionsRemoved,
		&t.Batches)
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
	if o.State != cleanup.Cancelled { // the batches have already counted what the task retained
		retained = setRetained + ", "
		addRetained(args, o.Retained)
	}
	_, err := tx.Exec(
		ctx,
		`WITH run AS (SELECT FROM cleanupd.run WHERE `+inEpoch+` FOR UPDATE)
		UPDATE cleanupd.task
			SET state = @state, error = @error, detail = @detail, details = @details, `+retained+`preview = @preview,
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
