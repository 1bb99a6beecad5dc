package runs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// standbyAway makes every synchronous COMMIT of a private server wait for a standby that does not exist, or none.
func standbyAway(db *pgtest.DB, away bool) {
	name := map[bool]string{true: "nobody", false: ""}[away]
	db.Superuser(fmt.Sprintf("ALTER SYSTEM SET synchronous_standby_names = '%s'", name))
	db.Superuser("SELECT pg_reload_conf()")
	db.Until("SELECT (current_setting('synchronous_standby_names') = $1)::int", name)
}

// unready waits until the replica is not ready, with this word in the reason.
func unready(t *testing.T, m *runs.Manager, word string) {
	t.Helper()
	untilReady(t, m, func(err error) bool { return err != nil && strings.Contains(err.Error(), word) })
}

func untilReady(t *testing.T, m *runs.Manager, expected func(err error) bool) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for err := m.Ready(t.Context()); !expected(err); err = m.Ready(t.Context()) {
		if time.Now().After(end) {
			t.Fatalf("the replica is ready, or not for this: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// leaseEnds waits until the lease of the only run has expired, and another lease has passed.
func leaseEnds(db *pgtest.DB) {
	db.Until("SELECT (lease_until < clock_timestamp() - interval '7 seconds')::int FROM cleanupd.run")
}

// stalled returns two replicas that work on a run of this many rows, at 100 a second. They share a log; settings are
// appended to their URL.
func stalled(t *testing.T, db *pgtest.DB, rows int, settings string) (a, b *runs.Manager, run *store.Run, log *lines) {
	t.Helper()
	sessions(db, rows)
	log = &lines{}
	slow := func(c *runs.Config) {
		c.Lease = 6 * time.Second // a busy machine may well stand still for a third of it
		c.Pool, c.MaxRows, c.Limits.RowsPerSecond, c.Log = pool(t, db.URL()+settings), 1, 100, slog.New(
			slog.NewTextHandler(log, nil))
	}
	a, work, _ := replica(t, db, "a", slow)
	b, workB, _ := replica(t, db, "b", slow)
	run = start(t, a, runs.Request{Tasks: []string{"sessions"}})
	work()
	workB()
	db.Until("SELECT (sum(rows_deleted) >= 100)::int FROM cleanupd.task")
	return a, b, run, log
}

// While a synchronous standby is away, for much longer than a lease, a run waits, without using up attempts; the
// replicas are not ready, and their log and the run's say why.
func TestAStandbyThatIsAway(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for name, settings := range map[string]string{
		"the lease is not renewed in time":           "&lock_timeout=10000",
		"the lease's row is locked for lock_timeout": "&lock_timeout=1500",
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "the lease is not renewed in time")
			t.Parallel()
			testAStandbyThatIsAway(t, settings)
		})
	}
}

func testAStandbyThatIsAway(t *testing.T, settings string) {
	db, _ := migrated(t)
	a, b, run, log := stalled(t, db, 600, settings)
	standbyAway(db, true)
	unready(t, a, "SyncRep")
	unready(t, b, "SyncRep")
	leaseEnds(db)
	unready(t, a, "SyncRep")
	if n := db.Int("SELECT failed_attempts FROM cleanupd.run"); n != 0 {
		t.Errorf("%d failed attempts are counted", n)
	}
	standbyAway(db, false)
	events := watch(t, b, run.ID)
	checkFinished(t, events, 600)
	// The replica that waited may write the reason late to the run's log.
	if (!said(events, message.Warning, "waits for a synchronous standby (SyncRep)") &&
		!said(events, message.Warning, "stopped renewing its lease", "without progress: 0 of")) ||
		said(events, message.Warning, "without progress: 1 of") {
		t.Errorf("the run's log does not say that it waited, or counts a failed attempt: %q", logs(events))
	}
	if !strings.Contains(log.String(), "waits for a synchronous standby (SyncRep)") {
		t.Errorf("nothing was logged of it: %s", log)
	}
	for _, m := range []*runs.Manager{a, b} {
		untilReady(t, m, func(err error) bool { return err == nil }) // one may still wait to claim the run
	}
}

// Called before each claim.
type onClaim func()

func (do onClaim) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "WITH waiting AS") {
		do()
	}
	return ctx
}

