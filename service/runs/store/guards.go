package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// GuardRefusal is a guard that tripped and refuses the task until the guard is accepted or released.
type GuardRefusal struct {
	guard.Trip
	Task  string
	RunID string // the first run in which the guard refused the task
	Time  time.Time
}

// GuardLimits returns the stored limits, with the default for each limit that is not stored.
func GuardLimits(ctx context.Context, db campaign.Querier) (guard.Limits, error) {
	return readLimits(ctx, db, "")
}

// LockGuardLimits stores the default limits first if none are stored, because only a row can be locked.
func LockGuardLimits(ctx context.Context, tx pgx.Tx) (guard.Limits, error) {
	if _, err := tx.Exec(
		ctx, "INSERT INTO cleanupd.guards (settings) VALUES ($1) ON CONFLICT DO NOTHING", guard.DefaultLimits,
	); err != nil {
		return guard.Limits{}, err
	}
	return readLimits(ctx, tx, "FOR UPDATE")
}

func readLimits(ctx context.Context, db campaign.Querier, lock string) (guard.Limits, error) {
	limits := guard.DefaultLimits
	var stored []byte
	err := db.QueryRow(ctx, "SELECT settings FROM cleanupd.guards "+lock).Scan(&stored)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return limits, nil
	case err != nil:
		return limits, err
	}
	return limits, json.Unmarshal(stored, &limits)
}

// SetGuardLimits stores new limits, and ends the refusals by guards whose limits changed. before must come from
// LockGuardLimits.
func SetGuardLimits(ctx context.Context, tx pgx.Tx, before, limits guard.Limits) error {
	if _, err := tx.Exec(ctx, "UPDATE cleanupd.guards SET settings = $1", limits); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM cleanupd.guard_refusal WHERE guard = ANY ($1)", before.Changed(limits))
	if err == nil && before.MinProcessInstances != limits.MinProcessInstances {
		_, err = tx.Exec(ctx, "DELETE FROM cleanupd.guard_refusal WHERE task_kind = $1", rules.External.String())
	}
	return err
}

