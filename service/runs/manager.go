package runs

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
	"github.com/cleanupd/cleanupd/service/runs/forecast"
	"github.com/cleanupd/cleanupd/service/runs/growth"
	"github.com/cleanupd/cleanupd/service/runs/metrics"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/service/runs/pacing"
	"github.com/cleanupd/cleanupd/service/runs/scheduler"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/service/runs/worker"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
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
	// PollEvery is how often a replica checks whether a scheduled run is due, and whether a run waits in case a
	// notification was missed; 0 means DefaultPollEvery.
	PollEvery time.Duration
	// Replica and Version are the names of this process and of the program's version. They are shown to people.
	Replica string
	Version string
	// Instance is the name of the service with all its replicas. Only the instance that owns a database cleans it.
	Instance string
	Log      *slog.Logger
	// SampleEvery is how often a replica checks whether to sample the tables, which is done daily and after each run;
	// 0 means never.
	SampleEvery time.Duration
	// OnlyFollowed means that this replica executes only the runs whose events callers follow through it: not those
	// that another process has left interrupted.
	OnlyFollowed bool
	// KeepSchedule means that this replica starts scheduled runs.
	KeepSchedule bool
	// History is how long ended runs are stored, with their events; 0 means DefaultHistory.
	History time.Duration
	// PlanMaxAge is how old a saved plan may be; 0 means DefaultPlanMaxAge.
	PlanMaxAge time.Duration
	// DefaultPace is the pace of runs whose request names none; "" means pace.Balanced.
	DefaultPace pace.Pace
	// MaxPause is how long a run may be paused before it ends; 0 means DefaultMaxPause.
	MaxPause time.Duration
	// In Settings, Workers is DefaultWorkers if it is 0, and Pace is not used because each run has its own.
	purge.Settings
	MidSourcing cleanup.MidSourcing
	// VacuumTruncate lets VACUUM return free space at the end of a table to the system, for which it locks the table
	// exclusively.
	VacuumTruncate bool
	// External has the tasks on another database; nil if there are none.
	External external.Source
	// Profile is tasklist.Auto if it is "".
	Profile tasklist.Profile
	Notify  notify.Config
}

// Manager is what package service calls to work with runs, the schedule, holds and guards. Work and Listen must be
// running while its other methods are used.
type Manager struct {
	*eventlog.Log
	Tasks      tasklist.Source
	Forecaster *forecast.Forecaster
	Pacer      *pacing.Pacer

	pool, calls *pgxpool.Pool
	config      Config
	base        cleanup.Config // common to every run and explanation
	log         *slog.Logger
	owner       *store.Owner
	scheduler   *scheduler.Scheduler
	worker      *worker.Worker
	notifier    *notify.Notifier
	sampler     *growth.Sampler
	metrics     *prometheus.Registry
	counters    *metrics.Replica
}

func New(c Config) *Manager {
	c.Calls = cmp.Or(c.Calls, c.Pool)
	c.History = cmp.Or(c.History, DefaultHistory)
	c.PlanMaxAge = cmp.Or(c.PlanMaxAge, DefaultPlanMaxAge)
	c.PollEvery = cmp.Or(c.PollEvery, DefaultPollEvery)
	c.DefaultPace = cmp.Or(c.DefaultPace, pace.Balanced)
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	m := &Manager{
		pool:   c.Pool,
		calls:  c.Calls,
		config: c,
		base: cleanup.Config{
			Pool:           c.Pool,
			Settings:       c.Settings,
			MidSourcing:    c.MidSourcing,
			VacuumTruncate: c.VacuumTruncate,
		},
		log:     c.Log,
		Tasks:   tasklist.Source{Profile: c.Profile, External: c.External},
		owner:   store.NewOwner(c.Instance, c.Log),
		metrics: prometheus.NewRegistry(),
	}
	m.scheduler = &scheduler.Scheduler{
		Enabled: c.KeepSchedule,
		Pool:    m.pool,
		Owner:   m.owner,
		Tasks:   m.Tasks,
		Pace:    c.DefaultPace,
		Log:     m.log,
	}
	m.Forecaster = &forecast.Forecaster{Pool: m.calls, Owner: m.owner, Config: m.Configure, Schedule: m.Schedule}
	m.sampler = &growth.Sampler{
		Pool:  m.pool,
		Owner: m.owner,
		Masks: insight.Masks(tasks.Pipeline),
		Log:   m.log,
	}
	m.counters = metrics.NewReplica(m.metrics)
	m.worker = worker.New(worker.Config{
		Pool:       m.pool,
		Calls:      m.calls,
		Standby:    c.Standby,
		Lease:      cmp.Or(c.Lease, DefaultLease),
		PollEvery:  c.PollEvery,
		PlanMaxAge: c.PlanMaxAge,
		Replica:    c.Replica,
		Log:        m.log,
		Base:       m.base,
		Tasks:      m.Tasks,
		Owner:      m.owner,
		Scheduler:  m.scheduler,
		Metrics:    m.counters,

		OnlyFollowed: c.OnlyFollowed,
	})
	m.Pacer = &pacing.Pacer{
		Pool:      m.calls,
		Runs:      m.pool,
		Owner:     m.owner,
		Scheduler: m.scheduler,
		Worker:    m.worker,
		Pace:      c.DefaultPace,
		MaxPause:  cmp.Or(c.MaxPause, DefaultMaxPause),
	}
	m.Log = eventlog.New(m.calls, m.pool, m.worker.Wake, m.log)
	metrics.RegisterPools(m.metrics, m.pool, m.calls)
	m.notifier = newNotifier(m)
	m.metrics.MustRegister(&metrics.Database{
		Pool:    m.calls,
		Tasks:   m.Tasks,
		Targets: m.notifier.Names(),
		Log:     m.log,
	})
	return m
}

// Metrics returns metrics about what this replica did, and about what the database says of all replicas.
func (m *Manager) Metrics() prometheus.Collector { return m.metrics }

// Ready fails while the database cannot be written. Its error may be shown to any caller.
func (m *Manager) Ready(ctx context.Context) error { return m.worker.Ready(ctx) }

// Own fails with a failure.Refusal if another instance owns the database, or it is a copy.
func (m *Manager) Own(ctx context.Context, db campaign.Querier) error { return m.owner.Check(ctx, db) }

func (m *Manager) Configure(ctx context.Context, db campaign.Querier) (cleanup.Config, error) {
	list, err := m.Tasks.Read(ctx, db)
	return m.configure(list), err
}

func (m *Manager) configure(list tasklist.List) cleanup.Config {
	config := m.base
	config.Pipeline, config.External, config.NoCampaign = list.Tasks, list.External, list.NoCampaign
	return config
}

type About struct {
	Replica  string // the replica that answers
	Version  string // the version of this replica
	Instance string
	Database string // the name of the database
	Host     string // of the database server: HOST:PORT, or the folder of its socket
	Campaign bool   // whether it is served as one of Campaign
	Replicas []store.Replica
	History  time.Duration
	PlanAge  time.Duration // the greatest age of a saved plan that a run may follow
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
	}, nil
}
