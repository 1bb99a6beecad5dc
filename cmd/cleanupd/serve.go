package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/execute"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/userdata"
)

// serveConfig configures a server.
type serveConfig struct {
	databaseURL string
	previewURL  string // of a standby; empty: none
	grpcListen  string
	httpListen  string
	lease       time.Duration
	schedule    bool
	patience    time.Duration // with databases that are not there at the start
	history     time.Duration
	planMaxAge  time.Duration
	instance    string
	batches     purge.Settings
	midSourcing []string // NAME=URL or NAME=keep
	listTables  []string
	include     []string // TASK=TABLE
	forms       formsConfig
	access      accessConfig
	console     bool
	tracer      pgx.QueryTracer // of the databases' connections; nil: none
	formsTracer pgx.QueryTracer // of the Forms database's
}

// defaults is the default configuration of a server.
func defaults() serveConfig {
	return serveConfig{
		grpcListen: "127.0.0.1:9090", httpListen: "127.0.0.1:8080", lease: runs.DefaultLease, console: true, history: runs.DefaultHistory, planMaxAge: runs.DefaultPlanMaxAge,
		batches: purge.Settings{Target: purge.DefaultTarget, Workers: runs.DefaultWorkers, Limits: purge.Limits{ReplicaLag: 10 * time.Second, ActiveSessions: 50, WaitingSessions: 10}},
	}
}

// onFreePorts is the default configuration of a server for a database, on free loopback ports.
func onFreePorts(databaseURL string) serveConfig {
	c := defaults()
	c.databaseURL, c.grpcListen, c.httpListen = databaseURL, "127.0.0.1:0", "127.0.0.1:0"
	return c
}

