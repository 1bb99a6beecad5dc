package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Status is read for metrics.
type Status struct {
	// LastSuccess is when a run of the whole pipeline last succeeded, LastPartialSuccess when a run of only some tasks
	// did. Both are in Unix seconds; 0 if there was none. Restores do not count.
	LastSuccess, LastPartialSuccess float64
	// The next fields count the active runs.
	Queued, Running, Paused, QueuedDry, RunningDry, PausedDry float64

	ScheduleEnabled float64  // 1 or 0
	NextRunTime     *float64 // in Unix seconds; nil if no run is due
	// Pace is the pace of the active run that deletes; "" without such a run. PausedByCaller and PausedBySchedule say
	// since when it, or the run that waits for it, has been paused by a caller or by the schedule, in Unix seconds; 0 if
	// none is.
	Pace                             pace.Pace
	PausedByCaller, PausedBySchedule float64
}

func GetStatus(ctx context.Context, db campaign.Querier) (Status, error) {
	rows, _ := db.Query(ctx, `
WITH success AS (SELECT extract(epoch FROM end_time) AS at, EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id
  AND NOT t.chosen) AS part
  FROM cleanupd.run r WHERE state = 'SUCCEEDED' AND NOT dry_run AND restore IS NULL),
active AS (SELECT slot, state, dry_run, pace, pause_time, paused_by FROM cleanupd.run WHERE `+active+`),
paused AS (SELECT extract(epoch FROM pause_time)::float8 AS since, paused_by = $1 AS by_schedule FROM active
  WHERE NOT dry_run)
SELECT (SELECT COALESCE(max(at), 0)::float8 FROM success WHERE NOT part), (SELECT COALESCE(max(at), 0)::float8
  FROM success WHERE part),
  count(*) FILTER (WHERE state = 'QUEUED' AND NOT dry_run)::float8,
  count(*) FILTER (WHERE state = 'RUNNING' AND NOT dry_run)::float8,
  count(*) FILTER (WHERE state = 'PAUSED' AND NOT dry_run)::float8,
  count(*) FILTER (WHERE state = 'QUEUED' AND dry_run)::float8,
  count(*) FILTER (WHERE state = 'RUNNING' AND dry_run)::float8,
  count(*) FILTER (WHERE state = 'PAUSED' AND dry_run)::float8,
  (SELECT count(*)::float8 FROM cleanupd.schedule WHERE enabled), (SELECT extract(epoch FROM next_run_time)::float8
    FROM cleanupd.schedule),
  COALESCE((SELECT pace FROM active WHERE slot = 0), ''),
  COALESCE((SELECT min(since) FROM paused WHERE NOT by_schedule), 0),
  COALESCE((SELECT min(since) FROM paused WHERE by_schedule), 0)
FROM active`, RequestedBySchedule)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Status])
}

// Retained counts the rows that the last run of a task retained. It is read for metrics.
type Retained struct {
	Task                                          string
	Failed, Locked, Suppressed, Dependent, OnHold float64
	Tables                                        float64 // tables whose end was not reached
}

// LastRetained returns the rows that the last run of each task retained. Dry runs and restores do not count.
func LastRetained(ctx context.Context, db campaign.Querier) ([]Retained, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT DISTINCT ON (t.name) t.name, rows_failed::float8, rows_locked::float8, rows_suppressed::float8,
			rows_dependent::float8, rows_on_hold::float8, tables_retained::float8
		FROM cleanupd.task t JOIN cleanupd.run r ON r.id = t.run_id
		WHERE NOT r.dry_run AND r.restore IS NULL AND t.chosen AND t.state IN ('SUCCEEDED', 'SKIPPED', 'FAILED')
			ORDER BY t.name, r.create_time DESC`,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Retained])
}

// LastSuccesses returns for each task the reference time of the last run in which it succeeded. Dry runs and
// restores do not count.
func LastSuccesses(ctx context.Context, db campaign.Querier) (map[string]time.Time, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT t.name, max(r.reference_time) FROM cleanupd.task t JOIN cleanupd.run r ON r.id = t.run_id
		WHERE t.state = 'SUCCEEDED' AND NOT r.dry_run AND r.restore IS NULL GROUP BY t.name`,
	)
	var (
		task string
		at   time.Time
		last = map[string]time.Time{}
	)
	_, err := pgx.ForEachRow(rows, []any{&task, &at}, func() error { last[task] = at; return nil })
	return last, err
}

// Act is an entry of the audit with its number.
type Act struct {
	ID int64
	audit.Entry
}

// ActFilter chooses entries of the audit; empty fields choose all.
type ActFilter struct {
	Text  string // a part of any of its columns, in any case
	Since *time.Time
}

// ListActs returns entries of the audit, newest first, and the token of the next page, "" on the last page. It
// fails with pagetoken.ErrInvalid.
func ListActs(
	ctx context.Context, db campaign.Querier, filter ActFilter, size int, token string,
) ([]Act, string, error) {
	before, err := pagetoken.ParseNumber(token)
	if err != nil {
		return nil, "", err
	}
	rows, err := db.Query(ctx, `SELECT id, `+audit.Columns+` FROM cleanupd.audit
		WHERE ($1 = 0 OR id < $1) AND ($2::timestamptz IS NULL OR time >= $2)
			AND strpos(lower(concat_ws(' ', subject, role, address, rpc, details, result)), lower($3)) > 0
		ORDER BY id DESC LIMIT $4`, before, filter.Since, connection.Text(filter.Text), size+1)
	if err != nil {
		return nil, "", err
	}
	acts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Act])
	if err != nil {
		return nil, "", err
	}
	acts, next := pagetoken.Cut(acts, size, func(a Act) int64 { return a.ID })
	return acts, next, nil
}
