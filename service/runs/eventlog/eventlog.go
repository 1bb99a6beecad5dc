// Package eventlog lets any number of callers watch the events of runs: first past events, then new ones. A replica
// reads the log of a run only once for all its watchers: when a notification arrives or, in case one was missed, every
// second.
package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

type Log struct {
	// listener only provides the configuration of the connection that listens.
	pool, listener *pgxpool.Pool
	waiting        func()
	log            *slog.Logger

	mu    sync.Mutex
	tails map[uuid.UUID]*tail
}

// New returns a log. It calls waiting when a notification says that a run waits to be claimed. It opens the
// connection that listens with the configuration of listener.
func New(pool, listener *pgxpool.Pool, waiting func(), log *slog.Logger) *Log {
	return &Log{pool: pool, listener: listener, waiting: waiting, log: log, tails: map[uuid.UUID]*tail{}}
}

// Watch sends past events first, then new ones, and returns the run when it has ended. It fails with
// store.ErrNotFound, with a ReplacedError if the stored log lacks the place or loses an event that was sent, and
// with errors of send or of the database.
func (l *Log) Watch(
	ctx context.Context, runID string, after store.Place, send func(store.Event) error,
) (*store.Run, error) {
	id, err := store.ParseID(runID)
	if err != nil {
		return nil, err
	}
	run, err := store.GetRun(ctx, l.pool, id)
	if err != nil {
		return nil, err
	}
	sent := trail{after}
	if after.Sequence > 0 {
		sent[0], _, err = store.ReadEvents(ctx, l.pool, id, after, 0)
	}
	if err == nil && !run.State.Active() && after.Sequence >= run.LastSequence {
		return run, nil
	}
	for {
		var ended *store.Run
		if err == nil {
			ended, err = l.watchHistory(ctx, id, &sent, send)
		}
		if !errors.Is(err, store.ErrNoPlace) {
			return ended, err
		}
		// Perhaps only other watchers were sent the lost events.
		if err = sent.verify(ctx, l.pool, id); err != nil {
			return nil, err
		}
	}
}

// watchHistory fails with store.ErrNoPlace if the log is replaced meanwhile.
func (l *Log) watchHistory(
	ctx context.Context, id uuid.UUID, sent *trail, send func(store.Event) error,
) (*store.Run, error) {
	t, joined := l.join(id, sent.last())
	defer l.leave(t)
	if joined { // the tail may have been started before the log was replaced
		_, _, err := store.ReadEvents(ctx, l.pool, id, t.ring.last(), 0)
		if errors.Is(err, store.ErrNoPlace) {
			l.drop(t, err)
		}
		if err != nil {
			return nil, err
		}
	}
	for {
		events, more, ended, err := t.ring.after(sent.last().Sequence)
		if err != nil || ended != nil {
			return ended, err
		}
		if events == nil && more == nil { // the watcher fell behind the ring
			if _, events, err = store.ReadEvents(ctx, l.pool, id, sent.last(), pageSize); err != nil {
				return nil, err
			}
			if len(events) == 0 { // the ring is ahead of the log
				return nil, store.ErrNoPlace
			}
		}
		for _, e := range events {
			if err := send(e); err != nil {
				return nil, err
			}
			sent.add(e.Place)
			if e.Kind == store.RunFinished {
				return e.Run, nil
			}
		}
		if more == nil {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ReplacedError says that a watcher was sent events that the stored log no longer has.
type ReplacedError struct {
	RunID string
	// AfterSequence is the last event that the watcher was sent and that the log still has; 0 if there is none or it
	// is unknown.
	AfterSequence int64
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf(
		"the run's log no longer has the events after %d that were sent, as after a failover to a standby that "+
			"lagged: watch it again with after_sequence %[1]d",
		e.AfterSequence,
	)
}

const LogReplaced = "LOG_REPLACED"

func (*ReplacedError) Kind() failure.Kind { return failure.DataLoss }

func (e *ReplacedError) Info() (reason string, metadata map[string]string) {
	return LogReplaced, map[string]string{
		"run_id":         e.RunID,
		"after_sequence": strconv.FormatInt(e.AfterSequence, 10),
	}
}

// trail has the last event of each generation that a watcher was sent, oldest first.
type trail []store.Place

func (t trail) last() store.Place { return t[len(t)-1] }

func (t *trail) add(p store.Place) {
	if t.last().Generation == p.Generation {
		(*t)[len(*t)-1] = p
	} else {
		*t = append(*t, p)
	}
}

// verify fails with a ReplacedError if the stored log lacks part of the trail, and with store.ErrNotFound if the
// run was pruned.
func (t trail) verify(ctx context.Context, db campaign.Querier, id uuid.UUID) error {
	shared, err := store.SharedSequence(ctx, db, id, t)
	if err == nil && shared < t.last().Sequence {
		err = &ReplacedError{id.String(), shared}
	}
	return err
}

// Listen receives the notifications of all replicas until the context ends. While it is disconnected, tails still
// poll.
func (l *Log) Listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := failure.Catch(func() error { return l.listen(ctx) })
		failure.LogPanic(l.log, "listen for notifications", err)
		if ctx.Err() != nil {
			return
		}
		l.log.Warn("could not listen for notifications; polling meanwhile", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (l *Log) listen(ctx context.Context) error {
	conn, err := connection.Connect(ctx, l.listener.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+store.Channel); err != nil {
		return err
	}
	for {
		n, err := waitForNotification(ctx, conn)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		id, waiting := store.ParseNotification(n.Payload)
		if waiting {
			l.waiting()
			continue
		}
		l.mu.Lock()
		if t := l.tails[id]; t != nil {
			select {
			case t.wake <- struct{}{}:
			default: // a wake-up is already pending
			}
		}
		l.mu.Unlock()
	}
}

// pingAfter is how long to wait for a notification before checking the connection.
const pingAfter = 30 * time.Second

// waitForNotification returns nil if no notification arrived for a while and the connection is alive.
func waitForNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, stop := context.WithTimeout(ctx, pingAfter)
	defer stop()
	n, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return n, err
	}
	pinging, stop := context.WithTimeout(ctx, store.Timeout)
	defer stop()
	return nil, conn.Ping(pinging)
}
