package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/version"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/userdata"
)

type Server struct {
	GRPC, HTTP     net.Listener
	pool           *pgxpool.Pool            // for runs
	calls          *pgxpool.Pool            // for calls, to the same database
	fewConnections bool                     // runs and calls share a pool, without a connection for notifications
	standby        *pgxpool.Pool            // the standby that dry runs read; nil if they read the database itself
	midSourcing    map[string]*pgxpool.Pool // pools by the names of external accounts
	forms          *userdata.Manager        // nil without a Forms database
	manager        *runs.Manager
	api            *transport.Server
	log            *slog.Logger
	endStreams     context.CancelFunc
	created        bool // whether it has created the schema cleanupd
}

// New opens the listeners, connects to the databases, and updates the schema cleanupd.
func New(ctx context.Context, c Config, log *slog.Logger) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Server{log: log}
	if err := s.start(ctx, &c); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, c *Config) (err error) {
	if c.inProcess {
		s.GRPC, s.HTTP = newPipe(), newPipe()
	} else if s.GRPC, err = listen("--grpc-listen", c.GRPCListen); err != nil {
		return err
	} else if s.HTTP, err = listen("--http-listen", c.HTTPListen); err != nil {
		return err
	}
	callLog := s.log
	if c.inProcess { // the command prints how its calls end, also while warnings of others are printed
		callLog = slog.New(slog.DiscardHandler)
	}
	apiConfig, err := c.access.serverConfig(ctx, callLog, s.GRPC, s.HTTP)
	if err != nil {
		return err
	}
	apiConfig.Console = c.console
	migrate := func() (err error) {
		s.created, err = migrateDatabase(ctx, c.database, c.published)
		return err
	}
	if err := waitForDatabase(ctx, s.log, c.databaseWait, migrate); err != nil {
		return err
	}
	if s.created && c.created != nil {
		c.created(c.database.ConnConfig.Database)
	}
	if err := s.connect(ctx, c); err != nil {
		return err
	}
	if err := s.checkDatabase(ctx, c); err != nil {
		return err
	}
	if c.inProcess && c.runs.Instance == "" {
		if c.runs.Instance, err = storedInstance(ctx, s.pool); err != nil {
			return err
		}
	}
	readOnlyBecause, err := s.claimDatabase(ctx, c.runs.Instance)
	if err != nil {
		return err
	}
	// A copied database names the mid-sourcing servers of the original. Their deliveries are kept until this service
	// restarts.
	if readOnlyBecause != nil {
		keep := &c.runs.MidSourcing.Keep
		*keep = slices.AppendSeq(*keep, maps.Keys(c.midSourcingDatabases))
		c.midSourcingDatabases, c.formsDatabase = nil, nil
	}
	if err := s.connectStandby(ctx, c); err != nil {
		return err
	}
	if err := s.connectMidSourcing(ctx, c); err != nil {
		return err
	}
	if err := s.connectForms(ctx, c); err != nil {
		return err
	}
	if c.runs.Instance == "" && !c.inProcess {
		s.log.Warn("the service has no name: give each service its own --instance NAME, so that a copy of the disk " +
			"with the database is not mistaken for the database; if it serves this database already, run cleanupd adopt " +
			"with the new name, or it only reads from then on")
	}
	s.manager = s.newManager(c)
	var streams context.Context
	streams, s.endStreams = context.WithCancel(context.WithoutCancel(ctx))
	users := service.NewUserData(streams, s.forms)
	if readOnlyBecause != nil {
		users = service.NoUserData(readOnlyBecause)
	}
	if s.api, err = service.NewServer(service.New(streams, s.calls, s.manager), users, apiConfig); err != nil {
		return err
	}
	return s.logStart(ctx, c)
}

