package metrics

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

const (
	// queryEvery is the least time between two queries of the metrics.
	queryEvery   = 15 * time.Second
	queryTimeout = 2 * time.Second
)

// Database has the metrics that are read from the database when they are scraped. They are the same on every
// replica. Metrics that cannot be read are left out.
type Database struct {
	// Pool is the pool for API calls.
	Pool *pgxpool.Pool
	// Config returns the configuration of a run with all tasks as they are now.
	Config func(ctx context.Context, db campaign.Querier) (cleanup.Config, error)
	// MaxTrashBytes returns how large the trash may become.
	MaxTrashBytes func(ctx context.Context) (int64, error)
	// Targets are the names of the targets of notifications.
	Targets []string
	Log     *slog.Logger

	mu      sync.Mutex
	queried time.Time
	last    []prometheus.Metric
}

var (
	lastSuccess = prometheus.NewDesc(
		"cleanupd_last_success_timestamp_seconds",
		"When the last run succeeded, on any replica, as long as runs are stored; 0 if none did. Dry runs and restores do "+
			"not count; tasks is all for runs of the whole pipeline, otherwise some.",
		[]string{"tasks"},
		nil,
	)
	activeRuns = prometheus.NewDesc("cleanupd_active_runs", "Runs that are queued, running or paused, on any replica.",
		[]string{"state", "dry_run"}, nil)
	runPace = prometheus.NewDesc("cleanupd_run_pace",
		"1 for the pace of the active run, otherwise 0; 0 for each of them without one. Dry runs do not count.",
		[]string{"pace"}, nil)
	pausedSince = prometheus.NewDesc(
		"cleanupd_run_paused_since_timestamp_seconds",
		"Since when a run is paused, by whom: schedule outside of its windows, otherwise caller; 0 if none is. "+
			"Dry runs do not count.",
		[]string{"by"},
		nil,
	)
	scheduled = prometheus.NewDesc("cleanupd_schedule_enabled",
		"Whether the schedule starts runs: 1 or 0. Replicas with --schedule start them.", nil, nil)
	nextRun = prometheus.NewDesc("cleanupd_schedule_next_run_timestamp_seconds",
		"When the next scheduled run starts; no sample if none is scheduled.", nil, nil)
	overdueDesc = prometheus.NewDesc(
		"cleanupd_oldest_obsolete_row_age_seconds",
		"How long the oldest row of a table has been obsolete; 0 if none is. For tables without an index on the "+
			"date, an estimate from their last ANALYZE.",
		[]string{"table"}, nil,
	)
	rowsRetained = prometheus.NewDesc(
		"cleanupd_rows_retained",
		"Obsolete rows that the last run of a task retained, on any replica, by reason: failed (with an error), "+
			"locked (by others), suppressed (by a trigger or rule), dependent (on retained rows), on_hold. Dry runs do "+
			"not count.",
		[]string{"task", "reason"}, nil,
	)
	tablesRetained = prometheus.NewDesc(
		"cleanupd_tables_retained",
		"Tables that the last run of a task, on any replica, could not finish; rows retained there are not "+
			"counted. Dry runs do not count.",
		[]string{"task"}, nil,
	)
	otherCleaner = prometheus.NewDesc("cleanupd_application_cleanup_started",
		"Whether the application's own workflow cleanup is started, so two cleanups work on one database: 1 or 0.",
		nil, nil)
	guardRefused = prometheus.NewDesc(
		"cleanupd_guard_refused",
		"Tripped guards, which refuse a task until a plan that accepts them has run, or an option or the guard is "+
			"changed: 1 for each.",
		[]string{"task", "guard", "table"}, nil,
	)
	pendingNotifications = prometheus.NewDesc("cleanupd_notifications_pending",
		"Notifications that were not accepted yet, by target.", []string{"target"}, nil)
	trashBytes = prometheus.NewDesc("cleanupd_trash_bytes",
		"The size of what runs with undo have deleted and can bring back.", nil, nil)
	trashMaxBytes = prometheus.NewDesc("cleanupd_trash_max_bytes",
		"How large the trash may become; no sample while it is empty.", nil, nil)
	trashRows = prometheus.NewDesc("cleanupd_trash_rows",
		"The rows that runs with undo have deleted and can bring back.", nil, nil)
	trashExpiry = prometheus.NewDesc("cleanupd_trash_next_expiry_timestamp_seconds",
		"When something in the trash is due to be deleted for good; no sample if nothing is.", nil, nil)
	scrapeError = prometheus.NewDesc(
		"cleanupd_scrape_error",
		"1 if these metrics could not be read from the database within 2 seconds, otherwise 0: runs for those that are "+
			"the same on every replica, tables for the age of rows, forecast for trends and sequences.",
		[]string{"of"},
		nil,
	)
)