func newServe() *cobra.Command {
	c := defaults()
	var logging logConfig
	cmd := &cobra.Command{
		Use:   "serve --database-url URL",
		Short: "Serve the API, and execute the runs it starts",
		Long: "Serve gRPC and REST, and execute the runs that callers start. Any number of replicas may serve the same\n" +
			"database: one of them works on a run, and another takes the run over if that one falls silent.\n" +
			"With --schedule runs also start automatically, each once, however many replicas keep the schedule.\n" +
			"SIGTERM stops new work, lets the current batch finish, and exits with 0.",
		Example: "  cleanupd serve --database-url postgres://cleanupd@db.example/campaign\n" +
			"  cleanupd serve --database-url postgres://cleanupd@db1.example,db2.example/campaign --schedule --log-format json\n" +
			"  cleanupd serve --database-url postgres://cleanupd@db.example/campaign --grpc-listen 0.0.0.0:9090 --tls-cert cert.pem --tls-key key.pem --token-file tokens",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.batches.Limits.LagMustBeSeen = cmd.Flags().Changed("max-replica-lag") && c.batches.Limits.ReplicaLag > 0
			log, err := logging.open(cmd.ErrOrStderr())
			if err != nil {
				_, more := c.check()
				return errors.Join(err, more)
			}
			var stopTracing func()
			if c.tracer, c.formsTracer, stopTracing, err = startTracing(cmd.Context()); err != nil {
				return err
			}
			defer stopTracing()
			s, err := newServer(cmd.Context(), c, log)
			if err != nil && cmd.Context().Err() != nil { // stopped before it served
				return nil
			}
			if err != nil {
				return err
			}
			return s.serve(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.databaseURL, "database-url", "", "the database to clean: postgres://USER@HOST/DATABASE (required); of several hosts, HOST1,HOST2, the one that accepts writes is used; the password is in it, or in the file that ?passfile= or PGPASSFILE names")
	f.StringVar(&c.previewURL, "preview-database-url", "", "a hot standby of the database, which dry runs read in its place: postgres://USER@HOST/DATABASE, as for --database-url; of several hosts, one that is in recovery is used")
	f.StringVar(&c.grpcListen, "grpc-listen", c.grpcListen, "the address for gRPC; port 0 picks a free one")
	f.StringVar(&c.httpListen, "http-listen", c.httpListen, "the address for REST; port 0 picks a free one")
	f.StringArrayVar(&c.midSourcing, "mid-sourcing", nil, "NAME=URL: the database of a mid-sourcing server, by the name of its external account, where deliveries are purged first; NAME=keep: keep its deliveries; may be repeated")
	f.StringArrayVar(&c.listTables, "related-list-table", nil, "one more table whose iGroupId is the id of a list; may be repeated")
	f.StringArrayVar(&c.include, "include", nil, "TASK=TABLE: one more table that looks like those of delivery-logs, tracking-logs, propositions or app-subscriptions, for that task alone; may be repeated")
	f.DurationVar(&c.patience, "wait-for-database", 0, "how long to wait at the start for the database, and for that of AEM Forms, 0 to 24h; 0: a database that is not there ends the program")
	f.BoolVar(&c.schedule, "schedule", false, "start the runs of the schedule: daily at 04:00 in the database's time zone until SetSchedule says otherwise")
	f.BoolVar(&c.console, "console", c.console, "serve the console, a page for browsers, at / of --http-listen")
	f.StringVar(&c.instance, "instance", "", "the name of this service, of all its replicas, up to 64 characters: it changes nothing in a database that another one cleans, or in a copy (see cleanupd adopt)")
	f.DurationVar(&c.planMaxAge, "plan-max-age", c.planMaxAge, "how old a dry run may be that run --plan does, a minute or more")
	f.DurationVar(&c.history, "history", c.history, "how long runs that have ended are kept, with their events, 1s or more; 90 days by default")
	f.DurationVar(&c.batches.Target, "batch-target", c.batches.Target, "how long a batch should take on the server before its COMMIT, 1ms to 10s: a slower one makes the next one smaller")
	f.IntVar(&c.batches.Workers, "workers", c.batches.Workers, "how many batches may run at once on a large table, 1 to 16: all while the server is otherwise idle, else one, or all if together they get half as much again done")
	limitFlags(f, &c.batches.Limits)
	c.forms.flags(f)
	c.access.flags(f)
	logging.flags(f)
	f.DurationVar(&c.lease, "lease", c.lease, "how long a silent replica keeps its run, or its erasure, 1s or more")
	return cmd
}

// limitFlags adds the flags of the limits that make batches wait, with the given limits as defaults.
func limitFlags(f *pflag.FlagSet, l *purge.Limits) {
	f.DurationVar(&l.ReplicaLag, "max-replica-lag", l.ReplicaLag, "a batch waits while a replica of the database lags more than this; 0: it does not. If given, a lag that the role may not see counts as too much")
	f.IntVar(&l.ActiveSessions, "max-active-sessions", l.ActiveSessions, "a batch waits while more other sessions are active on the server; 0: it does not")
	f.IntVar(&l.WaitingSessions, "max-waiting-sessions", l.WaitingSessions, "a batch waits while more other sessions wait for locks; 0: it does not")
	f.Int64Var(&l.WALPerSecond, "max-wal-rate", l.WALPerSecond, "a batch waits while the server writes more bytes of WAL per second; 0: it does not")
	f.IntVar(&l.RowsPerSecond, "max-rows-per-second", l.RowsPerSecond, "how many rows may be deleted or updated per second; 0: no limit")
}

// setup is a checked configuration of a server.
type setup struct {
	database *pgxpool.Config
	standby  *pgxpool.Config            // nil: none
	others   map[string]*pgxpool.Config // of the mid-sourcing servers
	keep     []string                   // whose deliveries are kept
	include  map[string][]string
	forms    *formsSetup // nil: none
}

// check returns what is configured, or all mistakes in it that can be told without connecting.
func (c *serveConfig) check() (s setup, err error) {
	var mistakes [6]error
	s.database, mistakes[0] = parseDatabaseURL("--database-url", c.databaseURL)
	s.others, s.keep, mistakes[1] = parseMidSourcing(c.midSourcing)
	s.include, mistakes[2] = parseInclude(c.include)
	s.forms, mistakes[3] = c.forms.check()
	mistakes[4] = c.access.check()
	s.standby, mistakes[5] = parseStandby(c.previewURL)
	return s, errors.Join(append(mistakes[:], checkAddress("--grpc-listen", c.grpcListen), checkAddress("--http-listen", c.httpListen),
		between("--lease", c.lease, time.Second, math.MaxInt64), between("--wait-for-database", c.patience, 0, 24*time.Hour), between("--history", c.history, time.Second, math.MaxInt64), between("--plan-max-age", c.planMaxAge, time.Minute, math.MaxInt64), checkInstance(c.instance),
		between("--batch-target", c.batches.Target, time.Millisecond, 10*time.Second), between("--workers", c.batches.Workers, 1, 16),
		checkLimits(c.batches.Limits))...)
}

// between refuses the value of a flag that is out of range.
func between[T int | int64 | time.Duration](flag string, value, least, most T) error {
	switch {
	case value >= least && value <= most:
		return nil
	case most == math.MaxInt64:
		return usagef("%s must be %v or more, not %v", flag, least, value)
	}
	return usagef("%s must be %v to %v, not %v", flag, least, most, value)
}

// checkLimits refuses negative limits.
func checkLimits(l purge.Limits) error {
	return errors.Join(between("--max-replica-lag", l.ReplicaLag, 0, math.MaxInt64), between("--max-active-sessions", l.ActiveSessions, 0, math.MaxInt64),
		between("--max-waiting-sessions", l.WaitingSessions, 0, math.MaxInt64), between("--max-wal-rate", l.WALPerSecond, 0, math.MaxInt64),
		between("--max-rows-per-second", l.RowsPerSecond, 0, math.MaxInt64))
}

// server is a replica that is ready to serve.
type server struct {
	pool       *pgxpool.Pool            // of work
	calls      *pgxpool.Pool            // of callers, on the same database
	few        bool                     // connections: one pool for both, and no listener
	standby    *pgxpool.Pool            // that dry runs read; nil: none
	others     map[string]*pgxpool.Pool // of the mid-sourcing servers
	forms      *userdata.Database       // nil: none
	manager    *runs.Manager
	server     *service.Server
	grpc, http net.Listener
	log        *slog.Logger
	stop       context.CancelFunc // ends streams
}

// newServer takes the ports, connects, and brings the schema up to date.
func newServer(ctx context.Context, c serveConfig, log *slog.Logger) (s *server, err error) {
	given, err := c.check()
	if err != nil {
		return nil, err
	}
	config := given.database
	s = &server{log: log}
	half := s
	defer func() {
		if err != nil {
			half.close()
		}
	}()
	if s.grpc, err = listen("--grpc-listen", c.grpcListen); err != nil {
		return nil, err
	}
	if s.http, err = listen("--http-listen", c.httpListen); err != nil {
		return nil, err
	}
	door, err := c.access.open(ctx, log, s.grpc, s.http)
	if err != nil {
		return nil, err
	}
	door.Console = c.console
	if err := await(ctx, log, c.patience, func() error { return migrateDatabase(ctx, config) }); err != nil {
		return nil, err
	}
	wanted := enough + c.batches.Workers
	n := min(room(ctx, config, wanted), int(config.MaxConns))
	switch s.few = n < min(wanted, 10); {
	case n < fewest:
		return nil, fmt.Errorf("two connections to the database are needed at least, %d is granted: raise the size of the pool, the role's CONNECTION LIMIT, max_connections or pool_max_conns", n)
	case s.few: // one batch at a time, one pool for everything, and polling in place of notifications
		log.Warn("few connections to the database: one batch runs at a time, and VACUUM is skipped if none is free for it", "granted", n, "wanted", wanted)
		config.MaxConns, c.batches.Workers = int32(n), 1
	default:
		config.MaxConns += int32(c.batches.Workers) // each worker keeps a connection while it runs
	}
	config.ConnConfig.Tracer = c.tracer
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	// The connections that room has closed, and those that it was refused, may still count on the server for a moment.
	if err := await(ctx, log, max(c.patience, connectTimeout), func() error { return s.pool.Ping(ctx) }); err != nil {
		return nil, err
	}
	if s.calls = s.pool; !s.few {
		if s.calls, err = pgxpool.NewWithConfig(ctx, forCalls(config)); err != nil {
			return nil, err
		}
	}
	if err := warnOfSuperuser(ctx, log, s.pool); err != nil {
		return nil, err
	}
	if err := warnOfOpenSchemas(ctx, log, s.pool, "nmsdelivery"); err != nil {
		return nil, err
	}
	if err := checkInclude(ctx, s.pool, given.include); err != nil {
		return nil, err
	}
	foreign, err := s.belongs(ctx, c.instance)
	if err != nil {
		return nil, err
	}
	if foreign != nil { // what a copy names is the original's
		given.others, given.forms = nil, nil
	}
	if err := s.connectStandby(ctx, given.standby, c.batches.Workers, c.tracer); err != nil {
		return nil, err
	}
	if err := s.connectOthers(ctx, given.others, c.tracer); err != nil {
		return nil, err
	}
	if forms := given.forms; forms != nil {
		forms.Lease = c.lease
		forms.Own = func(ctx context.Context) error { return runs.Own(ctx, s.pool, c.instance) }
		if err := await(ctx, log, c.patience, func() (err error) {
			s.forms, err = forms.open(ctx, given.database, c.formsTracer)
			return err
		}); err != nil {
			return nil, err
		}
		if forms.pool != nil {
			if err := warnOfOpenSchemas(ctx, log, forms.pool, "tb_process_instance"); err != nil {
				return nil, err
			}
		}
	}
	if c.instance == "" {
		log.Warn("the service has no name: give each one its own, --instance NAME, so that a copy of the disk with the database is not taken for the database")
	}
	hostname, _ := os.Hostname() // informational
	var more *outside.Source
	if s.forms != nil {
		more = s.forms.Tasks()
	}
	s.manager = runs.New(runs.Config{Pool: s.pool, Calls: s.calls, Standby: execute.Standby{Pool: s.standby}, Outside: more, Lease: c.lease, KeepSchedule: c.schedule, History: c.history, PlanMaxAge: c.planMaxAge, Instance: c.instance, Settings: c.batches, Log: log, Version: programVersion(), Replica: fmt.Sprintf("%s/%d", hostname, os.Getpid()),
		MidSourcing: execute.MidSourcing{Databases: s.others, Keep: given.keep}, RelatedListTables: c.listTables, Include: given.include})
	var streams context.Context
	streams, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	users := service.NewUserData(streams, s.forms)
	if foreign != nil {
		users = service.NoUserData(foreign)
	}
	s.server, err = service.NewServer(service.New(streams, s.calls, s.manager), users, door)
	return s, err
}

// belongs makes a database that nobody cleans yet that of an instance. foreign says that it is another one's, or a copy: it is served, and
// nothing is changed, there or elsewhere.
func (s *server) belongs(ctx context.Context, instance string) (foreign *execute.RefusedError, err error) {
	err = runs.Own(ctx, s.pool, instance)
	if errors.As(err, &foreign) {
		return foreign, nil
	}
	return nil, err
}

// serve serves until the context ends, or one of the listeners fails. Then it ends, in this order, streams, REST, gRPC, the
// work after its current batch, and the pool.
func (s *server) serve(ctx context.Context) error {
	defer s.close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ctx, s.stop)()
	s.log.Info("serving", "grpc", s.grpc.Addr().String(), "http", s.http.Addr().String())
	var wg sync.WaitGroup
	working, rest := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { s.manager.Work(ctx) })
	if !s.few {
		wg.Go(func() { s.manager.Listen(working) })
	}
	if s.forms != nil {
		wg.Go(func() { s.forms.Work(ctx, s.log) })
	}
	err := s.server.Serve(ctx, s.grpc, s.http)
	end()
	rest()
	wg.Wait()
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

func (s *server) close() {
	if s.stop != nil {
		s.stop()
	}
	for _, l := range []net.Listener{s.grpc, s.http} {
		if l != nil {
			_ = l.Close()
		}
	}
	for _, pool := range s.others {
		pool.Close()
	}
	if s.forms != nil {
		s.forms.Forms.Close()
		s.forms.Record.Close()
	}
	for _, pool := range []*pgxpool.Pool{s.pool, s.calls, s.standby} {
		if pool != nil {
			pool.Close()
		}
	}
}

// checkAddress refuses a malformed address.
func checkAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usagef("%s: %q is no HOST:PORT", flag, address)
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return usagef("%s: %w", flag, err)
	}
	return nil
}

// listen listens on an address. One that is in use is no usage error.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}
