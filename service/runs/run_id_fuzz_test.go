package runs_test

import (
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// Any text that is not the id of a run is ErrNotFound.
func FuzzRunID(f *testing.F) {
	for _, id := range []string{
		"", "x", "01a1fde2-f3f9-7404-bf12-c82939b07280", "urn:uuid:01a1fde2-f3f9-7404-bf12-c82939b07280",
		"{01a1fde2-f3f9-7404-bf12-c82939b07280}", "01a1fde2f3f97404bf12c82939b07280", "x\x00", "\xff",
	} {
		f.Add(id)
	}
	db := empty(f)
	m := runs.New(runs.Config{Pool: db.Pool})
	f.Fuzz(func(t *testing.T, id string) {
		if _, err := m.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := m.Cancel(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("cancelling %q: %v", id, err)
		}
	})
}

func empty(tb testing.TB) *pgtest.DB {
	db := pgtest.Empty(tb)
	conn, err := db.Acquire(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Release()
	if err := store.Migrate(tb.Context(), conn.Conn()); err != nil {
		tb.Fatal(err)
	}
	return db
}
