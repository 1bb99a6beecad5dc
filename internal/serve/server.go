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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/version"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/transport"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/refused"
	"github.com/cleanupd/cleanupd/userdata"
)

// server is a replica that is ready to serve.
type Server struct {
	pool           *pgxpool.Pool            // of work
	calls          *pgxpool.Pool            // of callers, on the same database
	fewConnections bool                     // connections: one pool for both, and no listener
	standby        *pgxpool.Pool            // that dry runs read; nil: none
	midSourcing    map[string]*pgxpool.Pool // of the mid-sourcing servers
	forms          *userdata.Database       // nil: none
	manager        *runs.Manager
	server         *transport.Server
	GRPC, HTTP     net.Listener
	log            *slog.Logger
	stop           context.CancelFunc // ends streams
}

// maxRetainedWAL returns the default of --max-retained-wal in bytes, given that for a server without
// max_slot_wal_keep_size, whose unit is MiB.
const defaultRetainedWAL = "SELECT CASE WHEN setting::bigint > 0 THEN setting::bigint * 1048576 / 10 ELSE $1::bigint END " +
	"FROM pg_settings WHERE name = 'max_slot_wal_keep_size'"

// newServer takes the ports, connects, and brings the schema up to date.
func New(ctx context.Context, c Config, log *slog.Logger) (s *Server, err error) {
	given, err := c.check()
	if err != nil {
		return nil, err
	}
	config := given.database
	s = &Server{log: log}
	half := s
	defer func() {
		if err != nil {
			half.close()
		}
	}()
	if s.GRPC, err = listen("--grpc-listen", c.GRPCListen); err != nil {
		return nil, err
	}
	if s.HTTP, err = listen("--http-listen", c.HTTPListen); err != nil {
		return nil, err
	}
	door, err := c.access.serverConfig(ctx, log, s.GRPC, s.HTTP)
	if err != nil {
		return nil, err
	}
	door.Console = c.console
	if err := waitForDatabase(ctx, log, c.databaseWait, func() error { return migrateDatabase(ctx, config) }); err != nil {
		return nil, err
	}
	config.ConnConfig.Tracer = c.tracer
	wanted, most := connectionsBesideWorkers+c.batches.Workers, int(config.MaxConns)
	config.MaxConns += int32(c.batches.Workers) // each worker keeps a connection while it runs
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	n := availableConnections(ctx, s.pool, min(wanted, most))
	if n < minConnections {
		return nil, fmt.Errorf(
			"two connections to the database are needed at least, %d is granted: raise the size of the pool, the "+
				"role's CONNECTION LIMIT, max_connections or pool_max_conns",
			n,
		)
	}
	if s.fewConnections = n < min(wanted, 10); s.fewConnections { // a single pool, one batch at a time, and polling instead of notifications
		log.Warn(
			"few connections to the database: one batch runs at a time, and VACUUM is skipped if none is free for it",
			"granted",
			n,
			"wanted",
			wanted,
		)
		s.pool.Close()
		config.MaxConns, c.batches.Workers = int32(n), 1
		if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return nil, err
		}
	}
	// Connections that were closed or refused may still count on the server for a moment.
	if err := waitForDatabase(ctx, log, max(c.databaseWait, flags.ConnectTimeout), func() error { return s.pool.Ping(ctx) }); err != nil {
		return nil, err
	}
	if s.calls = s.pool; !s.fewConnections {
		if s.calls, err = pgxpool.NewWithConfig(ctx, callPoolConfig(config)); err != nil {
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
	if !c.retainedWALGiven {
		if err := s.pool.QueryRow(ctx, defaultRetainedWAL, c.batches.Limits.RetainedWAL).
			Scan(&c.batches.Limits.RetainedWAL); err != nil {
			return nil, err
		}
	}
	foreign, err := s.claimDatabase(ctx, c.instance)
	if err != nil {
		return nil, err
	}
	// what a copy names is the original's; deliveries that are there, too, stay until the service is restarted
	if foreign != nil {
		given.keep = slices.AppendSeq(given.keep, maps.Keys(given.midSourcing))
		given.midSourcing, given.forms = nil, nil
	}
	if err := s.connectStandby(ctx, given.standby, c.batches.Workers, c.tracer); err != nil {
		return nil, err
	}
	if err := s.connectMidSourcing(ctx, given.midSourcing, c.tracer); err != nil {
		return nil, err
	}
	if forms := given.forms; forms != nil {
		forms.Lease = c.lease
		forms.Own = func(ctx context.Context) error { return runs.Own(ctx, s.pool, c.instance) }
		forms.Held = func(ctx context.Context) error { return runs.Unheld(ctx, s.pool) }
		if err := waitForDatabase(ctx, log, c.databaseWait, func() (err error) {
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
		log.Warn(
			"the service has no name: give each one its own, --instance NAME, so that a copy of the disk with the " +
				"database is not taken for the database",
		)
	}
	hostname, _ := os.Hostname() // informational
	var more *outside.Source
	if s.forms != nil {
		more = s.forms.Tasks()
	}
	s.manager = runs.New(runs.Config{
		Pool:         s.pool,
		Calls:        s.calls,
		Standby:      pipeline.Standby{Pool: s.standby},
		Outside:      more,
		Lease:        c.lease,
		KeepSchedule: c.schedule,
		History:      c.history,
		PlanMaxAge:   c.planMaxAge,
		Instance:     c.instance,
		Settings:     c.batches,
		Log:          log,
		Version:      version.String(),
		Replica:      fmt.Sprintf("%s/%d", hostname, os.Getpid()),
		MidSourcing: midsourcing.Config{
			Databases: s.midSourcing,
			Keep:      given.keep,
		},
		RelatedListTables: c.listTables,
		VacuumTruncate:    c.vacuumTruncate,
		Include:           given.include,
	})
	var streams context.Context
	streams, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	users := service.NewUserData(streams, s.forms)
	if foreign != nil {
		users = service.NoUserData(foreign)
	}
	s.server, err = service.NewServer(service.New(streams, s.calls, s.manager), users, door)
	return s, err
}

// belongs makes a database that nobody cleans yet that of an instance. foreign says that it is another one's, or a
// copy: it is served, and nothing is changed, there or elsewhere.
func (s *Server) claimDatabase(ctx context.Context, instance string) (foreign *refused.Error, err error) {
	err = runs.Own(ctx, s.pool, instance)
	if errors.As(err, &foreign) {
		return foreign, nil
	}
	return nil, err
}

// serve serves until the context ends, or one of the listeners fails. Then it ends, in this order, streams, REST, gRPC,
// the work after its current batch, and the pool.
func (s *Server) Serve(ctx context.Context) error {
	defer s.close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ctx, s.stop)()
	s.log.Info("serving", "grpc", s.GRPC.Addr().String(), "http", s.HTTP.Addr().String())
	var wg sync.WaitGroup
	working, rest := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { s.manager.Work(ctx) })
	if !s.fewConnections {
		wg.Go(func() { s.manager.Listen(working) })
	}
	if s.forms != nil {
		wg.Go(func() { s.forms.Work(ctx, s.log) })
	}
	err := s.server.Serve(ctx, s.GRPC, s.HTTP)
	end()
	rest()
	wg.Wait()
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

func (s *Server) close() {
	if s.stop != nil {
		s.stop()
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

// listen listens on an address. One that is in use is no usage error.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}
