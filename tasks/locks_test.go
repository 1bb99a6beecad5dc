package tasks_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A work table that the application reads is skipped. Other sessions do not wait behind the drop for two seconds.
func TestDropDoesNotQueueTheApplication(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId) VALUES (0); INSERT INTO NmsGroup (iGroupId) VALUES (0); CREATE TABLE " +
			"grp7 (i int); CREATE TABLE grp8 (i int)",
	)
	reader := db.Hold("SELECT FROM grp7")
	others, done := make(chan error, 1), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				others <- nil
				return
			default:
			}
			if _, err := db.Exec(
				t.Context(), "SET lock_timeout = '2s'; SELECT FROM grp7; RESET lock_timeout",
			); err != nil {
				others <- err
				return
			}
		}
	}()
	j := mustRun(t, db, nil, "orphan-work-tables")
	close(done)
	if err := <-others; err != nil {
		t.Errorf("another session of the application failed: %v", err)
	}
	j.checkLog(t, "WARNING", "grp7")
	checkCount(t, db, 1, "SELECT count(*) FROM pg_class WHERE relname IN ('grp7', 'grp8')")
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, db, nil, "orphan-work-tables").checkDeleted(t, "orphan-work-tables", 1)
}

// A locked log retains its delivery until the next run, and no other delivery.
func TestLockedLogKeepsItsDelivery(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete)
			VALUES (1, 1, '2000-01-01'), (2, 1, '2000-01-01');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (1, 1), (2, 1), (3, 2);
			INSERT INTO NmsTrackingUrl (iTrackingUrlId, iDeliveryId) VALUES (1, 1), (2, 2)`,
	)
	tx := db.Hold("SELECT FROM NmsBroadLogRcp WHERE iBroadLogId = 1 FOR UPDATE")
	j := mustRun(t, db, impatient, "deliveries")
	checkRows(t, db, deliveriesLeft, "1")
	j.checkLog(t, "WARNING", "nmsbroadlogrcp", "1 obsolete row")
	checkCount(t, db, 1, "SELECT count(*) FROM NmsTrackingUrl")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, db, nil, "deliveries")
	if n := db.Int("SELECT (SELECT count(*) FROM NmsDelivery) + (SELECT count(*) FROM NmsBroadLogRcp)"); n != 0 {
		t.Errorf("%d rows remain after the next run", n)
	}
}

// In a table with a key to itself, rows that others keep do not count as locked where one row is.
func TestLockedRowAmongDependentOnes(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	var todo []rules.Task
	for table, action := range map[string]string{"kept": "NO ACTION", "cascading": "CASCADE"} {
		db.Do(fmt.Sprintf(`CREATE TABLE %[1]s (id int PRIMARY KEY, at date, parent int REFERENCES %[1]s ON DELETE %[2]s);
			INSERT INTO %[1]s SELECT i, '2020-01-01' FROM generate_series(1, 100) i;
			INSERT INTO %[1]s SELECT 1000 + i, '2026-02-28', i FROM generate_series(1, 30) i`, table, action))
		db.Hold("SELECT FROM " + table + " WHERE id = 50 FOR UPDATE")
		todo = append(todo, policy.Policy{
			Name: table, Table: table, Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		}.Task())
	}
	j := mustRun(t, db, func(c *cleanup.Config) {
		impatient(c)
		c.NoCampaign, c.Pipeline, c.Todo = true, todo, todo
	})
	for _, task := range todo {
		j.checkRetained(t, task.Name, purge.Retained{Locked: 1, Dependent: 30})
		j.checkDeleted(t, task.Name, 69)
	}
}

// A locked coupon retains the delivery of its message, and no other delivery. If a delivery was retained with coupons,
// the old logs of the coupons are kept, since only they connect the coupons with the delivery. The next run deletes the
// delivery with its coupons.
func TestLockedCouponKeepsItsDelivery(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete)
			VALUES (1, 1, '2000-01-01'), (2, 0, NULL), (3, 1, '2000-01-01');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified)
			VALUES (11, 1, '2000-01-01'), (12, 1, '2000-01-01'), (13, 1, '2000-01-01'), (21, 2, '2000-01-01'),
				(31, 3, '2026-02-28');
		INSERT INTO NmsCouponValue (iCouponId, sCouponCode, iMessageId)
			VALUES (1, 'a', 11), (1, 'b', 12), (1, 'c', 21), (1, 'd', 31)`,
	)
	locked := db.Hold("SELECT FROM NmsCouponValue WHERE iMessageId = 11 FOR UPDATE")
	pipeline := []string{"deliveries", "delivery-logs"}
	j := mustRun(t, db, impatient, pipeline...)
	const (
		logsThere    = "SELECT iBroadLogId::text FROM NmsBroadLogRcp WHERE iBroadLogId <> 0 ORDER BY 1"
		couponsThere = "SELECT sCouponCode FROM NmsCouponValue ORDER BY 1"
	)
	checkRows(t, db, logsThere, "11")
	checkRows(t, db, deliveriesLeft, "1", "2")
	checkRows(t, db, couponsThere, "a", "c")
	j.checkLog(t, "WARNING", "1 row of nmsdelivery is retained")
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, db, nil, pipeline...)
	checkRows(t, db, couponsThere, "c")
	checkRows(t, db, deliveriesLeft, "2")
	checkRows(t, db, logsThere)
}