// connect makes separate pools for runs and for calls, or one pool for both if the database grants few connections.
func (s *Server) connect(ctx context.Context, c *Config) (err error) {
	config := c.database
	config.ConnConfig.Tracer = c.tracer
	wanted, most := sharedConnections+c.runs.Workers, int(config.MaxConns)
	config.MaxConns += int32(c.runs.Workers) // each worker keeps a connection while it runs
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	granted := availableConnections(ctx, s.pool, min(wanted, most))
	if granted < minConnections {
		return fmt.Errorf(
			"at least two connections to the database are needed, but only %d is granted: raise the size of the pool, "+
				"the role's CONNECTION LIMIT, max_connections or pool_max_conns",
			granted,
		)
	}
	if s.fewConnections = granted < min(wanted, 10); s.fewConnections {
		s.log.Warn(
			"few connections to the database: one batch runs at a time, and VACUUM is skipped if none is free for it",
			"granted", granted, "wanted", wanted)
		s.pool.Close()
		config.MaxConns, c.runs.Workers = int32(granted), 1
		if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return err
		}
	}
	// connections that were closed or refused may still count on the server for a while
	ping := func() error { return s.pool.Ping(ctx) }
	if err := waitForDatabase(ctx, s.log, max(c.databaseWait, flags.ConnectTimeout), ping); err != nil {
		return err
	}
	if s.calls = s.pool; !s.fewConnections {
		s.calls, err = pgxpool.NewWithConfig(ctx, callPoolConfig(config))
	}
	return err
}

// defaultRetainedWAL is in bytes: a tenth of max_slot_wal_keep_size, which is in MiB, or $1 if the server has no
// such limit.
const defaultRetainedWAL = `SELECT
	CASE WHEN setting::bigint > 0 THEN setting::bigint * 1048576 / 10 ELSE $1::bigint END
FROM pg_settings WHERE name = 'max_slot_wal_keep_size'`

// checkDatabase calls warn, and reads the default of --max-retained-wal.
func (s *Server) checkDatabase(ctx context.Context, c *Config) error {
	if !c.inProcess { // it warns when it begins to work
		if err := errors.Join(s.warn(ctx), warnOfBackups(ctx, s.log, s.pool)); err != nil {
			return err
		}
	}
	if c.retainedWALGiven {
		return nil
	}
	limit := &c.runs.Limits.RetainedWAL
	return s.pool.QueryRow(ctx, defaultRetainedWAL, *limit).Scan(limit)
}

// warn logs roles that could run code with the service's rights, and other problems of the database.
func (s *Server) warn(ctx context.Context) error {
	if err := warnOfSuperuser(ctx, s.log, s.pool); err != nil {
		return err
	}
	if err := warnOfOpenSchemas(ctx, s.log, s.pool, "nmsdelivery"); err != nil {
		return err
	}
	if err := warnOfOwners(ctx, s.log, s.pool); err != nil {
		return err
	}
	return warnOfPublishedSchema(ctx, s.log, s.pool)
}

// claimDatabase makes this service the owner of the database. If another service owns the database, or if it is a
// copy, readOnlyBecause says why the service changes nothing there.
func (s *Server) claimDatabase(ctx context.Context, name string) (readOnlyBecause *failure.Refusal, err error) {
	err = store.Own(ctx, s.pool, name)
	if errors.As(err, &readOnlyBecause) {
		return readOnlyBecause, nil
	}
	return nil, err
}

func (s *Server) connectForms(ctx context.Context, c *Config) error {
	forms := c.formsDatabase
	if forms == nil {
		return nil
	}
	forms.Lease, forms.OnlyWoken = c.runs.Lease, c.inProcess
	forms.Own = func(ctx context.Context) error { return store.Own(ctx, s.pool, c.runs.Instance) }
	forms.Held = func(ctx context.Context) error { return runs.CheckErasable(ctx, s.pool) }
	open := func() (err error) {
		s.forms, err = forms.open(ctx, c.database, c.formsTracer, c.published)
		return err
	}
	if err := waitForDatabase(ctx, s.log, c.databaseWait, open); err != nil {
		return err
	}
	if forms.pool == nil {
		return nil
	}
	return warnOfOpenSchemas(ctx, s.log, forms.pool, "tb_process_instance")
}

