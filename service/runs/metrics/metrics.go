// Package metrics has the Prometheus metrics of runs: counters of this replica's work, figures about all replicas that
// are read from the database, and those of the connection pools. Package runs updates the counters, and registers all
// metrics.
package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

// The buckets are upper bounds in seconds. A batch should take 50 milliseconds and is halved after 30 seconds; a run
// may take a whole night.
var (
	batchBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	taskBuckets  = []float64{.01, .1, 1, 10, 60, 300, 900, 3600, 14400}
	runBuckets   = []float64{1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800}
)

// Replica has counters that are updated once a COMMIT is answered. They miss batches whose answer was lost; the results
// of runs are exact.
type Replica struct {
	runs           *prometheus.CounterVec
	runSeconds     *prometheus.HistogramVec
	tasks          *prometheus.CounterVec
	taskSeconds    *prometheus.HistogramVec
	deleted        *prometheus.CounterVec
	updated        *prometheus.CounterVec
	cascaded       *prometheus.CounterVec
	restored       *prometheus.CounterVec
	notRestored    *prometheus.CounterVec
	dropped        *prometheus.CounterVec
	partitions     *prometheus.CounterVec
	batchSeconds   *prometheus.HistogramVec
	throttled      *prometheus.CounterVec
	retries        *prometheus.CounterVec
	failedAttempts prometheus.Counter
	messages       *prometheus.CounterVec
}

func NewReplica(r prometheus.Registerer) *Replica {
	f := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label})
	}
	m := &Replica{
		runs: counter("cleanupd_runs_total", "Runs that this replica ended, by state.", "state", "dry_run"),
		runSeconds: histogram("cleanupd_run_duration_seconds",
			"Duration of the runs that this replica ended, from their first start.", runBuckets, "dry_run"),
		tasks: counter(
			"cleanupd_tasks_total", "Tasks of runs, except dry runs, that this replica ended, by state; skipped if they had "+
				"nothing to do.",
			"task", "state"),
		taskSeconds: histogram("cleanupd_task_duration_seconds",
			"Duration of tasks of runs, except dry runs, from their first start.", taskBuckets, "task"),
		deleted: counter("cleanupd_rows_deleted_total", "Rows that this replica deleted.", "task"),
		cascaded: counter("cleanupd_rows_cascaded_total",
			"Rows that foreign keys deleted with rows that this replica deleted.", "task"),
		updated:  counter("cleanupd_rows_updated_total", "Rows that this replica updated.", "task"),
		restored: counter("cleanupd_rows_restored_total", "Rows that this replica brought back from the trash.", "task"),
		notRestored: counter("cleanupd_rows_not_restored_total",
			"Rows that restores of this replica left in the trash, by reason: existing (rows with the same keys exist), failed.",
			"task", "reason"),
		dropped: counter("cleanupd_tables_dropped_total", "Work tables that this replica dropped.", "task"),
		partitions: counter("cleanupd_partitions_removed_total",
			"Whole partitions that this replica dropped with all of their rows, or detached.", "task"),
		batchSeconds: histogram("cleanupd_batch_duration_seconds",
			"Duration of batches that changed something, from BEGIN to the response to COMMIT.", batchBuckets, "task"),
		throttled: counter("cleanupd_throttled_seconds_total", "Seconds that batches were throttled, by reason.",
			"reason"),
		retries: counter("cleanupd_retries_total", "Retries after transient errors, such as deadlocks, by SQLSTATE.",
			"sqlstate"),
		failedAttempts: f.NewCounter(prometheus.CounterOpts{
			Name: "cleanupd_run_failed_attempts_total",
			Help: "Runs that this replica took up again after the database, or another replica, had failed them.",
		}),
		messages: counter(
			"cleanupd_run_messages_total", "Messages with a code in the logs of runs, and in the results of their tasks, by "+
				"code and level.",
			"code", "level"),
	}
	m.initialize()
	return m
}

// initialize makes series start at 0, so that their first increase is seen; see StartTasks for those of tasks.
func (m *Replica) initialize() {
	for _, dry := range []string{"false", "true"} {
		for _, state := range []store.State{store.Succeeded, store.Failed, store.Cancelled} {
			m.runs.WithLabelValues(label(state), dry)
		}
		m.runSeconds.WithLabelValues(dry)
	}
	for _, reason := range purge.Reasons {
		m.throttled.WithLabelValues(string(reason))
	}
	for state := range purge.MaxAttempts {
		m.retries.WithLabelValues(state)
	}
	for _, k := range message.Catalog() {
		m.messages.WithLabelValues(k.Code, label(k.Level))
	}
}

// StartTasks makes the series of the built-in tasks start at 0. A database that is not Campaign's has none of them.
func (m *Replica) StartTasks() {
	for _, t := range tasks.Pipeline {
		for _, state := range []cleanup.State{
			cleanup.Succeeded, cleanup.Skipped, cleanup.Failed, cleanup.NotRun, cleanup.Cancelled,
		} {
			m.tasks.WithLabelValues(t.Name, label(state))
		}
		for _, rows := range []*prometheus.CounterVec{m.deleted, m.updated, m.cascaded, m.restored, m.dropped, m.partitions} {
			rows.WithLabelValues(t.Name)
		}
		m.notRestored.WithLabelValues(t.Name, "existing")
		m.notRestored.WithLabelValues(t.Name, "failed")
		m.taskSeconds.WithLabelValues(t.Name)
		m.batchSeconds.WithLabelValues(t.Name)
	}
}

