package runs_test

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

var injections = flag.Int(
	"injections",
	suite.Size(suite.Faults, 4, 16),
	"how many statements of a worker TestInjectedErrors makes fail, evenly spread, in a run and in a dry run; 0: each in "+
		"each way",
)

// The ways in which a statement of the service itself may fail for a while.
var injectedFailures = []string{
	pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled,
	pgerrcode.ConnectionFailure, pgerrcode.AdminShutdown, pgtest.Terminated, pgtest.CutBefore, pgtest.CutAfter,
}

// A statement of a worker by its text and its number, from 1, among those with that text.
type statement struct {
	kind string
	nth  int
}

func (s statement) String() string { return fmt.Sprintf("%s %d", s.kind, s.nth) }

// Also the ends of transactions.
var ownStatement = regexp.MustCompile(`(?i)cleanupd\.|^(begin|commit)`)

// "" for the statement of a task.
func kindOf(sql string) string {
	words := strings.Join(strings.Fields(sql), " ")
	if !ownStatement.MatchString(words) {
		return ""
	}
	return words[:min(len(words), 200)]
}

// attempted is the result of a run with a statement that failed.
type attempted struct {
	sent     []statement // by the worker, from when the run was requested until it ended
	injected bool
	run      *store.Run
	events   []store.Event
}

// The result does not depend on the statement that fails.
func runInjected(t *testing.T, dry bool, fail statement, how string) (a attempted) {
	t.Helper()
	const rows = 12
	db := database(t)
	sessions(db, rows)
	// slow, so that the lease is renewed and progress is written
	db.Do(`INSERT INTO NmsVisitor (iVisitorId, tsLastModified) SELECT i, '2000-01-01' FROM generate_series(0, 3) i;
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN OLD; END';
		CREATE TRIGGER slow BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION slow()`)
	counts, requested := map[string]int{}, false
	injector, own := db.Inject(func(sql string) string {
		kind := kindOf(sql)
		if !requested || kind == "" {
			return ""
		}
		counts[kind]++
		s := statement{kind, counts[kind]}
		a.sent = append(a.sent, s)
		if s == fail {
			a.injected = true
			return how
		}
		return ""
	})
	var log buffer
	m, work, stop := replica(t, db, "a", func(c *runs.Config) {
		c.Pool, c.Calls, c.MaxRows = own, db.Pool, 1
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	run := start(t, m, runs.Request{Tasks: []string{"sessions", "visitors"}, DryRun: dry})
	injector.Locked(func() { requested = true })
	work()
	a.events = watch(t, m, run.ID)
	stop()
	injector.Locked(func() { requested = false }) // statements that the worker has not waited for may still arrive
	a.run = a.events[len(a.events)-1].Run
	if text := log.String(); strings.Contains(text, "panic") {
		t.Errorf("it panicked: %s", text)
	}
	if a.run == nil || a.run.State.Active() {
		t.Fatalf("the last event is %+v", a.events[len(a.events)-1])
	}
	var counted int64
	for _, r := range a.run.Results {
		counted += r.RowsDeleted
		if r.State == cleanup.Running || r.State == cleanup.Pending {
			t.Errorf("the task %s is %s", r.Task, r.State)
		}
	}
	left := db.Int("SELECT (SELECT count(*) FROM XtkSessionInfo) + (SELECT count(*) FROM NmsVisitor)")
	if deleted := rows + 4 - left; (dry && deleted != 0) || (!dry && deleted != counted) {
		t.Errorf("%d rows are counted, %d were deleted", counted, deleted)
	}
	if (a.run.State == store.Succeeded) != (counted == rows+3) || (a.run.State == store.Failed) != (a.run.Error != "") {
		t.Errorf("the run is %s after %d rows: %s", a.run.State, counted, a.run.Error)
	}
	if stored, err := m.Get(t.Context(), run.ID); err != nil || stored.State != a.run.State {
		t.Errorf("%+v is stored: %v", stored, err)
	}
	if t.Failed() {
		t.Logf("%q\n%s", logs(a.events), log.String())
	}
	return a
}

type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// A run succeeds, with exact counts and each event once, although any statement of its worker fails once, from the
// claim of the run to its end. A statement that is cancelled, for example by a timeout, may fail the run, with its
// SQLSTATE.
func TestInjectedErrors(t *testing.T) {
	t.Parallel()
	for name, dry := range map[string]bool{"run": false, "dry run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := runInjected(t, dry, statement{}, "").sent
			inject := func(s statement, how string) {
				t.Run(fmt.Sprintf("%.40s %d %s", s.kind, s.nth, how), func(t *testing.T) {
					t.Parallel()
					a := runInjected(t, dry, s, how)
					cancelled := how == pgerrcode.QueryCanceled && strings.Contains(a.run.Error, how)
					if !a.injected {
						t.Log("it did not come to this")
					} else if a.run.State != store.Succeeded && !cancelled {
						t.Errorf("the run is %s after %s: %s", a.run.State, s, a.run.Error)
					}
				})
			}
			for i := range *injections {
				inject(sent[i*len(sent)/(*injections)], injectedFailures[i%len(injectedFailures)])
			}
			if *injections == 0 {
				for _, s := range sent {
					for _, how := range injectedFailures {
						inject(s, how)
					}
				}
			}
		})
	}
}

// A run is cancelled although the answer to the COMMIT is lost.
func TestCancelWithoutAnAnswerToItsCommit(t *testing.T) {
	t.Parallel()
	db := database(t)
	cancelling := false
	injector, calls := db.Inject(func(sql string) string {
		if cancelling && strings.EqualFold(sql, "commit") {
			cancelling = false
			return pgtest.CutAfter
		}
		return ""
	})
	m, _, _ := replica(t, db, "a", func(c *runs.Config) { c.Calls = calls })
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}}) // nobody works on it
	injector.Locked(func() { cancelling = true })
	got, err := m.Cancel(t.Context(), run.ID)
	if err != nil || got.State != store.Cancelled {
		t.Errorf("cancelling the run: %+v, %v; want that it is cancelled", got, err)
	}
	injector.Locked(func() {
		if cancelling {
			t.Error("no COMMIT was cut")
		}
	})
}