func (d *Database) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		lastSuccess, activeRuns, runPace, pausedSince, scheduled, nextRun, overdueDesc, rowsRetained, tablesRetained,
		otherCleaner, guardRefused, pendingNotifications, fallingBehind, sequenceEnd, trashBytes,
		trashMaxBytes, trashRows, trashExpiry, scrapeError,
	} {
		ch <- desc
	}
}

func (d *Database) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queried.IsZero() || time.Since(d.queried) >= queryEvery {
		ctx, stop := context.WithTimeout(context.Background(), queryTimeout)
		d.last = nil
		d.query(ctx, "runs", func(ctx context.Context) error {
			return errors.Join(d.queryStatus(ctx), d.queryRetained(ctx), d.queryRefusals(ctx), d.queryPending(ctx),
				d.queryTrash(ctx))
		})
		d.query(ctx, "tables", d.queryTables)
		d.query(ctx, "forecast", d.queryForecast)
		stop()
		d.queried = time.Now()
	}
	for _, metric := range d.last {
		ch <- metric
	}
}

// query reads some metrics, and records whether that failed.
func (d *Database) query(ctx context.Context, what string, read func(context.Context) error) {
	err := failure.Catch(func() error { return read(ctx) })
	if err != nil {
		failure.LogPanic(d.Log, "read metrics", err)
		d.Log.Warn("could not read metrics from the database", "of", what, "error", err)
	}
	d.flag(scrapeError, err != nil, what)
}

func (d *Database) flag(desc *prometheus.Desc, on bool, labels ...string) {
	value := 0.0
	if on {
		value = 1
	}
	d.gauge(desc, value, labels...)
}

func (d *Database) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	d.last = append(d.last, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
}

func (d *Database) queryStatus(ctx context.Context) error {
	s, err := store.GetStatus(ctx, d.Pool)
	if err != nil {
		return err
	}
	d.gauge(lastSuccess, s.LastSuccess, "all")
	d.gauge(lastSuccess, s.LastPartialSuccess, "some")
	d.gauge(activeRuns, s.Queued, label(store.Queued), "false")
	d.gauge(activeRuns, s.Running, label(store.Running), "false")
	d.gauge(activeRuns, s.Paused, label(store.Paused), "false")
	d.gauge(activeRuns, s.QueuedDry, label(store.Queued), "true")
	d.gauge(activeRuns, s.RunningDry, label(store.Running), "true")
	d.gauge(activeRuns, s.PausedDry, label(store.Paused), "true")
	for _, p := range pace.Paces {
		d.flag(runPace, p == s.Pace, label(p))
	}
	d.gauge(pausedSince, s.PausedByCaller, "caller")
	d.gauge(pausedSince, s.PausedBySchedule, store.RequestedBySchedule)
	d.gauge(scheduled, s.ScheduleEnabled)
	if s.NextRunTime != nil {
		d.gauge(nextRun, *s.NextRunTime)
	}
	return nil
}

