package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/service/runs/store"
)

type Log struct {
	// listener is only used for its configuration, with which the connection that listens is opened.
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
		// The lost events may have been sent only to other watchers.
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
