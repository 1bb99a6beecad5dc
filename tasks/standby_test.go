package tasks_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// withStandby returns a random database on a server with a standby, and a pool of the same database on the standby.
func withStandby(t *testing.T, seed uint64) (db *pgtest.DB, primary, standby *localpg.Server, there *pgxpool.Pool) {
	t.Helper()
	db, primary, standby = pgtest.PrivateWithStandby(t)
	randomDatabase(t, db, seed, now)
	db.Do("ANALYZE")
	return db, primary, standby, open(t, standby.URL(campaigndb.Role, db.Name))
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

type tracedStatements []string

func (a *tracedStatements) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData,
) context.Context {
	*a = append(*a, q.SQL)
	return ctx
}

func (*tracedStatements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func tracedPool(t *testing.T, db *pgtest.DB) (*pgxpool.Pool, *tracedStatements) {
	t.Helper()
	a := &tracedStatements{}
	config := db.Config()
	config.ConnConfig.Tracer = a
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, a
}

// A dry run reads the standby instead of the primary, once the standby has replayed all earlier changes. It finds the
// same rows.
func TestPreviewOfAStandby(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, primary, standby, there := withStandby(t, 11)
	here := mustRun(t, db, dry)
	traced, asks := tracedPool(t, db)
	if err := standby.FallBehind(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	db.Do("CREATE TABLE elsewhere.late (i int)")
	j := newJournal(db)
	catchUp := sync.OnceValue(func() error { return standby.CatchUp(t.Context(), primary) })
	j.proceed = catchUp
	if err := runWith(
		t, j, func(c *cleanup.Config) { c.Pool, c.DryRun, c.Standby.Pool = traced, true, there },
	); err != nil {
		t.Fatal(err)
	}
	j.checkLog(t, "waits for the standby", "bytes of WAL behind")
	if len(*asks) == 0 {
		t.Error("the primary executed no statement")
	}
	if slices.ContainsFunc(*asks, func(sql string) bool { return strings.Contains(sql, `"public".`) }) {
		t.Errorf("the dry run read the primary: %q", *asks)
	}
	compareDryRun(t, j, mustRun(t, db, nil))
	for task, tables := range here.previews {
		if len(tables) != len(j.previews[task]) {
			t.Errorf("%s: the preview is %+v on the primary, %+v on the standby", task, tables, j.previews[task])
		}
	}
}

// A dry run fails with a reason if the standby lags too far behind, is unreachable, or is not a standby of this
// database.
func TestAStandbyThatWillNotDo(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	db, primary, standby, there := withStandby(t, 12)
	fails := func(pool *pgxpool.Pool, parts ...string) {
		t.Helper()
		_, err := run(t, db, func(c *cleanup.Config) {
			c.DryRun, c.Standby = true, cleanup.Standby{Pool: pool, MaxWait: time.Millisecond}
		})
		if err == nil || errors.Is(err, cleanup.ErrLost) {
			t.Fatalf("the run ended with %v, want another error", err)
		}
		checkError(t, err, parts...)
	}
	fails(open(t, db.URL()), "not in recovery")
	fails(open(t, standby.URL(campaigndb.Role, "postgres")), "its database is postgres")
	strange := pgtest.Campaign(t)
	_, err := run(t, strange, func(c *cleanup.Config) { c.DryRun, c.Standby.Pool = true, there })
	checkError(t, err, "system identifier")
	if err := standby.FallBehind(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	db.Do("CREATE TABLE elsewhere.late (i int)")
	fails(there, "has not replayed", "bytes of WAL behind")
	mustRun(t, db, func(c *cleanup.Config) { c.Standby.Pool = there }, "sessions") // a run does not need the standby
	standby.Stop()
	fails(there, "--preview-database-url", "cannot be read")
}

// A dry run counts each row once, although its reads conflict with the standby's recovery.
func TestConflictsWithRecovery(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	db, _, standby, there := withStandby(t, 13)
	super := open(t, standby.URL("postgres", db.Name))
	for _, sql := range []string{"ALTER SYSTEM SET max_standby_streaming_delay = 0", "SELECT pg_reload_conf()"} {
		if _, err := super.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	db.Do(
		"TRUNCATE XtkSessionInfo; INSERT INTO XtkSessionInfo (sKey, sLogin, tsExpiration) SELECT i::text, i::text, " +
			"'2020-01-01' FROM generate_series(1, 100000) i",
	)
	// Vacuums another table, since a row of XtkSessionInfo that an UPDATE moves between two windows may be counted
	// twice or never.
	db.Do("CREATE TABLE elsewhere.vacuumed AS SELECT i FROM generate_series(1, 1000) i")
	config := there.Config()
	var met atomic.Bool
	config.ConnConfig.Tracer = onError{pgerrcode.SerializationFailure, func() { met.Store(true) }}
	there, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(there.Close)
	ended := make(chan error, 1)
	// Vacuums until the first conflict, since a dry run gives up after eight in a row.
	vacuum := func() error {
		for !met.Load() {
			var written string
			var replayed bool
			for _, sql := range []string{"UPDATE elsewhere.vacuumed SET i = i + 1", "VACUUM elsewhere.vacuumed"} {
				if _, err := db.Exec(t.Context(), sql); err != nil {
					return err
				}
			}
			if err := db.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&written); err != nil {
				return err
			}
			for !replayed {
				// This query may conflict, too.
				if err := super.QueryRow(t.Context(), "SELECT $1::text::pg_lsn <= pg_last_wal_replay_lsn()", written).
					Scan(&replayed); err != nil &&
					!sqlstate.Is(err, pgerrcode.SerializationFailure) {
					return err
				}
			}
		}
		return nil
	}
	go func() { ended <- vacuum() }()
	for over, lost := false, false; (!over || lost) && !t.Failed(); {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
		}
		j := newJournal(db)
		err := runWith(t, j, func(c *cleanup.Config) { c.DryRun, c.Standby.Pool = true, there }, "sessions")
		lost = errors.Is(err, cleanup.ErrLost) // a conflict between two statements: a worker would begin another attempt
		if err != nil && !lost {
			t.Fatal(err)
		}
		if !lost && j.deleted["sessions"] != 100_000 {
			t.Errorf("%d rows were counted, want 100000: %q", j.deleted["sessions"], j.logs)
		}
	}
}

// A standby has no rows of unlogged tables. A dry run reports that it did not count them.
func TestPreviewOfUnloggedTables(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	db, _, standby := pgtest.PrivateWithStandby(t)
	db.Do(
		`ALTER TABLE XtkAudit SET UNLOGGED; INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01');
			INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (5, 11); CREATE UNLOGGED TABLE wkf99000_1 AS
			SELECT generate_series(1, 1000) i;
		DROP TABLE NmsRtEvent;
			CREATE TABLE NmsRtEvent (iRtEventId bigint, tsLastModified timestamptz) PARTITION BY RANGE (tsLastModified);
		CREATE UNLOGGED TABLE rtevent_old PARTITION OF NmsRtEvent FOR VALUES FROM ('2000-01-01') TO ('2010-01-01');
			CREATE TABLE rtevent_new PARTITION OF NmsRtEvent DEFAULT;
		INSERT INTO NmsRtEvent VALUES (1, '2005-01-01'), (2, '2015-01-01')`,
	)
	there := open(t, standby.URL(campaigndb.Role, db.Name))
	j := mustRun(t, db, func(c *cleanup.Config) { c.DryRun, c.Standby.Pool = true, there }, "audit-trail",
		"expired-events", "workflow-instances")
	for task, table := range map[string]string{"audit-trail": "xtkaudit", "expired-events": "rtevent_old"} {
		j.checkLog(t, "WARNING", table+" is unlogged", "not counted")
		if j.retained[task].Tables != 1 {
			t.Errorf("%s retained %+v, want 1 table", task, j.retained[task])
		}
	}
	j.checkDeleted(t, "audit-trail", 0)
	j.checkDeleted(t, "expired-events", 1)
	remarked := map[string]bool{}
	for _, tables := range j.previews {
		for _, p := range tables {
			remarked[p.Table] = slices.ContainsFunc(p.Remarks,
				func(text string) bool { return strings.Contains(text, "unlogged") })
		}
	}
	for _, table := range []string{`"public"."xtkaudit"`, "wkf%"} {
		if !remarked[table] {
			t.Errorf("the preview has no remark on %s: %+v", table, j.previews)
		}
	}
}