func GuardRefusals(ctx context.Context, db campaign.Querier) ([]GuardRefusal, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT guard, table_name, number, number_limit, at_least, task, run_id::text, trip_time FROM cleanupd.guard_refusal
			ORDER BY trip_time, task, guard, table_name`,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[GuardRefusal])
}

// ReleaseRefusals ends the refusals that were made while an option had another value than in effective.
func ReleaseRefusals(ctx context.Context, tx pgx.Tx, effective map[string]string) error {
	_, err := tx.Exec(
		ctx,
		`DELETE FROM cleanupd.guard_refusal AS l WHERE EXISTS (SELECT FROM jsonb_each_text(l.options) AS was
			JOIN jsonb_each_text($1::jsonb) AS is_now USING (key) WHERE was.value <> is_now.value)`,
		effective,
	)
	return err
}

func GuardHistory(ctx context.Context, db campaign.Querier, id uuid.UUID, task string) (*guard.History, error) {
	h := &guard.History{}
	var err error
	if h.Limits, err = GuardLimits(ctx, db); err != nil {
		return nil, err
	}
	if h.Refused, err = readRefusals(ctx, db, task); err != nil {
		return nil, err
	}
	if h.Deletions, err = readDeletions(ctx, db, id); err != nil {
		return nil, err
	}
	if h.Cutoffs, err = readCutoffs(ctx, db, task); err != nil {
		return nil, err
	}
	if h.Unattended, err = isUnattended(ctx, db, id); err != nil {
		return nil, err
	}
	proven, err := ProvenBases(ctx, db, task)
	if err != nil {
		return nil, err
	}
	h.Proven = proven[task]
	return h, db.QueryRow(ctx, `SELECT max(start_time) FROM cleanupd.run r WHERE NOT dry_run AND id <> $1
		AND EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id AND t.start_time IS NOT NULL)`, id).
		Scan(&h.LastStart)
}

// noFirstRun is the SQL condition that no run that was started by hand or followed a saved plan has succeeded yet.
const noFirstRun = "NOT EXISTS (SELECT FROM cleanupd.first_run)"

// isUnattended reports whether the schedule started the run without a saved plan, before any run started by hand or
// following a saved plan has succeeded.
func isUnattended(ctx context.Context, db campaign.Querier, id uuid.UUID) (unattended bool, err error) {
	return unattended, db.QueryRow(
		ctx,
		`SELECT EXISTS (SELECT FROM cleanupd.run WHERE id = $1 AND requested_by = $2 AND plan IS NULL)
			AND `+noFirstRun,
		id, RequestedBySchedule,
	).Scan(&unattended)
}

// ProvenBases returns, by the tasks of policies, the basis that each had when a run that followed a saved plan last
// executed it; "" if no such run exists. task limits this to one task; "" means all.
func ProvenBases(ctx context.Context, db campaign.Querier, task string) (map[string]string, error) {
	rows, _ := db.Query(ctx, "SELECT $1 || name, proven_basis FROM cleanupd.policy WHERE $2 IN ('', $1 || name)",
		policy.Prefix, task)
	var of, basis string
	bases := map[string]string{}
	_, err := pgx.ForEachRow(rows, []any{&of, &basis}, func() error {
		bases[of] = basis
		return nil
	})
	return bases, err
}

// NextIsUnattended reports whether the next scheduled run would be unattended if it followed no saved plan.
func NextIsUnattended(ctx context.Context, db campaign.Querier) (unattended bool, err error) {
	return unattended, db.QueryRow(ctx, "SELECT "+noFirstRun).Scan(&unattended)
}

// RecordFirst stores the run as the first one if none is stored yet and it was no dry run and no restore, succeeded,
// and was started by hand or followed a saved plan.
func RecordFirst(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.first_run (run_id, end_time) SELECT id, end_time FROM cleanupd.run
			WHERE id = $1 AND NOT dry_run AND restore IS NULL AND state = 'SUCCEEDED'
				AND (requested_by <> $2 OR plan IS NOT NULL)
		ON CONFLICT DO NOTHING`,
		id, RequestedBySchedule,
	)
	return err
}

// readRefusals omits refusals by guard.Policy: the next saved plan passes it, whatever the number.
func readRefusals(ctx context.Context, db campaign.Querier, task string) ([]guard.Refusal, error) {
	rows, _ := db.Query(ctx,
		"SELECT guard, table_name, number, number_limit, at_least, options FROM cleanupd.guard_refusal WHERE task = $1 "+
			"AND guard <> $2 ORDER BY guard, table_name",
		task, guard.Policy)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[guard.Refusal])
}

