// Package serve makes a running server from flags and environment variables: it checks the configuration, connects
// to the databases, and starts the listeners and the work on runs. It also has the commands that prepare or check a
// server on the server's own machine: migrate, adopt and health. Package main offers its commands; the demo starts
// its Server.
package serve

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// Settings are all flags of serve. Its help shows only the flags that a first night needs.
var Settings = []flags.Group{
	{
		Title:   "Database",
		Help:    []string{"database-url", "profile", "instance", "mid-sourcing"},
		Experts: []string{"preview-database-url", "wait-for-database", "allow-published-schema"},
	},
	{Title: "Listeners", Help: []string{"grpc-listen", "http-listen"}, Experts: []string{"console"}},
	{
		Title: "Access",
		Help: []string{
			"tls-cert", "tls-key", "tls-client-ca", "token-file", "oidc-issuer", "oidc-audience", "insecure",
		},
		Experts: []string{
			"tls-client-crl", "tls-client-role", "oidc-roles-claim", "oidc-client-id", "oidc-client-secret-file",
		},
	},
	{
		Title: "Runs",
		Help:  []string{"schedule", "pace", "max-replica-lag", "undo"},
		Experts: []string{
			"workers", "lag-ignore", "max-active-sessions", "max-waiting-sessions", "max-wal-rate", "max-retained-wal",
			"max-wait", "max-rows-per-second", "synchronous-commit", "vacuum-truncate", "plan-max-age", "max-pause",
			"history", "lease", "undo-max-bytes",
		},
	},
	{
		Title: "Notifications",
		Help:  []string{"notify"},
		Experts: []string{
			"notify-secret-file", "notify-ca", "notify-insecure", "notify-retained-rows", "notify-retained-tables",
			"notify-only-scheduled",
		},
	},
	{
		Title: "AEM Forms",
		Help: []string{
			"forms-database-url", "forms-gds-dir", "forms-server-url", "forms-server-user", "forms-server-password",
		},
		Experts: []string{"forms-gds-in-database", "forms-server-ca"},
	},
	{Title: "Program", Help: []string{"log-format", "config"}, Experts: []string{"log-level"}},
}

func NewCommand() *cobra.Command {
	c := DefaultConfig()
	var logging logConfig
	cmd := &cobra.Command{
		Use:   "serve --database-url URL",
		Short: "Serve the API, and execute the runs it starts",
		Long: "Serve gRPC and REST, and execute the runs that callers start. Any number of replicas may serve the\n" +
			"same database: one of them executes a run, and another one takes it over if the first stops\n" +
			"responding.\n" +
			"With --schedule runs also start automatically, each once, however many replicas there are.\n" +
			"SIGTERM stops new work, lets the current batch finish, and exits with 0.\n" +
			"There are more settings than a first night needs: cleanupd settings prints all of them.",
		Example: "  cleanupd serve --database-url postgres://cleanupd@db.example/shop\n" +
			"  cleanupd serve --database-url postgres://cleanupd@db1.example,db2.example/campaign --schedule " +
			"--log-format json\n" +
			"  cleanupd serve --database-url postgres://cleanupd@db.example/shop --grpc-listen 0.0.0.0:9090 " +
			"--tls-cert cert.pem --tls-key key.pem --token-file tokens",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.noteGiven(cmd.Flags())
			level, err := logging.parseLevel()
			log, formatErr := logging.newLogger(cmd.ErrOrStderr(), level)
			if err = errors.Join(err, formatErr); err != nil {
				return errors.Join(err, c.check())
			}
			var stopTracing func()
			if c.tracer, c.formsTracer, stopTracing, err = startTracing(cmd.Context()); err != nil {
				return err
			}
			defer stopTracing()
			s, err := New(cmd.Context(), c, log)
			if err != nil && cmd.Context().Err() != nil { // it was stopped before it served
				return nil
			}
			if err != nil {
				return err
			}
			return s.Serve(cmd.Context())
		},
	}
	c.addFlags(cmd.Flags())
	logging.addFlags(cmd.Flags())
	flags.AddSettingsFile(cmd.Flags())
	flags.Arrange(cmd.Flags(), Settings)
	_ = cmd.RegisterFlagCompletionFunc("pace", cobra.FixedCompletions(pace.Names(), cobra.ShellCompDirectiveNoFileComp))
	names := cobra.FixedCompletions(runs.Profiles, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("profile", names) // it fails only for an unknown flag
	return cmd
}