func (s *Server) newManager(c *Config) *runs.Manager {
	hostname, _ := os.Hostname() // only for information
	r := c.runs
	r.Pool, r.Calls, r.Standby.Pool, r.MidSourcing.Databases = s.pool, s.calls, s.standby, s.midSourcing
	r.Replica, r.Version, r.Log = fmt.Sprintf("%s/%d", hostname, os.Getpid()), version.String(), s.log
	r.OnlyFollowed = c.inProcess
	if s.forms != nil {
		r.Tasks.External = s.forms.Tasks
	}
	return runs.New(r)
}

// Serve serves until the context ends or a listener fails. It then ends, in this order: streams, REST, gRPC, the
// work on runs after the current batch, and the pools.
func (s *Server) Serve(ctx context.Context) error {
	now := make(chan struct{})
	close(now)
	return s.serve(ctx, now)
}

// serve executes runs once working is closed.
func (s *Server) serve(ctx context.Context, working <-chan struct{}) error {
	defer s.close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ctx, s.endStreams)()
	s.log.Info("serving", "grpc", s.GRPC.Addr().String(), "http", s.HTTP.Addr().String())
	var wg sync.WaitGroup
	listening, endListening := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() {
		select {
		case <-working:
			s.manager.Work(ctx)
		case <-ctx.Done():
		}
	})
	if !s.fewConnections {
		wg.Go(func() { s.manager.Listen(listening) })
	}
	if s.forms != nil {
		wg.Go(func() { s.forms.Work(ctx, s.log) })
	}
	err := s.api.Serve(ctx, s.GRPC, s.HTTP)
	end()
	endListening()
	wg.Wait()
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

// close also works if the server failed to start.
func (s *Server) close() {
	if s.endStreams != nil {
		s.endStreams()
	}
	for _, l := range []net.Listener{s.GRPC, s.HTTP} {
		if l != nil {
			_ = l.Close()
		}
	}
	for _, pool := range s.midSourcing {
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

// listen returns a plain error, not a usage error, if the address is in use.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

// These limit the pool for calls; the URL cannot change them.
const (
	maxCallConnections = 8
	callTimeout        = "5s" // limits each statement
)

func callPoolConfig(config *pgxpool.Config) *pgxpool.Config {
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = maxCallConnections, 0, 0
	connection.Set(config.ConnConfig, map[string]string{"statement_timeout": callTimeout})
	return config
}

// sharedConnections are used by a replica in addition to one connection per worker: for the ledger of a run, its
// lease, the load of the server, notifications, VACUUM and calls. With fewer connections it is slower, and it needs
// at least minConnections.
const (
	sharedConnections = 7
	minConnections    = 2
)

// availableConnections returns how many of the wanted connections the database grants. If these are too few, it
// tries again for a while, since connections that were just closed may still count.
func availableConnections(ctx context.Context, pool *pgxpool.Pool, wanted int) int {
	ctx, cancel := context.WithTimeout(ctx, flags.ConnectTimeout/2)
	defer cancel()
	n := 0
	for {
		if n = max(n, acquireConnections(ctx, pool, wanted)); n >= minConnections {
			return n
		}
		select {
		case <-ctx.Done():
			return n
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// acquireConnections returns how many connections it could open. The pool keeps them.
func acquireConnections(ctx context.Context, pool *pgxpool.Pool, wanted int) int {
	acquired := make([]*pgxpool.Conn, wanted)
	var wg sync.WaitGroup
	for i := range acquired {
		wg.Go(func() { acquired[i], _ = pool.Acquire(ctx) })
	}
	wg.Wait()
	n := 0
	for _, conn := range acquired {
		if conn != nil {
			n++
			conn.Release()
		}
	}
	return n
}
