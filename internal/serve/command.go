package serve

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/serve/targets"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Settings are all flags of serve. Its help has what a first night needs.
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
		Help:  []string{"schedule", "pace", "max-replica-lag"},
		Experts: []string{
			"workers", "lag-ignore", "max-active-sessions", "max-waiting-sessions", "max-wal-rate", "max-retained-wal",
			"max-wait", "max-rows-per-second", "synchronous-commit", "vacuum-truncate", "plan-max-age", "max-pause",
			"history", "lease",
		},
	},
	{
		Title: "Notifications",
		Help:  []string{"notify", "notify-secret-file"},
		Experts: []string{
			"notify-ca", "notify-insecure", "notify-retained-rows", "notify-retained-tables", "notify-only-scheduled",
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
				_, configErr := c.check()
				return errors.Join(err, configErr)
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
	f.Var(&c.Profile, "profile",
		"which tasks the database has: those of Campaign (campaign), none, so that runs execute only policies (none), or "+
			"those of Campaign if it has any of Campaign's tables (auto)")
	f.StringVar(&c.instance, "instance", "",
		"the name of this service, the same for all its replicas, up to 64 characters: it changes nothing in a "+
			"database that another service cleans, or in a copy (see cleanupd adopt)")
	f.StringArrayVar(&c.midSourcing, "mid-sourcing", nil,
		"NAME=URL: the database of a mid-sourcing server, by the name of its external account, where deliveries are "+
			"purged first; NAME=keep: keep its deliveries; may be repeated")
	f.StringVar(&c.standbyURL, "preview-database-url", "",
		"a hot standby of the database, which dry runs read instead of it: postgres://USER@HOST/DATABASE, as for "+
			"--database-url; of several hosts, one that is in recovery is used")
	f.DurationVar(&c.databaseWait, "wait-for-database", 0,
		"how long to wait at the start for the database, and for the one of AEM Forms, 0 to 24h; 0: exit if a "+
			"database cannot be reached")
	addPublished(f, &c.published)
	f.StringVar(&c.GRPCListen, "grpc-listen", c.GRPCListen, "the address for gRPC; port 0 picks a free one")
	f.StringVar(&c.HTTPListen, "http-listen", c.HTTPListen, "the address for REST; port 0 picks a free one")
	f.BoolVar(&c.console, "console", c.console, "serve the console, a page for browsers, at / of --http-listen")
	c.access.addFlags(f)
	f.BoolVar(&c.schedule, "schedule", false,
		"start runs automatically: daily at 04:00 in the database's time zone until SetSchedule changes it")
	f.Var(
		&c.pace,
		"pace",
		"how hard runs work, unless they or the schedule have a pace: gentle gives way to other sessions by small batches "+
			"and pauses, balanced makes batches one after another, fast uses all workers all the time",
	)
	f.IntVar(&c.batches.Workers, "workers", c.batches.Workers,
		"how many batches may run at once on a large table, 1 to 16: all of them while the server is otherwise idle, "+
			"else one, or all if together they are at least 1.5 times as fast")
	addLimitFlags(f, &c.batches.Limits)
	f.StringVar(&c.batches.SynchronousCommit, "synchronous-commit", c.batches.SynchronousCommit,
		"how batches commit, on, local or off: with off a crash of the database server may undo the last moments of "+
			"deletes with their counts, which the next attempt repeats; the end of a run commits as the server is set")
	f.BoolVar(&c.vacuumTruncate, "vacuum-truncate", false,
		"let VACUUM return the free space at the end of tables to the file system, for which it locks them "+
			"exclusively: that cancels readers on standbys")
	f.DurationVar(&c.planMaxAge, "plan-max-age", c.planMaxAge,
		"how old a dry run may be that run --plan carries out, a minute or more")
	f.DurationVar(&c.maxPause, "max-pause", c.maxPause,
		"how long a run may be paused by PauseRun, a minute or more: then it ends as cancelled")
	f.DurationVar(&c.history, "history", c.history,
		"how long runs that have ended are kept, with their events, 1s or more; 90 days by default")
	f.DurationVar(&c.lease, "lease", c.lease,
		"how long a replica that stops responding keeps its run, or its erasure, 1s or more")
	c.notify.AddFlags(f)
	targets.AddBoundFlags(f, &c.notifyBounds)
	c.Forms.addFlags(f)
}

// noteGiven notes which limits were given, by flags or variables, because their defaults depend on the server.
func (c *Config) noteGiven(f *pflag.FlagSet) {
	c.batches.Limits.LagMustBeSeen = f.Changed("max-replica-lag") && c.batches.Limits.ReplicaLag > 0
	c.retainedWALGiven = f.Changed("max-retained-wal")
}

func addLimitFlags(f *pflag.FlagSet, l *purge.Limits) {
	f.DurationVar(&l.ReplicaLag, "max-replica-lag", l.ReplicaLag,
		"a batch waits while a standby that streams from the database lags more than this, in addition to its "+
			"configured delay; 0: no limit. If given, a lag that the role may not see counts as too much")
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
	f.DurationVar(&l.MaxWait, "max-wait", l.MaxWait,
		"how long a batch waits for one reason until a warning names the setting that would help; 0: no warning")
	f.IntVar(&l.RowsPerSecond, "max-rows-per-second", l.RowsPerSecond,
		"how many rows may be deleted or updated per second; 0: no limit")
}