func (c *Config) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.DatabaseURL, "database-url", "",
		"the database to clean: postgres://USER@HOST/DATABASE (required); of several hosts, HOST1,HOST2, the one "+
			"that accepts writes is used; the password is in it, or in the file that ?passfile= or PGPASSFILE names")
	f.Var(&c.runs.Tasks.Profile, "profile",
		"which tasks the database has: those of Campaign (campaign), none, so that runs execute only policies (none), or "+
			"those of Campaign if it has any of Campaign's tables (auto)")
	f.StringVar(&c.runs.Instance, "instance", "",
		"the name of this service, the same for all its replicas, up to 64 characters: it changes nothing in a "+
			"database that another service cleans, or in a copy (see cleanupd adopt)")
	f.StringArrayVar(&c.midSourcing, "mid-sourcing", nil,
		"NAME=URL: the database of a mid-sourcing server, by the name of its external account, where deliveries are "+
			"purged first; NAME=keep: keep its deliveries; may be repeated")
	f.StringVar(&c.standbyURL, "preview-database-url", "",
		"a hot standby of the database, which dry runs read instead of it: postgres://USER@HOST/DATABASE, as for "+
			"--database-url; of several hosts, one that is in recovery is used")
	flags.DurationVar(f, &c.databaseWait, "wait-for-database", 0,
		"how long to wait at the start for the database, and for the one of AEM Forms, 0 to 24h; 0: exit if a "+
			"database cannot be reached")
	addPublished(f, &c.published)
	f.StringVar(&c.GRPCListen, "grpc-listen", c.GRPCListen, "the address for gRPC; port 0 picks a free one")
	f.StringVar(&c.HTTPListen, "http-listen", c.HTTPListen, "the address for REST; port 0 picks a free one")
	f.BoolVar(&c.console, "console", c.console, "serve the console, a page for browsers, at / of --http-listen")
	c.access.addFlags(f)
	f.BoolVar(&c.runs.KeepSchedule, "schedule", false,
		"start runs automatically: daily at 04:00 in the database's time zone until SetSchedule changes it")
	f.Var(
		&c.runs.DefaultPace,
		"pace",
		"how hard runs work, unless they or the schedule have a pace: gentle gives way to other sessions by small batches "+
			"and pauses, balanced makes batches one after another, fast uses all workers all the time",
	)
	f.IntVar(&c.runs.Workers, "workers", c.runs.Workers,
		"how many batches may run at once on a large table, 1 to 16: all of them while the server is otherwise idle, "+
			"else one, or all if together they are at least 1.5 times as fast")
	addLimitFlags(f, &c.runs.Limits)
	f.StringVar(&c.runs.SynchronousCommit, "synchronous-commit", c.runs.SynchronousCommit,
		"how batches commit, on, local or off: with off a crash of the database server may undo the last moments of "+
			"deletes with their counts, which the next attempt repeats; the end of a run commits as the server is set")
	f.BoolVar(&c.runs.VacuumTruncate, "vacuum-truncate", false,
		"let VACUUM return the free space at the end of tables to the file system, for which it locks them "+
			"exclusively: that cancels readers on standbys")
	flags.DurationVar(f, &c.runs.PlanMaxAge, "plan-max-age", c.runs.PlanMaxAge,
		"how old a dry run may be that run --plan carries out, a minute or more")
	flags.DurationVar(f, &c.runs.Undo, "undo", 0,
		"keep what runs delete in the trash for this time after them, up to 90d, unless a run says otherwise; 0: not "+
			"at all")
	f.Int64Var(&c.runs.UndoMaxBytes, "undo-max-bytes", 0,
		"a run stops before a batch while the trash of all runs has more bytes; 0: a tenth of the database, from 64 MiB "+
			"to 10 GiB")
	flags.DurationVar(f, &c.runs.MaxPause, "max-pause", c.runs.MaxPause,
		"how long a run may be paused by PauseRun, a minute or more: then it ends as cancelled")
	flags.DurationVar(f, &c.runs.History, "history", c.runs.History,
		"how long runs that have ended are kept, with their events, 1s or more")
	flags.DurationVar(f, &c.runs.Lease, "lease", c.runs.Lease,
		"how long a replica that stops responding keeps its run, or its erasure, 1s or more")
	c.notify.addFlags(f)
	addBoundFlags(f, &c.runs.Notify.Bounds)
	c.Forms.addFlags(f)
}

