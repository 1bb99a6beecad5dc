// Package runs starts, lists, watches, cancels and executes runs, and manages the schedule, holds, guards and policies.
// All of this is stored in the database that is cleaned, in the service's own schema. Replicas are therefore stateless,
// and any replica can handle any run.
//
// Package service calls the Manager, whose methods are in one file per subject. Calls only change stored state, on
// which each replica's worker (worker.go) acts. The worker claims a run for the duration of a lease. Each claim begins
// a new epoch of the run, which fences everything that the worker writes: a replica that no longer renews its lease
// loses its runs to others, and does no harm when it wakes up. An attempt (attempt.go) executes the run and keeps its
// journal (journal.go): with each batch it writes the counts. With each batch, and twice a second besides, it reads
// whether the run was paused or cancelled, or got another pace.
package runs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
	"github.com/cleanupd/cleanupd/service/runs/metrics"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

const (
	DefaultLease      = 15 * time.Second
	DefaultPollEvery  = 2 * time.Second
	DefaultHistory    = 90 * 24 * time.Hour
	DefaultWorkers    = 2
	DefaultPlanMaxAge = 24 * time.Hour
	DefaultMaxPause   = 24 * time.Hour
	// DefaultSampleEvery is the default of `cleanupd serve`; in Config, 0 means never.
	DefaultSampleEvery = 30 * time.Second
)

type Config struct {
	// Pool is for runs, their leases and the schedule.
	Pool *pgxpool.Pool
	// Calls is a pool of the same database for API calls, so that they cannot use up the connections of runs; nil
	// means Pool.
	Calls *pgxpool.Pool
	// Standby is what dry runs read instead of Pool. Their results are still stored through Pool.
	Standby cleanup.Standby
	// Lease is how long a run may go without a renewal before another replica takes it over; 0 means DefaultLease.
	Lease time.Duration
	// PollEvery is how often a replica checks whether a scheduled run is due and, in case a notification was missed,
	// whether a run waits to be claimed; 0 means DefaultPollEvery.
	PollEvery time.Duration
	// Replica is the name of this process, and Version that of the program's version.
	Replica string
	Version string
	// Instance is the name of the service with all its replicas. Only the instance that owns a database cleans it.
	Instance string
	Log      *slog.Logger
	// SampleEvery is how often a replica checks whether to sample the tables, which is done daily and after each run;
	// 0 means never.
	SampleEvery time.Duration
	// OnlyFollowed limits this replica to runs that are passed to Follow, so that it does not resume runs that other
	// processes left interrupted.
	OnlyFollowed bool
	// KeepSchedule means that this replica starts scheduled runs.
	KeepSchedule bool
	// History is how long ended runs are stored, with their events; 0 means DefaultHistory.
	History time.Duration
	// PlanMaxAge is how old a saved plan may be when a run follows it; 0 means DefaultPlanMaxAge.
	PlanMaxAge time.Duration
	// DefaultPace is the pace of runs whose request names none; "" means pace.Balanced.
	DefaultPace pace.Pace
	// Undo is how long the trash keeps deleted rows unless the run's request, the task's policy or the schedule sets it; 0
	// means not at all. UndoMaxBytes limits the trash of all runs; 0 means trash.DefaultMaxBytes.
	Undo         time.Duration
	UndoMaxBytes int64
	// MaxPause is how long a caller may pause a run before it is cancelled; 0 means DefaultMaxPause.
	MaxPause time.Duration
	// In Settings, 0 Workers means DefaultWorkers, and Pace is ignored because each run has its own.
	purge.Settings
	MidSourcing cleanup.MidSourcing
	// VacuumTruncate lets VACUUM return free space at the end of a table to the system, for which it locks the table
	// exclusively.
	VacuumTruncate bool
	// Tasks provides the tasks.
	Tasks  TaskSource
	Notify notify.Config
}

// Manager manages runs, the schedule, holds, guards and policies for package service. Work and Listen must be running
// while it serves calls.
type Manager struct {
	*eventlog.Log
	Tasks      TaskSource
	Forecaster *capacity.Forecaster

	config      Config
	pool, calls *pgxpool.Pool // as in Config
	log         *slog.Logger
	owner       *store.Owner
	notifier    *notify.Notifier
	sampler     *capacity.Sampler
	metrics     *prometheus.Registry
	counters    *metrics.Replica

	// The rest belongs to the worker of this replica, which executes several runs at the same time.
	database *database
	wake     chan struct{} // receives a value when a run may be waiting to be claimed
	mu       sync.Mutex
	waits    map[uuid.UUID]string // what each of its runs waits for; "" for a run that does not wait
	followed []uuid.UUID          // the only runs that it works on if Config.OnlyFollowed is set
	// saidOnHold is when it was last logged that a hold keeps expired trash.
	saidOnHold time.Time
}

