package tasks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

var injections = flag.Int("injections", suite.Size(suite.Faults, 3, 12),
	"how many statements of a run TestInjectedErrors has fail, evenly spread; 0: each")

// transientErrors are the SQLSTATEs of errors after which a retry can succeed.
var transientErrors = []string{
	pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable, pgerrcode.SerializationFailure, pgerrcode.QueryCanceled,
	pgerrcode.TooManyConnections, pgerrcode.OutOfMemory,
}

// A run survives a transient error of any statement, or fails a task with this error. The next run deletes the
// remaining rows. Each row is counted exactly once.
func TestInjectedErrors(t *testing.T) {
	t.Parallel()
	injectedRun := func(t *testing.T, at int, state string) (db *pgtest.DB, m *model, statements int, rows int64) {
		t.Helper()
		executed := 0
		db = pgtest.Campaign(t)
		m = randomDatabase(t, db, *firstSeed, now)
		i, pool := db.Inject(func(string) string {
			if executed++; executed == at {
				return state
			}
			return ""
		})
		j := newJournal(db)
		err := runWith(t, j, func(c *cleanup.Config) { c.Pool, c.ContinueOnError = pool, true })
		if err != nil && (at == 0 || errors.Is(err, context.Canceled)) {
			t.Fatal(err)
		}
		i.Locked(func() { statements = executed }) // the pool may still be closing connections
		again := newJournal(db)
		if err := runWith(t, again, nil); err != nil {
			t.Fatalf("the run after a failed one ended with %v", err)
		}
		var left int64
		for _, l := range j.retained {
			left += l.Rows() + l.Tables
		}
		if rest := total(again); rest > 0 && err == nil && left == 0 {
			t.Errorf("a run without an error that retained nothing left %d rows: %q", rest, j.logs)
		}
		return db, m, statements, total(j) + total(again)
	}
	_, _, statements, rows := injectedRun(t, 0, "")
	step := max(1, statements/max(1, *injections))
	if *injections == 0 {
		step = 1
	}
	offset := int(*firstSeed) % step
	for at := 1 + offset; at <= statements; at += step {
		state := transientErrors[at%len(transientErrors)]
		t.Run(fmt.Sprintf("statement %d %s", at, state), func(t *testing.T) {
			t.Parallel()
			db, m, executed, got := injectedRun(t, at, state)
			if executed < at { // this run executed fewer statements
				if db, m, executed, got = injectedRun(t, executed/2, state); executed < at/4 {
					t.Fatalf("%d statements were executed, want at least %d", executed, at/4)
				}
			}
			original := m.keys()
			m.run()
			compare(t, "after an injected error", contents(t, db, m, original), m.contents(original))
			if got != rows {
				t.Errorf("%d rows were counted, want %d", got, rows)
			}
		})
	}
}

func total(j *journal) (rows int64) {
	for _, n := range j.rows {
		rows += n
	}
	return rows
}
