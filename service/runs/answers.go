package runs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/overdue"
)

// How often the database is queried for metrics at most, and with which timeout.
const (
	askEvery   = 15 * time.Second
	askTimeout = 2 * time.Second
)

// answers are the metrics that are read from the database when scraped, the same on every replica. Those that could not
// be read are left out.
type answers struct {
	m *Manager

	mu    sync.Mutex
	asked time.Time
	last  []prometheus.Metric
}

var (
	lastSuccess = prometheus.NewDesc(
		"cleanupd_last_success_timestamp_seconds",
		"When the last run succeeded, on any replica, as far as runs are kept; 0: none did. Dry runs do not count; "+
			"tasks is all for runs of the whole pipeline, and some for others.",
		[]string{"tasks"},
		nil,
	)
	activeRuns = prometheus.NewDesc(
		"cleanupd_active_runs",
		"Runs that are queued or running, on any replica.",
		[]string{"state", "dry_run"},
		nil,
	)
	scheduled = prometheus.NewDesc(
		"cleanupd_schedule_enabled",
		"Whether the schedule starts runs: 1 or 0. Replicas with --schedule keep it.",
		nil,
		nil,
	)
	nextRun = prometheus.NewDesc(
		"cleanupd_schedule_next_run_timestamp_seconds",
		"When the next run of the schedule is due; none when nothing is.",
		nil,
		nil,
	)
	overdueDesc = prometheus.NewDesc(
		"cleanupd_oldest_obsolete_row_age_seconds",
		"For how long the oldest row of a table has been obsolete; 0: none is. Of tables without an index on the "+
			"date it is an estimate from their last ANALYZE.",
		[]string{"table"},
		nil,
	)
	rowsLeft = prometheus.NewDesc(
		"cleanupd_rows_left",
		"Obsolete rows that the last run of a task left, on any replica, by reason: refused (with an error), locked "+
			"(by others), kept (by a trigger or rule), bound (to rows that stay). Dry runs do not count.",
		[]string{"task", "reason"},
		nil,
	)
	tablesLeft = prometheus.NewDesc(
		"cleanupd_tables_left",
		"Tables that the last run of a task, on any replica, could not do to their end; rows that stay there are not "+
			"counted. Dry runs do not count.",
		[]string{"task"},
		nil,
	)
	otherCleaner = prometheus.NewDesc(
		"cleanupd_application_cleanup_started",
		"Whether the application's own workflow cleanup is started, so that two clean one database: 1 or 0.",
		nil,
		nil,
	)
	guardLatched = prometheus.NewDesc(
		"cleanupd_guard_latched",
		"Guards that tripped, and refuse a task until a plan that accepts them has run, or an option or the guard is "+
			"changed: 1 for each.",
		[]string{"task", "guard", "table"},
		nil,
	)
	scrapeError = prometheus.NewDesc(
		"cleanupd_scrape_error",
		"1 when the database did not tell these metrics within 2 seconds, otherwise 0: runs are all that are the "+
			"same on every replica, but for tables, the age of rows.",
		[]string{"of"},
		nil,
	)
)

// Describe implements prometheus.Collector.
func (a *answers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		lastSuccess,
		activeRuns,
		scheduled,
		nextRun,
		overdueDesc,
		rowsLeft,
		tablesLeft,
		otherCleaner,
		guardLatched,
		scrapeError,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (a *answers) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked.IsZero() || time.Since(a.asked) >= askEvery {
		ctx, stop := context.WithTimeout(context.Background(), askTimeout)
		a.last = nil
		a.ask(
			ctx,
			"runs",
			func(ctx context.Context) error { return errors.Join(a.runs(ctx), a.left(ctx), a.latched(ctx)) },
		)
		a.ask(ctx, "tables", a.tables)
		stop()
		a.asked = time.Now()
	}
	for _, metric := range a.last {
		ch <- metric
	}
}

// ask reads some of the metrics, and records whether that failed.
func (a *answers) ask(ctx context.Context, what string, tell func(context.Context) error) {
	failed := 0.0
	if err := rescue.Call(func() error { return tell(ctx) }); err != nil {
		rescue.Log(a.m.log, "read metrics", err)
		a.m.log.Warn("the database does not tell metrics", "of", what, "error", err)
		failed = 1
	}
	a.gauge(scrapeError, failed, what)
}

