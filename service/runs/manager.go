package runs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Defaults of Config.
const (
	DefaultLease     = 15 * time.Second
	DefaultPollEvery = 2 * time.Second
	DefaultHistory   = 90 * 24 * time.Hour
	DefaultWorkers   = 2
)

// Config configures a Manager.
type Config struct {
	// Pool is that of the database to clean: work, its leases and the schedule use it.
	Pool *pgxpool.Pool
	// Calls is another pool of that database, for what callers ask: however many do, the connections of Pool are left
	// to work. nil: Pool.
	Calls *pgxpool.Pool
	// Standby is what dry runs read in place of Pool; they are kept there.
	Standby pipeline.Standby
	// Lease is how long a silent replica keeps its run; 0: DefaultLease.
	Lease time.Duration
	// PollEvery is how often a replica checks whether the schedule is due and, in case a notification was missed,
	// whether a run is waiting; 0: DefaultPollEvery.
	PollEvery time.Duration
	// Replica is this process's name, for people.
	Replica string
	// Version is that of this program, for people.
	Version string
	// Instance is the name of the service, of all its replicas: a database is cleaned by the one that it belongs to.
	Instance string
	Log      *slog.Logger
	// KeepSchedule says that this replica starts the runs of the schedule.
	KeepSchedule bool
	// History is how long runs that have ended are kept, with their events; 0: DefaultHistory.
	History time.Duration
	// PlanMaxAge is how old a plan may be; 0: DefaultPlanMaxAge.
	PlanMaxAge time.Duration
	// Settings configure batches; Workers is DefaultWorkers if 0.
	purge.Settings
	// MidSourcing says what is done about the deliveries of mid-sourcing servers.
	MidSourcing midsourcing.Config
	// RelatedListTables are further tables whose iGroupId is the id of a list.
	RelatedListTables []string
	// VacuumTruncate has VACUUM give free space at the end of tables back, for which it locks them exclusively.
	VacuumTruncate bool
	// Outside is where tasks on another database come from; nil: there are none.
	Outside *outside.Source
	// Include are further tables that tasks take in, as in pipeline.Config.
	Include map[string][]string
}

// Manager starts, executes, watches and cancels runs. Work and Listen must be running while its other methods are used.
type Manager struct {
	pool, calls  *pgxpool.Pool
	lease        time.Duration
	shortTimeout time.Duration
	pollEvery    time.Duration
	replica      string
	version      string
	instance     string
	foreign      atomic.Bool // it was told that the database is another instance's
	log          *slog.Logger
	keepSchedule bool
	history      time.Duration
	planMaxAge   time.Duration
	settings     purge.Settings
	wake         chan struct{} // a run may be waiting
	pulse        pulse
	metrics      *metrics
	measured     *prometheus.Registry

	standby           pipeline.Standby
	midSourcing       midsourcing.Config
	relatedListTables []string
	vacuumTruncate    bool
	include           map[string][]string
	outside           *outside.Source

	mu     sync.Mutex
	tails  map[string]*tail
	atWork map[string]string // what its runs wait for, by their ids; empty: they go on
}

// New returns a Manager.
func New(c Config) *Manager {
	m := &Manager{
		pool:         c.Pool,
		calls:        cmp.Or(c.Calls, c.Pool),
		lease:        cmp.Or(c.Lease, DefaultLease),
		pollEvery:    cmp.Or(c.PollEvery, DefaultPollEvery),
		replica:      c.Replica,
		version:      c.Version,
		instance:     c.Instance,
		log:          c.Log,
		keepSchedule: c.KeepSchedule,
		history: cmp.Or(
			c.History,
			DefaultHistory,
		),
		planMaxAge:        cmp.Or(c.PlanMaxAge, DefaultPlanMaxAge),
		settings:          c.Settings,
		wake:              make(chan struct{}, 1),
		standby:           c.Standby,
		midSourcing:       c.MidSourcing,
		relatedListTables: c.RelatedListTables,
		vacuumTruncate:    c.VacuumTruncate,
		include:           c.Include,
		outside:           c.Outside,
		tails:             map[string]*tail{},
		atWork:            map[string]string{},
		measured:          prometheus.NewRegistry(),
	}
	m.shortTimeout = min(shortTimeout, m.lease/2) // of a claim that was waited for in vain, some of the lease is left
	m.settings.Workers = cmp.Or(c.Workers, DefaultWorkers)
	m.metrics = newMetrics(m.measured)
	measurePools(m.measured, m.pool, m.calls)
	m.measured.MustRegister(&answers{m: m})
	return m
}

// Metrics are what this replica measures of its own work, and what the database says about that of all replicas.
func (m *Manager) Metrics() prometheus.Collector { return m.measured }

// Cancel requests that a run be stopped after its current batch, and returns the run. A run that no replica holds is
// ended here; one that has ended is returned as it is. It fails with ErrNotFound.
func (m *Manager) Cancel(ctx context.Context, id string) (*Run, error) {
	run, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	id = run.ID
	var ended *Run // here; nil: it was not
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if _, err := m.lockPending(ctx, tx); err != nil { // first, as whenever a run ends
			return err
		}
		if !run.DryRun {
			if err := m.keepOwn(ctx, tx); err != nil {
				return err
			}
		}
		if err := audit.Note(ctx, tx, audit.Details{"run_id": id}); err != nil {
			return err
		}
		var idle bool
		err := tx.QueryRow(ctx, `UPDATE cleanupd.run SET cancel_requested = true WHERE id = $1::text::uuid
			AND state IN ('QUEUED', 'RUNNING')
			RETURNING state = 'QUEUED' OR lease_until < clock_timestamp()`, id).
			Scan(&idle)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil || !idle {
			return err
		}
		ended, err = m.fence(ctx, tx, id, outcome{Cancelled, stopCancelled, CauseCancelled})
		return err
	})
	if ended != nil && (err == nil || m.stood(ctx, ended)) {
		m.ended(ended)
	}
	if err != nil {
		return nil, err
	}
	return m.Get(ctx, id)
}
