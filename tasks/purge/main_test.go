package purge_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// account is what the batches of a test did.
type account struct {
	mu      sync.Mutex
	batches []purge.Delta
	warned  []string
	way     string
	// before is called after a batch's statement and before its commit, and may queue more; after is called then.
	before func(b *pgx.Batch) error
	after  func(d purge.Delta)
}

func (a *account) deleted() (n int64) {
	for _, d := range a.batches {
		n += d.Deleted
	}
	return n
}

// biggest is the most rows that one statement took.
func (a *account) biggest() (n int64) {
	for _, d := range a.batches {
		n = max(n, d.Largest)
	}
	return n
}

func engine(db *pgtest.DB) (*purge.Engine, *account) {
	a := &account{}
	return purge.New(purge.Engine{Pool: db.Pool, Ledger: a, Recorder: a}), a
}

func (a *account) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (func(error) error, error) {
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

func (a *account) ScanMethod(way string) { a.way = way }

func (a *account) Throttled(purge.Throttle) {}

func (a *account) Retried(string) {}

func (a *account) Proceed(context.Context) error { return nil }

func (a *account) Warn(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warned = append(a.warned, message)
}
