package purge_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type ledger struct {
	mu      sync.Mutex
	batches []purge.Delta
	warned  []string
	scan    purge.Scan
	// before is called between a batch's statement and its COMMIT, and may queue more; after is called after it.
	before func(b *pgx.Batch) error
	after  func(d purge.Delta)
}

func (a *ledger) deleted() (n int64) {
	for _, d := range a.batches {
		n += d.Deleted
	}
	return n
}

func (a *ledger) biggest() (n int64) {
	for _, d := range a.batches {
		n = max(n, d.Largest)
	}
	return n
}

func engine(db *pgtest.DB) (*purge.Engine, *ledger) {
	a := &ledger{}
	return purge.New(purge.Engine{Pool: db.Pool, Ledger: a, Recorder: a}), a
}

func (a *ledger) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (func(error) error, error) {
	if a.before != nil {
		if err := a.before(b); err != nil {
			return nil, err
		}
	}
	return func(err error) error {
		if err != nil {
			return err
		}
		if a.after != nil {
			a.after(d)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.batches = append(a.batches, d)
		return nil
	}, nil
}

func (a *ledger) Scanning(scan purge.Scan) { a.scan = scan }

func (a *ledger) Throttled(purge.Throttle) {}

func (a *ledger) Retried(string) {}

func (a *ledger) Proceed(context.Context) error { return nil }

func (a *ledger) Warn(m message.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warned = append(a.warned, m.Text)
}
