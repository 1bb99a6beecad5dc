package runs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func database(t *testing.T) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "cleanupd", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, campaigndb.Schema)
		return errors.Join(err, store.Migrate(ctx, conn))
	})
}

// replica returns a Manager. work makes it start working; stop, or the end of the test, ends that.
func replica(t *testing.T, db *pgtest.DB, name string, change func(*runs.Config)) (m *runs.Manager, work, stop func()) {
	t.Helper()
	c := runs.Config{
		Pool:      db.Pool,
		Lease:     time.Second,
		PollEvery: 100 * time.Millisecond,
		Replica:   name,
		Log:       slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	m = runs.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { m.Listen(ctx) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return m, func() { wg.Go(func() { m.Work(ctx) }) }, stop
}

func watch(t *testing.T, m *runs.Manager, id string) []store.Event {
	t.Helper()
	var events []store.Event
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := m.Watch(
		ctx, id, store.Place{}, func(e store.Event) error { events = append(events, e); return nil },
	); err != nil {
		t.Fatalf("after %d events: %v", len(events), err)
	}
	for i, e := range events {
		if e.Sequence != int64(i+1) {
			t.Fatalf("event %d has sequence %d", i+1, e.Sequence)
		}
	}
	return events
}

func migrate(t *testing.T, db *pgtest.DB) {
	t.Helper()
	if err := db.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		return store.Migrate(t.Context(), conn.Conn())
	}); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, m *runs.Manager, req runs.Request) *store.Run {
	t.Helper()
	run, err := m.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// holdLast makes the deletion of the last of n sessions wait for release, so that a run does not end before, however
// slow the test is.
func holdLast(db *pgtest.DB, n int) (release func()) {
	db.Do(fmt.Sprintf(`CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW WHEN (OLD.sKey = '%d') EXECUTE FUNCTION wait()`, n))
	// the session may have begun while the database was read-only
	return func() { db.Do("BEGIN READ WRITE; INSERT INTO released DEFAULT VALUES; COMMIT") }
}

// Of the series with this label value, or of the only series.
func measured(t *testing.T, m *runs.Manager, name, value string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Metrics())
	// A busy database may not answer within the timeout of a scrape, and is then asked again after a while.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if family.GetName() == name && (value == "" || metric.GetLabel()[0].GetValue() == value) {
					return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() // it is either
				}
			}
		}
	}
	t.Fatalf("there is no %s of %q", name, value)
	return 0
}