func (d *Database) queryRetained(ctx context.Context) error {
	list, err := store.LastRetained(ctx, d.Pool)
	for _, r := range list {
		d.gauge(rowsRetained, r.Failed, r.Task, "failed")
		d.gauge(rowsRetained, r.Locked, r.Task, "locked")
		d.gauge(rowsRetained, r.Suppressed, r.Task, "suppressed")
		d.gauge(rowsRetained, r.Dependent, r.Task, "dependent")
		d.gauge(rowsRetained, r.OnHold, r.Task, "on_hold")
		d.gauge(tablesRetained, r.Tables, r.Task)
	}
	return err
}

func (d *Database) queryRefusals(ctx context.Context) error {
	refusals, err := store.GuardRefusals(ctx, d.Pool)
	for _, l := range refusals {
		d.gauge(guardRefused, 1, l.Task, string(l.Guard), plainName(l.Table))
	}
	return err
}

// plainName returns the quoted name of a table in the form that the other metrics use.
func plainName(table string) string {
	schema, name, ok := campaign.SplitQuoted(table)
	if !ok {
		return table
	}
	return campaign.FullName(schema, name)
}

func (d *Database) queryPending(ctx context.Context) error {
	pending, err := store.PendingNotifications(ctx, d.Pool)
	if err != nil {
		return err
	}
	for _, target := range d.Targets {
		pending[target] += 0 // so that a target without any notification has a sample too
	}
	for target, n := range pending {
		d.gauge(pendingNotifications, n, target)
	}
	return nil
}

func (d *Database) queryTrash(ctx context.Context) error {
	s, err := trash.ReadSize(ctx, d.Pool)
	if err != nil {
		return err
	}
	d.gauge(trashBytes, float64(s.Bytes))
	d.gauge(trashRows, float64(s.Rows))
	if s.NextExpiry != nil {
		d.gauge(trashExpiry, float64(s.NextExpiry.Unix()))
	}
	if s.Bytes == 0 { // undo may be off; then save the query
		return nil
	}
	most, err := d.MaxTrashBytes(ctx)
	if err == nil {
		d.gauge(trashMaxBytes, float64(most))
	}
	return err
}

// queryTables reads the ages of obsolete rows, and whether the application also cleans the database.
func (d *Database) queryTables(ctx context.Context) error {
	config, err := d.Config(ctx, d.Pool)
	if err != nil {
		return err
	}
	catalog, err := campaign.LoadCatalog(ctx, d.Pool, config.Scope())
	if err != nil {
		return err
	}
	cleaned, err := store.LastSuccesses(ctx, d.Pool)
	if err != nil {
		return err
	}
	ages, err := insight.Overdue(ctx, d.Pool, catalog, config.Pipeline, cleaned)
	if err != nil {
		return err
	}
	for table, age := range ages {
		d.gauge(overdueDesc, age.Seconds(), table)
	}
	started, err := catalog.OtherCleaner(ctx, d.Pool)
	if err != nil {
		return err
	}
	d.flag(otherCleaner, started)
	return nil
}

var (
	fallingBehind = prometheus.NewDesc(
		"cleanupd_task_falling_behind",
		"1 if runs delete less of a task than becomes obsolete, by the last forecast of any replica, otherwise 0; no sample "+
			"if the forecast does not know, or is older than two days.",
		[]string{"task"},
		nil,
	)
	sequenceEnd = prometheus.NewDesc(
		"cleanupd_sequence_end_timestamp_seconds",
		"When a sequence will reach the limit of the ids that it gives; no sample if that is not known, or more than 100 "+
			"years away.",
		[]string{"sequence"},
		nil,
	)
)

func (d *Database) queryForecast(ctx context.Context) error {
	tasks, err := capacity.FallingBehindTasks(ctx, d.Pool)
	if err != nil {
		return err
	}
	for task, behind := range tasks {
		d.flag(fallingBehind, behind, task)
	}
	sequences, err := capacity.Sequences(ctx, d.Pool)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, s := range sequences {
		if end := s.End(now); end != nil {
			d.gauge(sequenceEnd, float64(end.Unix()), s.Name)
		}
	}
	return nil
}