func label[S ~string](state S) string { return strings.ToLower(string(state)) }

// RunEnded first counts the tasks that were cancelled with the run, so that the tasks of a run are counted whenever
// the run is.
func (m *Replica) RunEnded(r *store.Run) {
	for _, t := range r.Results {
		if t.State == cleanup.Cancelled {
			m.TaskEnded(r, &t)
		}
	}
	dry := strconv.FormatBool(r.DryRun)
	observe(m.runSeconds.WithLabelValues(dry), r.StartTime, r.EndTime)
	m.runs.WithLabelValues(label(r.State), dry).Inc()
}

// TaskEnded ignores dry runs. Of restores it counts only the rows that stay in the trash.
func (m *Replica) TaskEnded(r *store.Run, t *store.Result) {
	if r.Restore != nil {
		m.notRestored.WithLabelValues(t.Task, "existing").Add(float64(t.RowsExisting))
		m.notRestored.WithLabelValues(t.Task, "failed").Add(float64(t.RowsFailed))
	}
	if r.DryRun || r.Restore != nil {
		return
	}
	observe(m.taskSeconds.WithLabelValues(t.Task), t.StartTime, t.EndTime)
	m.tasks.WithLabelValues(t.Task, label(t.State)).Inc()
	for _, d := range t.Details {
		m.messages.WithLabelValues(d.Code, label(d.Level)).Inc()
	}
}

func observe(o prometheus.Observer, start, end *time.Time) {
	if start != nil {
		o.Observe(end.Sub(*start).Seconds())
	}
}

func (m *Replica) Committed(task string, d purge.Delta) {
	if d.Empty() {
		return
	}
	m.deleted.WithLabelValues(task).Add(float64(d.Deleted))
	m.updated.WithLabelValues(task).Add(float64(d.Updated))
	m.cascaded.WithLabelValues(task).Add(float64(d.Cascaded))
	m.restored.WithLabelValues(task).Add(float64(d.RowsRestored()))
	m.dropped.WithLabelValues(task).Add(float64(d.Dropped))
	m.partitions.WithLabelValues(task).Add(float64(d.Partitions))
	m.batchSeconds.WithLabelValues(task).Observe(time.Since(d.Begun).Seconds())
}

func (m *Replica) Logged(events ...store.Event) {
	for _, e := range events {
		if e.Code != "" {
			m.messages.WithLabelValues(e.Code, label(e.Level)).Inc()
		}
	}
}

func (m *Replica) Throttled(reason throttle.Reason, d time.Duration) {
	m.throttled.WithLabelValues(string(reason)).Add(d.Seconds())
}

func (m *Replica) Retried(state string) { m.retries.WithLabelValues(state).Inc() }

func (m *Replica) AttemptFailed() { m.failedAttempts.Inc() }

// NewNotifications returns a function that counts notifications by target and outcome.
func NewNotifications(r prometheus.Registerer, targets []string) (count func(target, outcome string)) {
	total := promauto.With(r).NewCounterVec(
		prometheus.CounterOpts{
			Name: "cleanupd_notifications_total",
			Help: "Notifications of this replica, by target and outcome: sent, failed (an attempt, which is repeated), " +
				"given_up (after a day).",
		},
		[]string{"target", "outcome"},
	)
	for _, target := range targets {
		for _, outcome := range []string{"sent", "failed", "given_up"} {
			total.WithLabelValues(target, outcome)
		}
	}
	return func(target, outcome string) { total.WithLabelValues(target, outcome).Inc() }
}

// RegisterPools uses units and names as Prometheus recommends.
func RegisterPools(r prometheus.Registerer, pools ...*pgxpool.Pool) {
	pools = slices.Compact(pools) // there may be only one
	sum := func(value func(*pgxpool.Stat) float64) func() float64 {
		return func() (total float64) {
			for _, pool := range pools {
				total += value(pool.Stat())
			}
			return total
		}
	}
	f := promauto.With(r)
	for state, n := range map[string]func(*pgxpool.Stat) int32{
		"idle":    (*pgxpool.Stat).IdleConns,
		"in_use":  (*pgxpool.Stat).AcquiredConns,
		"opening": (*pgxpool.Stat).ConstructingConns,
	} {
		f.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name:        "cleanupd_pool_connections",
				Help:        "Connections to the database that is cleaned, by state.",
				ConstLabels: prometheus.Labels{"state": state},
			},
			sum(func(s *pgxpool.Stat) float64 { return float64(n(s)) }),
		)
	}
	f.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "cleanupd_pool_max_connections", Help: "How many connections there may be."},
		sum(func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) }))
	for _, c := range []struct {
		name, help string
		value      func(*pgxpool.Stat) float64
	}{
		{
			"cleanupd_pool_acquires_total",
			"How often a connection was taken.",
			func(s *pgxpool.Stat) float64 { return float64(s.AcquireCount()) },
		},
		{
			"cleanupd_pool_waits_total",
			"How often none was idle when one was to be taken.",
			func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) },
		},
		{
			"cleanupd_pool_wait_seconds_total",
			"How long was waited for those, until one was free or opened.",
			func(s *pgxpool.Stat) float64 { return s.EmptyAcquireWaitTime().Seconds() },
		},
	} {
		f.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, sum(c.value))
	}
}
