package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A batch of coupons reads the logs of its coupons, and not all logs of the parents.
func TestCouponsReadTheirOwnLogs(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, 1, '2000-01-01'
			FROM generate_series(1, 50) i;
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified) SELECT i, i % 50 + 1, '2000-01-01'
			FROM generate_series(1, 20000) i;
		INSERT INTO NmsCouponValue (iCouponId, sCouponCode, iMessageId) SELECT 1, i, i FROM generate_series(1, 4000) i;
		ANALYZE`)
	j := mustRun(t, db, func(c *cleanup.Config) { c.Settings.MaxRows = 200 }, "deliveries")
	j.checkDeleted(t, "deliveries", 24_050)
	if read := db.Int(
		"SELECT COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = " +
			"'nmsbroadlogrcp'",
	); read > 300_000 {
		t.Errorf("%d logs were read, want at most 300000", read)
	}
}

// A batch of logs reads the deliveries of its logs, and not all deliveries to delete.
func TestLogsReadTheirOwnDeliveries(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, 1, '2000-01-01'
			FROM generate_series(1, 5000) i;
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified) SELECT i, i % 5000 + 1, '2000-01-01'
			FROM generate_series(1, 10000) i;
		ANALYZE`)
	j := mustRun(t, db, func(c *cleanup.Config) { c.Settings.MaxRows = 200 }, "deliveries")
	j.checkDeleted(t, "deliveries", 15_000)
	if read := db.Int(
		"SELECT COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = " +
			"'nmsdelivery'",
	); read > 200_000 {
		t.Errorf("%d deliveries were read, want at most 200000", read)
	}
}

// Parents without an index are read once per statement, not once per row.
func TestParentsWithoutAnIndexAreReadOnceAStatement(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsEmailErrorStat (iMXIP, tsDate) SELECT i, '2000-01-01' FROM generate_series(1, 20000) i;
		INSERT INTO NmsEmailError (iMXIP) SELECT i FROM generate_series(19001, 22000) i;
		ANALYZE`)
	db.Superuser("ALTER DATABASE " + db.Name + " SET work_mem = '64kB'") // as with many more parents
	db.Reset()
	j := mustRun(t, db, nil, "email-errors")
	j.checkDeleted(t, "email-errors", 2_000)
	if scans := db.Int("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'nmsemailerrorstat'"); scans > 50 {
		t.Errorf("the parents were read %d times, want at most 50", scans)
	}
}

// A dry run reads the tables with rows on hold once a statement, not once for each row that a later task may delete.
func TestDryRunsReadRowsOnHoldOnceAStatement(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE guest (id int PRIMARY KEY, seen timestamptz, friend int REFERENCES guest ON DELETE SET NULL);
		CREATE TABLE wish (guest int);
		INSERT INTO guest SELECT i, '2020-01-01', 1 + i % 1000 FROM generate_series(1, 3000) i;
		INSERT INTO wish SELECT i FROM generate_series(1, 3000) i; ANALYZE`)
	j := newJournal(db)
	j.holds = func() rules.Holds {
		holds := heldRows("public.guest", [3]string{"id", "int4", "3000"})
		holds.Rows[0].OID = uint32(db.Int("SELECT 'guest'::regclass::oid::bigint"))
		return holds
	}
	if err := runPoliciesWith(t, j, true, policy.Policy{
		Name: "a", Table: "guest", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
	}, policy.Policy{
		Name: "b", Table: "wish",
		OrphanOf: &policy.OrphanOf{Column: "guest", ParentTable: "guest", ParentColumn: "id"},
	}); err != nil {
		t.Fatal(err)
	}
	db.Reset()
	if scans := db.Int("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'guest'"); scans > 100 {
		t.Errorf("the guests were read %d times, want at most 100", scans)
	}
	j.checkDeleted(t, "policy/b", 2_998) // of all guests but the one on hold and its friend
}
