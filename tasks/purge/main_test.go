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
	// before is called in a batch's transaction, after its statement and before its commit; after is called then.
	before func(tx pgx.Tx) error
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
	return &purge.Engine{
		Pool: db.Pool,
		Commit: func(ctx context.Context, tx pgx.Tx, d purge.Delta) error {
			if a.before != nil {
				if err := a.before(tx); err != nil {
					return err
				}
			}
			if err := tx.Commit(ctx); err != nil {
				return err
			}
			if a.after != nil {
				a.after(d)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.batches = append(a.batches, d)
			return nil
		},
		Warn: func(message string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.warned = append(a.warned, message)
		},
	}, a
}
