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
	"github.com/cleanupd/cleanupd/service/runs/instance"
	"github.com/cleanupd/cleanupd/service/runs/metrics"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/service/runs/pacing"
	"github.com/cleanupd/cleanupd/service/runs/scheduler"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/service/runs/worker"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/inventory"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Defaults of Config.
const (
	DefaultLease      = 15 * time.Second
	DefaultPollEvery  = 2 * time.Second
	DefaultHistory    = 90 * 24 * time.Hour
	DefaultWorkers    = 2
	DefaultPlanMaxAge = 24 * time.Hour
	DefaultMaxPause   = 24 * time.Hour
	// DefaultSampleEvery is what `cleanupd serve` uses.
	DefaultSampleEvery = 30 * time.Second
)

// Config configures a Manager.
type Config struct {
	// Pool is for runs, their leases and the schedule.
	Pool *pgxpool.Pool
	// Calls is a pool of the same database for callers, so that the connections of Pool are left to runs however many
	// call; nil for Pool.
	Calls *pgxpool.Pool
	// Standby is what dry runs read instead of Pool. Their results are stored with Pool.
	Standby pipeline.Standby
	// Lease is how long a silent replica keeps its runs; 0 for DefaultLease.
	Lease time.Duration
	// PollEvery is how often a replica checks whether a run of the schedule is due and, in case a notification was
	// missed, whether a run waits; 0 for DefaultPollEvery.
	PollEvery time.Duration
	// Replica is the name of this process, and Version the version of the program, for people.
	Replica string
	Version string
	// Instance is the name of the service with all its replicas. A database is cleaned by the instance that owns it.
	Instance string
	Log      *slog.Logger
	// SampleEvery is how often a replica checks whether the tables are to be sampled: once a day, and after each run.
	// 0: it never does.
	SampleEvery time.Duration
	// KeepSchedule says that this replica starts the runs of the schedule.
	KeepSchedule bool
	// History is how long runs that have ended are stored, with their events; 0 for DefaultHistory.
	History time.Duration
	// PlanMaxAge is how old a saved plan may be; 0 for DefaultPlanMaxAge.
	PlanMaxAge time.Duration
	// DefaultPace is the pace of runs that request none; "" for pace.Balanced.
	DefaultPace pace.Pace
	// MaxPause is how long a run may be paused before it ends; 0 for DefaultMaxPause.
	MaxPause time.Duration
	// Settings configure batches; Workers is DefaultWorkers if it is 0. Each run has its own Pace.
	purge.Settings
	// MidSourcing configures how deliveries on mid-sourcing servers are deleted.
	MidSourcing midsourcing.Config
	// RelatedListTables are further tables whose iGroupId is the id of a list.
	RelatedListTables []string
	// VacuumTruncate makes VACUUM give free space at the end of tables back, for which it locks them exclusively.
	VacuumTruncate bool
	// External has tasks on another database; nil if there are none.
	External *external.Source
	// Profile says which tasks the database has; empty for tasklist.Auto.
	Profile tasklist.Profile
	// Include has further tables of tasks, as in pipeline.Config.
	Include map[string][]string
	// Notify configures notifications.
	Notify notify.Config
}

// Manager starts, watches, cancels and executes runs. Work and Listen must be running while its other methods are used.
type Manager struct {
	*eventlog.Log
	// Tasks is where the tasks come from.
	Tasks tasklist.Source
	// Forecaster makes forecasts.
	Forecaster *forecast.Forecaster
	// Pacer pauses, resumes and paces runs.
	Pacer *pacing.Pacer

	pool, calls *pgxpool.Pool
	config      Config
	base        pipeline.Config // of every run and explanation
	log         *slog.Logger
	owner       *instance.Owner
	scheduler   *scheduler.Scheduler
	worker      *worker.Worker
	notifier    *notify.Notifier
	sampler     *growth.Sampler
	metrics     *prometheus.Registry
}

// New returns a Manager.
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
		base: pipeline.Config{
			Pool:              c.Pool,
			Settings:          c.Settings,
			MidSourcing:       c.MidSourcing,
			RelatedListTables: c.RelatedListTables,
			VacuumTruncate:    c.VacuumTruncate,
			Include:           c.Include,
		},
		log:     c.Log,
		Tasks:   tasklist.Source{Profile: c.Profile, External: c.External},
		owner:   instance.NewOwner(c.Instance, c.Log),
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
		Masks: inventory.Masks(tasks.Pipeline),
		Log:   m.log,
	}
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
		Metrics:    metrics.NewReplica(m.metrics),
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
		Include: c.Include,
		Targets: m.notifier.Names(),
		Log:     m.log,
	})
	return m
}

// Metrics collects the metrics of what this replica did, and of what the database has about all replicas.
func (m *Manager) Metrics() prometheus.Collector { return m.metrics }

// Ready fails while the database cannot be written. Its error may be shown to any caller.
func (m *Manager) Ready(ctx context.Context) error { return m.worker.Ready(ctx) }

// Own fails with a refused.Error if another instance owns a database, or it is a copy.
func (m *Manager) Own(ctx context.Context, db campaign.Querier) error { return m.owner.Check(ctx, db) }

// Configure returns the configuration of a run or an explanation, with all tasks as they are now.
func (m *Manager) Configure(ctx context.Context, db campaign.Querier) (pipeline.Config, error) {
	list, err := m.Tasks.Read(ctx, db)
	return m.configure(list), err
}

// configure returns the configuration of a run or an explanation.
func (m *Manager) configure(list tasklist.List) pipeline.Config {
	config := m.base
	config.Pipeline, config.External, config.NoCampaign = list.Tasks, list.External, list.NoCampaign
	return config
}

// About describes a service, as one of its replicas knows it.
type About struct {
	Replica  string // the one that was asked
	Version  string // its version
	Instance string
	Database string // its name
	Host     string // of the database: HOST:PORT, or the folder of its socket
	Replicas []store.Replica
	History  time.Duration
	PlanAge  time.Duration // the greatest
}

// About returns a description of the service.
func (m *Manager) About(ctx context.Context) (*About, error) {
	replicas, err := store.Replicas(ctx, m.calls, replicaTimeout)
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
		Replicas: replicas,
		History:  m.config.History,
		PlanAge:  m.config.PlanMaxAge,
	}, nil
}
