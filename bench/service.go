package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type service struct {
	manager *runs.Manager
	pool    *pgxpool.Pool
	stop    context.CancelFunc
	working sync.WaitGroup
}

// startService starts the service. The method says how its replica commits, and whether it gives way to others.
func startService(ctx context.Context, url string, m Method, tracer pgx.QueryTracer) (*service, error) {
	config, err := flags.DatabaseURL("", url) // as the program connects
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Tracer, config.MaxConns = tracer, 16
	var undo time.Duration
	if m.undo {
		undo = time.Hour
	}
	settings := purge.Settings{
		Target:  purge.DefaultTarget,
		Workers: runs.DefaultWorkers,
		Limits:  purge.Limits{ReplicaLag: 10 * time.Second, ActiveSessions: 50, WaitingSessions: 10},
	}
	if m.synchronous {
		settings.SynchronousCommit = "on"
	}
	if m.tight {
		settings.Target, settings.Workers = 5*time.Millisecond, 1
		settings.Limits.ActiveSessions, settings.Limits.WALPerSecond, settings.Limits.RowsPerSecond = 1, 32<<20, 200_000
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	err = store.Migrate(ctx, conn)
	_ = conn.Close(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &service{
		manager: runs.New(runs.Config{
			Pool:         pool,
			Replica:      "bench",
			Log:          slog.New(slog.DiscardHandler),
			Settings:     settings,
			DefaultPace:  m.pace,
			Undo:         undo,
			UndoMaxBytes: 100 << 30,
		}),
		pool: pool,
	}
	if _, _, err := s.manager.SetGuards(ctx, "", "", func(guards guard.Limits) guard.Limits {
		guards.MaxSharePercent = 100 // most of a benchmark's table is obsolete
		return guards
	}); err != nil {
		pool.Close()
		return nil, err
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.working.Go(func() { s.manager.Work(ctx) })
	s.working.Go(func() { s.manager.Listen(ctx) })
	return s, nil
}

// hold creates holds of evenly spread recipients, and returns how many obsolete logs belong to these.
func (s *service) hold(ctx context.Context, conn *pgx.Conn, holds, recipients int) (retained int64, err error) {
	if holds == 0 {
		return 0, nil
	}
	step := recipients / (holds * holdSize)
	for n := range holds {
		h := store.Hold{Kind: store.HoldRecipients, Reason: "benchmark", CreatedBy: "bench"}
		for i := range holdSize {
			h.IDs = append(h.IDs, int64((n*holdSize+i+1)*step))
		}
		if _, err := s.manager.CreateHold(ctx, h); err != nil {
			return 0, err
		}
	}
	err = conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s AND iRecipientId %% %d = 0 AND "+
		"iRecipientId <= %d",
		table, old, step, holds*holdSize*step)).
		Scan(&retained)
	return retained, err
}

func (s *service) run(ctx context.Context, task string) error {
	started, err := s.manager.Start(ctx, runs.Request{Tasks: []string{task}, RequestedBy: "bench"})
	if err != nil {
		return err
	}
	ended, err := s.manager.Watch(ctx, started.ID, store.Place{}, func(store.Event) error { return nil })
	if err == nil && ended.State != store.Succeeded {
		err = fmt.Errorf("the run is %s: %s", ended.State, ended.Error)
	}
	return err
}

// close stops the service, and waits for its current batch.
func (s *service) close() {
	s.stop()
	s.working.Wait()
	s.pool.Close()
}