type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The number of statements depends on the number of rows, not on the number of their deliveries.
func TestDeliveriesGoInSets(t *testing.T) {
	t.Parallel()
	logs := suite.Size(suite.Long, int64(10_000), 200_000)
	statements := func(deliveries int) int64 {
		db := pgtest.Campaign(t)
		db.Do(mappings)
		db.Do(
			"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState) SELECT i, CASE WHEN i <= $1::int "+
				"THEN 1 ELSE 0 END, '2000-01-01', 55 FROM generate_series(1, 1000) i",
			deliveries,
		)
		db.Do(
			"INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT i, 1 + i % $1::int FROM generate_series(1, "+
				"$2::int) i",
			deliveries, logs,
		)
		config, err := pgxpool.ParseConfig(db.URL())
		if err != nil {
			t.Fatal(err)
		}
		count := &counter{}
		config.ConnConfig.Tracer = count
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		j := mustRun(t, db, func(c *cleanup.Config) { c.Pool, c.Settings.Target = pool, time.Minute }, "deliveries")
		if want := logs + int64(deliveries); j.deleted["deliveries"] != want {
			t.Errorf("%d rows were deleted, want %d", j.deleted["deliveries"], want)
		}
		return count.n.Load()
	}
	few, many := statements(10), statements(1_000)
	t.Logf("%d statements for 10 deliveries, %d for 1000, with %d logs each time", few, many, logs)
	if many > few+10 {
		t.Errorf("%d statements for 1000 deliveries, want at most 10 more than the %d for 10", many, few)
	}
}

// Many lists are deleted in one transaction, with their tables. Four are retained: one with a locked row, one with a
// locked table, one whose deletion a trigger suppresses, and one with another owner's table.
func TestListsGoInGroups(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Campaign(t)
	const n = 3_000
	db.Do(
		`INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) SELECT i, i % 2, 1 FROM generate_series(1, 3000) i;
			INSERT INTO NmsGroup (iGroupId, iType) VALUES (0, 0), (5000, 1);
		CREATE FUNCTION keep() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF OLD.iGroupId = 1003 THEN RETURN NULL; END IF; RETURN OLD; END';
			CREATE TRIGGER keep BEFORE DELETE ON NmsGroup FOR EACH ROW EXECUTE FUNCTION keep();
		DO $$ BEGIN FOR i IN 1 .. 1999 BY 2 LOOP EXECUTE format('CREATE TABLE grp%s (i int)', i); END LOOP; END $$`,
	)
	db.Superuser("CREATE TABLE grp2001 (i int)")
	db.Hold("SELECT FROM NmsGroup WHERE iGroupId = 500 FOR UPDATE")
	db.Hold("LOCK TABLE grp1501")
	j := mustRun(t, db, nil, "lists-to-delete")
	retainedLists := []string{"500", "1003", "1501", "2001", "5000"}
	checkRows(t, db, "SELECT iGroupId::text FROM NmsGroup WHERE iGroupId <> 0 ORDER BY NmsGroup.iGroupId",
		retainedLists...)
	checkRows(t, db, "SELECT relname FROM pg_class WHERE relname ~ '^grp' ORDER BY oid", "grp1003", "grp1501",
		"grp2001")
	deleted, transactions := j.rows["lists-to-delete"], len(j.batches)
	if deleted != n-4 {
		t.Errorf("%d lists were deleted, want %d", deleted, n-4)
	}
	if transactions > n/5 {
		t.Errorf("%d transactions for %d lists, want at most %d", transactions, deleted, n/5)
	}
	t.Logf("%d lists were deleted in %d transactions", deleted, transactions)
}

// Work tables are dropped in groups. A table that is locked, in use, or needed by a view is kept.
func TestWorkTablesGoInGroups(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	n := suite.Size(suite.Long, int64(600), 1_000)
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId) VALUES (0); INSERT INTO NmsGroup (iGroupId, iType) VALUES (0, 0), " +
			"(250, 1)",
	)
	for i := int64(0); i < n; i += 100 { // so that no transaction holds too many locks
		db.Do(fmt.Sprintf(
			"DO $$ BEGIN FOR i IN %d..%d LOOP EXECUTE 'CREATE TABLE grp' || i || ' (i int)'; END LOOP; END $$", i+1,
			i+100,
		))
	}
	db.Do("CREATE VIEW report AS SELECT * FROM grp100")
	db.Hold("SELECT FROM grp200")
	// The view prevents one drop. The lock might have been released by the time of a run.
	if counted := mustRun(t, db, dry, "orphan-work-tables").deleted["orphan-work-tables"]; counted != n-2 {
		t.Errorf("a dry run counted %d tables, want %d", counted, n-2)
	}
	j := mustRun(t, db, nil, "orphan-work-tables")
	left := db.Strings("SELECT relname::text FROM pg_class WHERE relname ~ '^grp' ORDER BY 1")
	j.checkDeleted(t, "orphan-work-tables", n-3)
	j.checkLog(t, "WARNING", "grp200")
	j.checkLog(t, "WARNING", "grp100")
	if want := []string{"grp100", "grp200", "grp250"}; !slices.Equal(left, want) {
		t.Errorf("got %q, want %q", left, want)
	}
	if int64(len(j.batches)) > n/4 {
		t.Errorf("%d transactions for %d tables, want at most %d", len(j.batches), n, n/4)
	}
	t.Logf("%d transactions for %d tables", len(j.batches), n)
}

// A run reports the session that holds its lock.
func TestSquattedRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')")
	mallory := db.Role("mallory")
	pid := db.For(mallory).Hold("SELECT pg_advisory_xact_lock(-7)").Conn().PgConn().PID()
	j, err := run(t, db, func(c *cleanup.Config) { c.Lock = -7 }, "audit-trail")
	if err == nil {
		t.Error("the run succeeded")
	}
	j.checkProblem(t, "audit-trail", fmt.Sprintf("process %d of the role %q", pid, mallory))
	checkCount(t, db, 1, "SELECT count(*) FROM XtkAudit")
}
