package userdata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cleanupd/cleanupd/internal/rescue"
)

// workInterval is how long a replica waits between two looks for erasures that no replica works on.
const workInterval = 2 * time.Second

// Wake makes Work look for erasures now.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default: // it is about to
	}
}

// Work carries out erasures, also those that other replicas have left, until the context ends.
func (m *Manager) Work(ctx context.Context, log *slog.Logger) {
	if m.OnlyWoken {
		select {
		case <-ctx.Done():
		case <-m.wake:
		}
	}
	pause := backoff.NewExponentialBackOff()
	pause.MaxInterval = 10 * time.Second
	for ctx.Err() == nil {
		wait := workInterval
		err := rescue.Call(func() error { return m.workOnce(ctx, log) })
		rescue.Log(log, "look for erasures", err)
		if err != nil && ctx.Err() == nil {
			log.Warn("an erasure was interrupted; it will be resumed", "error", err)
			wait = pause.NextBackOff()
		} else {
			pause.Reset()
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(wait):
		}
	}
}

// workOnce carries out each erasure that has not ended, unless another replica works on it. If one is interrupted,
// the next ones are still carried out.
func (m *Manager) workOnce(ctx context.Context, log *slog.Logger) error {
	if err := m.Own(ctx); err != nil {
		return err
	}
	ids, err := unfinishedErasures(ctx, m.Record, m.Forms.Identity(), m.Lease)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := m.Held(ctx); err != nil {
		return err
	}
	var problems error
	for _, id := range ids {
		if err := m.carryOut(ctx, id, log); err != nil {
			problems = errors.Join(problems, fmt.Errorf("erasure %s: %w", id, err))
		}
	}
	return problems
}

// carryOut carries out an erasure. If that panics, the erasure fails, so that it does not panic again on every
// replica.
func (m *Manager) carryOut(ctx context.Context, id string, log *slog.Logger) error {
	err := rescue.Call(func() error { return m.claims().do(ctx, id, m.run) })
	var panicked *rescue.Panic
	if !errors.As(err, &panicked) {
		return err
	}
	rescue.Log(log, "erasure "+id, err)
	return m.claims().do(ctx, id, func(ctx context.Context, e *erasure) error { return e.abandon(ctx, panicked) })
}

// errRunAbandoned stops the erasure of a purge whose run was not continued.
var errRunAbandoned = errors.New("its run was not continued")

// run carries out a sweep or an erasure that a user requested. It stops the erasure of a purge, which no run waits
// for any more.
func (m *Manager) run(ctx context.Context, e *erasure) (err error) {
	switch {
	case e.Sweep:
		var failed bool
		if failed, err = sweepDocuments(ctx, e, m.Folder); err == nil {
			err = e.finish(ctx, failed)
		}
	case e.Purge != nil:
		err = m.eraser().stop(ctx, e, errRunAbandoned)
	default:
		_, err = m.eraser().run(ctx, e, nil)
	}
	if held := (*heldError)(nil); errors.As(err, &held) && e.Held(ctx) != nil {
		err = errors.Join(err, e.report(ctx, infof("%v; the erasure will then be resumed", held)))
	}
	return err
}