func (onClaim) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func traced(t *testing.T, url string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = tracer
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A claim whose COMMIT was not answered is effective. The replica continues with it, and no failed attempt is counted.
func TestAClaimWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"waits for a standby": 2 * time.Second, "is cut": time.Hour} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "is cut")
			t.Parallel()
			var db *pgtest.DB
			if lease == time.Hour {
				db = database(t)
			} else {
				db, _ = migrated(t)
			}
			sessions(db, 100)
			network := badnet.New(t, db.URL(), 0)
			var beside sync.WaitGroup
			defer beside.Wait()
			var once sync.Once
			own := traced(t, network.URL(db.URL()), onClaim(func() {
				once.Do(func() {
					if lease == time.Hour {
						network.CutAtCommit(badnet.AfterCommit)
						return
					}
					standbyAway(db, true)
					beside.Go(func() {
						time.Sleep(3 * lease)
						standbyAway(db, false)
					})
				})
			}))
			_, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool, c.Lease = own, lease })
			watcher, _, _ := replica(t, db, "b", nil)
			run := start(t, watcher, runs.Request{Tasks: []string{"sessions"}})
			work()
			events := watch(t, watcher, run.ID)
			checkFinished(t, events, 100)
			if said(events, message.Warning, "stopped renewing its lease") || db.Int(
				"SELECT failed_attempts FROM cleanupd.run",
			) != 0 {
				t.Errorf("it was set back: %q", logs(events))
			}
		})
	}
}

// While a file of the database URL is being replaced, a run waits, without using up attempts.
func TestCredentialsThatAreReplaced(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	sessions(db, 300)
	file := filepath.Join(t.TempDir(), "services")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[it]\n")
	url := db.URL() + "&lock_timeout=1000&service=it&servicefile=" + file
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.BeforeConnect = connection.Refresh(url)
	own, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	a, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool, c.MaxRows, c.Limits.RowsPerSecond = own, 1, 100 })
	watcher, _, _ := replica(t, db, "b", nil)
	run := start(t, watcher, runs.Request{Tasks: []string{"sessions"}})
	work()
	db.Until("SELECT (sum(rows_deleted) >= 100)::int FROM cleanupd.task")
	write("")
	own.Reset()
	unready(t, a, "no connection to the database can be opened")
	write("[it]\n")
	checkFinished(t, watch(t, watcher, run.ID), 300)
	if n := db.Int("SELECT failed_attempts FROM cleanupd.run"); n != 0 {
		t.Errorf("%d failed attempts are counted", n)
	}
}

// While the server cannot load PL/pgSQL, since its binaries were replaced, a run waits, without using up attempts, and
// says that the server must be restarted.
func TestAServerThatWasUpgraded(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, _ := migrated(t)
	db.Do(`CREATE FUNCTION plain() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
		CREATE TRIGGER plain BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION plain()`)
	a, b, run, log := stalled(t, db, 300, "")
	library := func(name string) {
		db.For("postgres").Do("UPDATE pg_proc SET probin = $1 WHERE proname = 'plpgsql_call_handler'", name)
	}
	library("$libdir/removed/plpgsql")
	unready(t, a, "must be restarted")
	for range 3 { // attempts that fail at the same row
		db.Until("SELECT (epoch > $1)::int FROM cleanupd.run", db.Int("SELECT epoch FROM cleanupd.run"))
	}
	if n := db.Int("SELECT failed_attempts FROM cleanupd.run"); n != 0 {
		t.Errorf("%d failed attempts are counted", n)
	}
	library("$libdir/plpgsql")
	events := watch(t, b, run.ID)
	checkFinished(t, events, 300)
	if !said(events, message.Warning, "PostgreSQL was upgraded") || !strings.Contains(log.String(), "58P01") {
		t.Errorf("neither log says why it waited: %q, %s", logs(events), log)
	}
}

// While the disk is full a run waits, without using up attempts, and says so.
func TestADiskThatIsFull(t *testing.T) {
	suite.Only(t, suite.Long) // TestErrorsThatPass/53100 is a small version
	t.Parallel()
	db, server := migrated(t)
	disk, err := pgtest.OnDisk(t, db, server)
	if err != nil {
		t.Skip(err)
	}
	db.Do(`CREATE TABLE trail (what text); ALTER TABLE trail ALTER what SET STORAGE PLAIN;
		CREATE FUNCTION trail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO trail
			VALUES (repeat(''x'', 7000)); RETURN OLD; END';
		CREATE TRIGGER trail BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION trail()`)
	// a deletion may need no space
	a, b, run, log := stalled(t, db, 600, "")
	if err := disk.Fill(); err != nil {
		t.Fatal(err)
	}
	unready(t, a, "the disk of the database server is full")
	leaseEnds(db)
	if err := disk.Free(); err != nil {
		t.Fatal(err)
	}
	events := watch(t, b, run.ID)
	checkFinished(t, events, 600)
	if !said(events, message.Warning, "the disk of the database server is full") ||
		!strings.Contains(log.String(), "53100") {
		t.Errorf("nothing was told of it: %q, %s", logs(events), log)
	}
	if n := db.Int("SELECT failed_attempts FROM cleanupd.run"); n != 0 {
		t.Errorf("%d failed attempts are counted", n)
	}
}