// noteGiven notes which limits were given, by flags or variables, because their defaults depend on the server.
func (c *Config) noteGiven(f *pflag.FlagSet) {
	c.runs.Limits.LagMustBeSeen = f.Changed("max-replica-lag") && c.runs.Limits.ReplicaLag > 0
	c.retainedWALGiven = f.Changed("max-retained-wal")
}

func addLimitFlags(f *pflag.FlagSet, l *purge.Limits) {
	flags.DurationVar(f, &l.ReplicaLag, "max-replica-lag", l.ReplicaLag,
		"a batch waits while a standby that streams from the database lags more than this, in addition to its "+
			"configured delay; 0: no limit. If given, a lag that the role cannot see counts as too much")
	f.StringArrayVar(&l.LagIgnore, "lag-ignore", nil,
		"the application_name of a standby whose lag does not count; may be given several times")
	f.IntVar(&l.ActiveSessions, "max-active-sessions", l.ActiveSessions,
		"a batch waits while more other sessions are active on the server; 0: no limit")
	f.IntVar(&l.WaitingSessions, "max-waiting-sessions", l.WaitingSessions,
		"a batch waits while more other sessions wait for locks of this database's tables, rows or transactions; 0: "+
			"no limit")
	f.Int64Var(&l.WALPerSecond, "max-wal-rate", l.WALPerSecond,
		"a batch waits while the server writes more bytes of WAL per second; 0: no limit")
	f.Int64Var(&l.RetainedWAL, "max-retained-wal", l.RetainedWAL,
		"a batch waits while a replication slot or a failing archiver makes the server keep more bytes of WAL; 0: no "+
			"limit. The default is a tenth of max_slot_wal_keep_size where the server has one")
	flags.DurationVar(f, &l.MaxWait, "max-wait", l.MaxWait,
		"how long a batch waits for one reason until a warning names the setting that would help; 0: no warning")
	f.IntVar(&l.RowsPerSecond, "max-rows-per-second", l.RowsPerSecond,
		"how many rows may be deleted or updated per second; 0: no limit")
}

// Config is set by flags, variables and the settings file. check completes it.
type Config struct {
	DatabaseURL      string
	GRPCListen       string
	HTTPListen       string
	Forms            FormsConfig
	runs             runs.Config   // newManager adds what is known once the databases are connected
	standbyURL       string        // empty if dry runs read the database itself
	databaseWait     time.Duration // how long to wait for databases that cannot be reached at the start
	published        bool          // whether the schema may be published
	midSourcing      []string      // NAME=URL or NAME=keep
	retainedWALGiven bool          // whether --max-retained-wal was given
	access           accessConfig
	notify           notifyConfig
	console          bool
	inProcess        bool                  // no ports, and the name of the service is the stored one unless it is given
	created          func(database string) // called if the schema cleanupd was created; may be nil
	tracer           pgx.QueryTracer       // for all databases except that of Forms; nil without tracing
	formsTracer      pgx.QueryTracer

	// check sets these, without connecting.
	database             *pgxpool.Config
	standby              *pgxpool.Config            // nil if dry runs read the database itself
	midSourcingDatabases map[string]*pgxpool.Config // by the names of external accounts
	formsDatabase        *formsDatabase             // nil without one
}