func New(c Config) *Manager {
	c.Calls = cmp.Or(c.Calls, c.Pool)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.PollEvery = cmp.Or(c.PollEvery, DefaultPollEvery)
	c.History = cmp.Or(c.History, DefaultHistory)
	c.PlanMaxAge = cmp.Or(c.PlanMaxAge, DefaultPlanMaxAge)
	c.DefaultPace = cmp.Or(c.DefaultPace, pace.Balanced)
	c.MaxPause = cmp.Or(c.MaxPause, DefaultMaxPause)
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	registry := prometheus.NewRegistry()
	m := &Manager{
		Tasks:    c.Tasks,
		config:   c,
		pool:     c.Pool,
		calls:    c.Calls,
		log:      c.Log,
		owner:    store.NewOwner(c.Instance, c.Log),
		metrics:  registry,
		counters: metrics.NewReplica(registry),
		database: newDatabase(c.Pool, c.Lease, c.Log),
		wake:     make(chan struct{}, 1),
		waits:    map[uuid.UUID]string{},
	}
	m.Log = eventlog.New(m.calls, m.pool, m.wakeWorker, m.log)
	m.Forecaster = &capacity.Forecaster{
		Pool: m.calls, Owner: m.owner, Config: m.readConfig, Schedule: m.Schedule, Undo: m.config.Undo,
	}
	m.sampler = &capacity.Sampler{Pool: m.pool, Owner: m.owner, Log: m.log}
	m.notifier = newNotifier(m)
	metrics.RegisterPools(m.metrics, m.pool, m.calls)
	m.metrics.MustRegister(&metrics.Database{
		Pool:          m.calls,
		Config:        m.readConfig,
		MaxTrashBytes: m.UndoMaxBytes,
		Targets:       m.notifier.Names(),
		Log:           m.log,
	})
	return m
}

// Metrics returns the metrics of this replica's work, and those about all replicas that are read from the database.
func (m *Manager) Metrics() prometheus.Collector { return m.metrics }

// Own fails with a failure.Refusal if another instance owns the database, or if the database is a copy.
func (m *Manager) Own(ctx context.Context, db campaign.Querier) error { return m.owner.Check(ctx, db) }

func (m *Manager) readConfig(ctx context.Context, db campaign.Querier) (cleanup.Config, error) {
	list, err := m.Tasks.Read(ctx, db)
	return m.configure(list), err
}

func (m *Manager) configure(list TaskList) cleanup.Config {
	return cleanup.Config{
		Pool:           m.pool,
		Settings:       m.config.Settings,
		MidSourcing:    m.config.MidSourcing,
		VacuumTruncate: m.config.VacuumTruncate,
		Pipeline:       list.Tasks,
		External:       list.External,
		NoCampaign:     list.NoCampaign,
	}
}

type About struct {
	Replica  string // the replica that answers
	Version  string // the version of this replica
	Instance string
	Database string // the name of the database
	Host     string // of the database server: HOST:PORT, or the folder of its socket
	Campaign bool   // whether it is cleaned as a Campaign database
	Replicas []store.Replica
	History  time.Duration
	PlanAge  time.Duration // the greatest age of a saved plan that a run may follow
	Undo     time.Duration // as in Config
}

func (m *Manager) About(ctx context.Context) (*About, error) {
	replicas, err := store.Replicas(ctx, m.calls, replicaTimeout)
	if err != nil {
		return nil, err
	}
	noCampaign, err := m.Tasks.Profile.NoCampaign(ctx, m.calls)
	if err != nil {
		return nil, err
	}
	database := m.calls.Config().ConnConfig
	host := database.Host
	if !strings.HasPrefix(host, "/") {
		host = net.JoinHostPort(host, strconv.Itoa(int(database.Port)))
	}
	return &About{
		Replica:  m.config.Replica,
		Version:  m.config.Version,
		Instance: m.config.Instance,
		Database: database.Database,
		Host:     host,
		Campaign: !noCampaign,
		Replicas: replicas,
		History:  m.config.History,
		PlanAge:  m.config.PlanMaxAge,
		Undo:     m.config.Undo,
	}, nil
}

// Get fails with store.ErrNotFound.
func (m *Manager) Get(ctx context.Context, id string) (*store.Run, error) {
	parsed, err := store.ParseID(id)
	if err != nil {
		return nil, err
	}
	return store.GetRun(ctx, m.calls, parsed)
}

// List returns runs, newest first, and the token of the next page, "" on the last page. It fails with
// pagetoken.ErrInvalid, or with a failure.FieldError if there is no such task.
func (m *Manager) List(
	ctx context.Context, v store.View, f store.Filter, size int, token string,
) ([]*store.Run, string, error) {
	page, next, err := store.ListRuns(ctx, m.calls, v, f, size, token)
	if err != nil || f.Task == "" || len(page) > 0 {
		return page, next, err
	}
	list, err := m.Tasks.Read(ctx, m.calls)
	if err != nil {
		return nil, "", err
	}
	if _, exists := list.Find(f.Task); exists {
		return nil, "", nil
	}
	// A removed task may have runs that the rest of the filter leaves out.
	page, _, err = store.ListRuns(ctx, m.calls, store.Basic, store.Filter{Task: f.Task}, 1, "")
	if err == nil && len(page) == 0 {
		err = failure.Field("task", fmt.Sprintf("no such task %.64q", f.Task))
	}
	return nil, "", err
}