func (a *answers) gauge(d *prometheus.Desc, value float64, labels ...string) {
	a.last = append(a.last, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
}

// standing is the state of runs and the schedule, as one row.
const standing = `
WITH success AS (SELECT extract(epoch FROM end_time) AS at, EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id
  AND NOT t.chosen) AS part
  FROM cleanupd.run r WHERE state = 'SUCCEEDED' AND NOT dry_run),
active AS (SELECT state, dry_run FROM cleanupd.run WHERE state IN ('QUEUED', 'RUNNING'))
SELECT (SELECT COALESCE(max(at), 0)::float8 FROM success WHERE NOT part), (SELECT COALESCE(max(at), 0)::float8
  FROM success WHERE part),
  (SELECT count(*)::float8 FROM active WHERE state = 'QUEUED' AND NOT dry_run), (SELECT count(*)::float8 FROM active
    WHERE state = 'RUNNING' AND NOT dry_run),
  (SELECT count(*)::float8 FROM active WHERE state = 'QUEUED' AND dry_run), (SELECT count(*)::float8 FROM active
    WHERE state = 'RUNNING' AND dry_run),
  (SELECT count(*)::float8 FROM cleanupd.schedule WHERE enabled), (SELECT extract(epoch FROM next_run_time)::float8
    FROM cleanupd.schedule)`

func (a *answers) runs(ctx context.Context) error {
	var (
		all, some, queued, running, queuedDry, runningDry, enabled float64
		next                                                       *float64
	)
	if err := a.m.calls.QueryRow(ctx, standing).
		Scan(&all, &some, &queued, &running, &queuedDry, &runningDry, &enabled, &next); err != nil {
		return err
	}
	a.gauge(lastSuccess, all, "all")
	a.gauge(lastSuccess, some, "some")
	a.gauge(activeRuns, queued, label(Queued), "false")
	a.gauge(activeRuns, running, label(Running), "false")
	a.gauge(activeRuns, queuedDry, label(Queued), "true")
	a.gauge(activeRuns, runningDry, label(Running), "true")
	a.gauge(scheduled, enabled)
	if next != nil {
		a.gauge(nextRun, *next)
	}
	return nil
}

// left reads what the last run of each task left.
func (a *answers) left(ctx context.Context) error {
	rows, err := a.m.calls.Query(
		ctx,
		`SELECT DISTINCT ON (t.name) t.name, rows_refused::float8, rows_locked::float8, rows_kept::float8,
			rows_bound::float8, tables_left::float8
		FROM cleanupd.task t JOIN cleanupd.run r ON r.id = t.run_id
		WHERE NOT r.dry_run AND t.chosen AND t.state IN ('SUCCEEDED', 'SKIPPED', 'FAILED')
			ORDER BY t.name, r.create_time DESC`,
	)
	if err != nil {
		return err
	}
	var (
		task                                   string
		refused, locked, kept, bound, notToEnd float64
	)
	_, err = pgx.ForEachRow(rows, []any{&task, &refused, &locked, &kept, &bound, &notToEnd}, func() error {
		for reason, n := range map[string]float64{"refused": refused, "locked": locked, "kept": kept, "bound": bound} {
			a.gauge(rowsLeft, n, task, reason)
		}
		a.gauge(tablesLeft, notToEnd, task)
		return nil
	})
	return err
}

// latched reads which guards refuse tasks.
func (a *answers) latched(ctx context.Context) error {
	_, latched, err := a.m.Guards(ctx)
	for _, l := range latched {
		a.gauge(guardLatched, 1, l.Task, string(l.Guard), l.Table)
	}
	return err
}

func (a *answers) tables(ctx context.Context) error {
	catalog, err := campaign.LoadCatalog(ctx, a.m.calls)
	if err != nil {
		return err
	}
	rows, err := a.m.calls.Query(
		ctx,
		`SELECT t.name, max(r.reference_time) FROM cleanupd.task t JOIN cleanupd.run r ON r.id = t.run_id
		WHERE t.state = 'SUCCEEDED' AND NOT r.dry_run GROUP BY t.name`,
	)
	if err != nil {
		return err
	}
	var (
		task    string
		at      time.Time
		cleaned = map[string]time.Time{}
	)
	if _, err := pgx.ForEachRow(rows, []any{&task, &at}, func() error { cleaned[task] = at; return nil }); err != nil {
		return err
	}
	ages, err := overdue.Tables(ctx, a.m.calls, catalog, tasks.Pipeline, a.m.include, cleaned)
	if err != nil {
		return err
	}
	for table, age := range ages {
		a.gauge(overdueDesc, age.Seconds(), table)
	}
	started, err := catalog.OtherCleaner(ctx, a.m.calls)
	if err != nil {
		return err
	}
	two := 0.0
	if started {
		two = 1
	}
	a.gauge(otherCleaner, two)
	return nil
}