// readDeletions includes runs that have not ended. Recent rows exclude runs in which the share guard was accepted for
// the table. Restored rows do not count, unless some of their run may have been restored into another schema.
func readDeletions(ctx context.Context, db campaign.Querier, id uuid.UUID) (map[string]guard.Deletions, error) {
	rows, _ := db.Query(
		ctx,
		`WITH deleted AS (
		  SELECT t.table_name, t.start_time, t.rows_deleted - LEAST(t.rows_deleted, COALESCE((SELECT sum(rows_restored)
		      FROM cleanupd.trash b WHERE b.run_id = t.run_id AND b.root = t.table_name AND NOT EXISTS (
		        SELECT FROM cleanupd.run r WHERE r.restore ->> 'run' = t.run_id::text AND r.restore ->> 'into' <> '')), 0))
		    AS rows_deleted, t.rows_updated, is_typical, EXISTS (SELECT FROM cleanupd.run r
		    WHERE r.id = t.run_id
		    AND r.accepted_guards @> jsonb_build_array(jsonb_build_object('Guard', @share::text, 'Table',
		    t.table_name))) AS accepted
		  FROM cleanupd.deletion t
		  UNION ALL
		  SELECT COALESCE(NULLIF(s.root, ''), s.relation), r.start_time, s.rows_deleted, s.rows_updated, false, false
		    FROM cleanupd.space s JOIN cleanupd.run r ON r.id = s.run_id
		    WHERE NOT r.dry_run AND r.`+active+`),
		begun AS (SELECT start_time FROM cleanupd.run WHERE id = @run_id)
		SELECT t.table_name, COALESCE(sum(rows_deleted + rows_updated) FILTER (WHERE lately), 0)::bigint,
			COALESCE(sum(rows_deleted) FILTER (WHERE lately), 0)::bigint,
			COALESCE(max(rows_deleted + rows_updated) FILTER (WHERE is_typical), 0)::bigint
		FROM deleted AS t, begun, LATERAL (SELECT NOT accepted
			AND t.start_time > begun.start_time - @share_period::interval AS lately) AS l
		WHERE t.start_time > begun.start_time - @typical_period::interval GROUP BY 1`,
		pgx.StrictNamedArgs{
			"run_id":         id,
			"share":          guard.Share,
			"share_period":   guard.SharePeriod,
			"typical_period": guard.TypicalPeriod,
		},
	)
	var (
		table     string
		d         guard.Deletions
		deletions = map[string]guard.Deletions{}
	)
	_, err := pgx.ForEachRow(rows, []any{&table, &d.Recent, &d.RecentDeleted, &d.Typical}, func() error {
		deletions[table] = d
		return nil
	})
	return deletions, err
}

// readCutoffs returns the cutoffs with which the task last succeeded, by the name of the option that sets their
// delay.
func readCutoffs(ctx context.Context, db campaign.Querier, task string) (map[string]guard.CutoffRecord, error) {
	rows, _ := db.Query(ctx, "SELECT delay, cutoff, reference_time, clock_offset FROM cleanupd.cutoff WHERE task = $1",
		task)
	var (
		delay   string
		c       guard.CutoffRecord
		offset  int64
		cutoffs = map[string]guard.CutoffRecord{}
	)
	_, err := pgx.ForEachRow(rows, []any{&delay, &c.At, &c.ReferenceTime, &offset}, func() error {
		c.ClockOffset = time.Duration(offset) * time.Microsecond
		cutoffs[delay] = c
		return nil
	})
	return cutoffs, err
}