func DefaultConfig() Config {
	return Config{
		GRPCListen: "127.0.0.1:9090",
		HTTPListen: "127.0.0.1:8080",
		console:    true,
		runs: runs.Config{
			Lease:       runs.DefaultLease,
			History:     runs.DefaultHistory,
			PlanMaxAge:  runs.DefaultPlanMaxAge,
			MaxPause:    runs.DefaultMaxPause,
			SampleEvery: runs.DefaultSampleEvery,
			DefaultPace: pace.Balanced,
			Tasks:       runs.TaskSource{Profile: runs.ProfileAuto},
			Notify:      notify.Config{Bounds: notify.DefaultBounds},
			Settings: purge.Settings{
				Target:  purge.DefaultTarget,
				Workers: runs.DefaultWorkers,
				// rows and their counts in the ledger are lost together, if at all
				SynchronousCommit: "off",
				Limits: purge.Limits{
					ReplicaLag:      10 * time.Second,
					ActiveSessions:  50,
					WaitingSessions: 10,
					RetainedWAL:     10 << 30,
					MaxWait:         10 * time.Minute,
				},
			},
		},
	}
}

func ConfigOnFreePorts(databaseURL string) Config {
	c := DefaultConfig()
	c.DatabaseURL, c.GRPCListen, c.HTTPListen = databaseURL, "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// check returns an error with all mistakes that can be found without connecting.
func (c *Config) check() error {
	var err error
	r := &c.runs
	c.database, err = flags.DatabaseURL("--database-url", c.DatabaseURL)
	errs := []error{err}
	c.midSourcingDatabases, r.MidSourcing.Keep, err = parseMidSourcing(c.midSourcing)
	errs = append(errs, err)
	c.formsDatabase, err = c.Forms.check()
	errs = append(errs, err, c.access.check())
	c.standby, err = parseStandby(c.standbyURL)
	errs = append(errs, err)
	r.Notify.Targets, err = c.notify.parse()
	return errors.Join(append(
		errs, err, flags.CheckAddress("--grpc-listen", c.GRPCListen), flags.CheckAddress("--http-listen", c.HTTPListen),
		checkRange("--lease", r.Lease, time.Second, math.MaxInt64),
		checkRange("--wait-for-database", c.databaseWait, 0, 24*time.Hour),
		checkRange("--history", r.History, time.Second, math.MaxInt64),
		checkRange("--plan-max-age", r.PlanMaxAge, time.Minute, math.MaxInt64),
		checkRange("--undo", r.Undo, 0, trash.MaxKeep),
		checkRange("--undo-max-bytes", r.UndoMaxBytes, 0, math.MaxInt64),
		checkRange("--max-pause", r.MaxPause, time.Minute, math.MaxInt64), checkInstance(r.Instance),
		checkRange("--workers", r.Workers, 1, 16), checkSynchronousCommit(r.SynchronousCommit),
		checkLimits(r.Limits), checkBounds(r.Notify.Bounds),
	)...)
}

func checkSynchronousCommit(value string) error {
	if !slices.Contains(purge.SynchronousCommits, value) {
		return flags.Errorf("--synchronous-commit must be %s, not %q", strings.Join(purge.SynchronousCommits, ", "),
			value)
	}
	return nil
}

func checkRange[T int | int64 | time.Duration](flag string, value, least, most T) error {
	switch {
	case value >= least && value <= most:
		return nil
	case most == math.MaxInt64:
		return flags.Errorf("%s must be %v or more, not %v", flag, least, value)
	}
	return flags.Errorf("%s must be %v to %v, not %v", flag, least, most, value)
}

func checkLimits(l purge.Limits) error {
	return errors.Join(checkRange("--max-replica-lag", l.ReplicaLag, 0, math.MaxInt64),
		checkRange("--max-active-sessions", l.ActiveSessions, 0, math.MaxInt64),
		checkRange("--max-waiting-sessions", l.WaitingSessions, 0, math.MaxInt64),
		checkRange("--max-wal-rate", l.WALPerSecond, 0, math.MaxInt64),
		checkRange("--max-retained-wal", l.RetainedWAL, 0, math.MaxInt64),
		checkRange("--max-wait", l.MaxWait, 0, math.MaxInt64),
		checkRange("--max-rows-per-second", l.RowsPerSecond, 0, math.MaxInt64))
}
