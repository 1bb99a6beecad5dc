package runs_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// trap is a tracer that panics, once, when a certain statement is sent, or when a connection is acquired.
type trap struct {
	on     string       // a part of the statement; empty: none
	taken  atomic.Int64 // the number of connections still to acquire until it panics; 0: never
	sprung atomic.Bool
}

func (p *trap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	sql := strings.Join(strings.Fields(data.SQL), " ")
	if p.on != "" && strings.Contains(sql, p.on) && p.sprung.CompareAndSwap(false, true) {
		panic("PLANTED")
	}
	return ctx
}

func (p *trap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p *trap) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	if p.taken.Add(-1) == 0 {
		panic("PLANTED")
	}
	return ctx
}

func (p *trap) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// Several goroutines write the log, and another reads it.
type lines struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	written chan struct{} // closed by the next write; nil if nobody waits for it
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.buf.Write(p)
}

// next returns a channel that the next write closes.
func (l *lines) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = make(chan struct{})
	}
	return l.written
}

// until waits, for at most a minute, until the log has what it should have.
func (l *lines) until(has func() bool) bool {
	timeout := time.After(time.Minute)
	for {
		written := l.next()
		if has() {
			return true
		}
		select {
		case <-written:
		case <-timeout:
			return false
		}
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// trapped returns a replica whose connections panic on a statement, unless it is "". It deletes 300 rows a second.
func trapped(t *testing.T, db *pgtest.DB, on string) (m *runs.Manager, work func(), log *lines, p *trap) {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	log, p = &lines{}, &trap{on: on}
	config.ConnConfig.Tracer, config.MaxConns = p, 8
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	m, work, _ = replica(t, db, "a", func(c *runs.Config) {
		c.Pool, c.Log, c.KeepSchedule = pool, slog.New(slog.NewTextHandler(log, nil)), true
		c.MaxRows, c.Limits.RowsPerSecond = suite.Size(suite.Long, 10, 1), 300
	})
	return m, work, log, p
}

// A replica survives a panic, in a run or outside one: the run ends as it should, and the log has the stack.
func TestPanics(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for name, c := range map[string]struct {
		on      string
		state   store.State
		deleted int64
	}{
		"the lookout for runs":   {"WITH waiting AS", store.Succeeded, 300},
		"the listener":           {"LISTEN ", store.Succeeded, 300},
		"the removal of old":     {"DELETE FROM cleanupd.run WHERE", store.Succeeded, 300},
		"the schedule":           {"INSERT INTO cleanupd.schedule", store.Succeeded, 300},
		"the record of a start":  {"@lease::interval, progress_hash = ", store.Succeeded, 300},
		"the renewal of a lease": {"lease_until = clock_timestamp() + @lease::interval WHERE", store.Succeeded, 300},
		"the end of a run":       {"UPDATE cleanupd.run SET state = @state", store.Succeeded, 300},
		"the end of a task":      {"UPDATE cleanupd.task SET state = @state", store.Failed, 300},
		"what precedes tasks":    {"SELECT pg_advisory_xact_lock", store.Failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "the listener", "the renewal of a lease", "the end of a task")
			t.Parallel()
			db := database(t)
			sessions(db, 300)
			m, work, log, p := trapped(t, db, c.on)
			run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
			db.Do("UPDATE cleanupd.run SET epoch = 1, start_time = now()") // as though another replica had begun
			work()
			events := watch(t, m, run.ID)
			ended := events[len(events)-1].Run
			if ended.State != c.state || ended.Result("sessions").RowsDeleted != c.deleted ||
				db.Int("SELECT count(*) FROM XtkSessionInfo") != 300-c.deleted {
				t.Errorf("%s, %d rows: %s", ended.State, ended.Result("sessions").RowsDeleted, ended.Error)
			}
			if !log.until(func() bool { return p.sprung.Load() && strings.Contains(log.String(), "panic=PLANTED") }) {
				t.Fatalf("sprung: %t; logged: %s", p.sprung.Load(), log)
			}
			if !strings.Contains(log.String(), "TraceQueryStart") {
				t.Errorf("the log lacks the stack: %s", log)
			}
			if told := db.Int(
				"SELECT (SELECT count(*) FROM cleanupd.event WHERE body::text LIKE '%PLANTED%') + (SELECT count(*) " +
					"FROM cleanupd.run WHERE error LIKE '%PLANTED%')",
			); told != 0 {
				t.Error("the panic is told")
			}
		})
	}
}

// If the reader of a run's events panics, its watchers get an error, and the next one is served.
func TestPanicOfAWatchedRunsReader(t *testing.T) {
	t.Parallel()
	m, work, log, p := trapped(t, database(t), "")
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	p.taken.Store(2) // after the watcher has found the run
	_, err := m.Watch(t.Context(), run.ID, store.Place{}, func(store.Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "internal error (panic)") ||
		!strings.Contains(log.String(), "panic=PLANTED") {
		t.Errorf("%v; logged: %s", err, log)
	}
	work()
	watch(t, m, run.ID)
}

// If the collection of a metric panics, the others are still served.
func TestPanicOfAMetric(t *testing.T) {
	t.Parallel()
	m, _, log, p := trapped(t, database(t), "")
	p.taken.Store(1)
	if failed := measured(t, m, "cleanupd_scrape_error", "runs"); failed != 1 ||
		!strings.Contains(log.String(), "panic=PLANTED") {
		t.Errorf("cleanupd_scrape_error is %g; logged: %s", failed, log)
	}
	if failed := measured(t, m, "cleanupd_scrape_error", "tables"); failed != 0 &&
		!strings.Contains(log.String(), context.DeadlineExceeded.Error()) { // of a busy database
		t.Errorf("cleanupd_scrape_error of tables is %g", failed)
	}
}