// RecordJudgement stores the guards that refused a task, and deletes the stored refusals that no longer apply. If
// the task succeeded, it also stores the cutoffs. accepted are the guards that the run may pass. It is not called
// for dry runs and restores.
func RecordJudgement(
	ctx context.Context, tx pgx.Tx, id uuid.UUID, task string, o cleanup.Outcome, accepted []guard.Trip,
) error {
	b := &pgx.Batch{}
	if o.State == cleanup.Succeeded {
		b.Queue("DELETE FROM cleanupd.guard_refusal WHERE task = $1", task)
		b.Queue(
			`UPDATE cleanupd.policy SET proven_basis = $1 WHERE $2 || name = $3 AND EXISTS (SELECT FROM cleanupd.run
				WHERE id = $4 AND plan IS NOT NULL) AND EXISTS (SELECT FROM cleanupd.task
				WHERE run_id = $4 AND name = $3 AND rows_deleted + rows_updated + partitions_removed > 0)`,
			o.Options[task], policy.Prefix, task, id,
		)
		for delay, c := range o.Cutoffs {
			b.Queue(
				`INSERT INTO cleanupd.cutoff (task, delay, cutoff, reference_time, clock_offset)
					VALUES (@task, @delay, @cutoff, @reference_time, @clock_offset)
				ON CONFLICT (task, delay) DO UPDATE
					SET cutoff = excluded.cutoff, reference_time = excluded.reference_time,
					clock_offset = excluded.clock_offset`,
				pgx.StrictNamedArgs{
					"task":           task,
					"delay":          delay,
					"cutoff":         c.At,
					"reference_time": c.ReferenceTime,
					"clock_offset":   c.ClockOffset.Microseconds(),
				},
			)
		}
	}
	// An accepted guard is released even if the task failed before the guards checked it, because they check it again next
	// time.
	if o.Trips == nil && o.State != cleanup.NotRun && o.Reason != failure.ReasonPlanStale {
		for _, a := range accepted {
			b.Queue("DELETE FROM cleanupd.guard_refusal WHERE task = $1 AND guard = $2 AND table_name = $3", task,
				a.Guard, a.Table)
		}
	}
	if o.Trips != nil {
		b.Queue("DELETE FROM cleanupd.guard_refusal WHERE task = $1 AND options <> $2", task, o.Options)
	}
	for _, t := range o.Trips {
		b.Queue(
			`INSERT INTO cleanupd.guard_refusal (task, task_kind, guard, table_name, number, number_limit, at_least,
				options, run_id)
				SELECT name, kind, @guard, @table, @number, @limit, @at_least, @options, run_id FROM cleanupd.task
				WHERE run_id = @run_id AND name = @task
			ON CONFLICT (task, guard, table_name) DO UPDATE SET number = excluded.number, number_limit = excluded.number_limit,
				at_least = excluded.at_least`,
			pgx.StrictNamedArgs{
				"task":     task,
				"guard":    t.Guard,
				"table":    t.Table,
				"number":   t.Number,
				"limit":    t.Limit,
				"at_least": t.AtLeast,
				"options":  o.Options,
				"run_id":   id,
			},
		)
	}
	return tx.SendBatch(ctx, b).Close()
}

// RecordDeletions stores how many rows a run deleted from each table; these numbers outlive the run. They do not
// count as typical if a guard refused a task of the run or was accepted.
func RecordDeletions(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.deletion (run_id, table_name, start_time, rows_deleted, rows_updated, is_typical)
		SELECT r.id, COALESCE(NULLIF(s.root, ''), s.relation), r.start_time, sum(s.rows_deleted), sum(s.rows_updated),
		  r.accepted_guards IS NULL AND NOT EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id AND t.reason = $2)
		FROM cleanupd.run r JOIN cleanupd.space s ON s.run_id = r.id
		WHERE r.id = $1 AND NOT r.dry_run AND (s.rows_deleted > 0 OR s.rows_updated > 0) GROUP BY 1, 2, 3
		ON CONFLICT DO NOTHING`,
		id, failure.ReasonGuard,
	)
	return err
}

type Deletion struct {
	RunID       string
	StartTime   time.Time
	RowsDeleted int64
	Tasks       []string // the tasks that deleted from the table; nil if the run was pruned
}

// Deletions returns the last runs that deleted from the table, at most limit of them.
func Deletions(ctx context.Context, db campaign.Querier, table string, limit int) ([]Deletion, error) {
	rows, _ := db.Query(
		ctx,
		`WITH active AS (SELECT r.id, s.root, r.start_time, sum(s.rows_deleted)::bigint AS rows FROM cleanupd.run r
			JOIN cleanupd.space s ON s.run_id = r.id
		  WHERE r.state IN ('RUNNING', 'PAUSED') AND NOT r.dry_run GROUP BY 1, 2, 3)
		SELECT run_id::text, start_time, rows_deleted, ARRAY(SELECT DISTINCT s.task FROM cleanupd.space s
			WHERE s.run_id = t.run_id AND $1 IN (s.root, s.relation) AND s.rows_deleted > 0 ORDER BY 1)
		FROM (SELECT run_id, table_name, start_time, rows_deleted FROM cleanupd.deletion UNION ALL SELECT *
			FROM active) AS t
		WHERE table_name = $1 AND rows_deleted > 0 ORDER BY start_time DESC, run_id LIMIT $2`,
		table, limit,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Deletion])
}
