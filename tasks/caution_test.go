package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Orphans are not deleted if their parent table is missing or empty.
func TestOrphansNeedAParentWithRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	tables := []struct{ task, rows, child, parent string }{
		{"import-rejects", "INSERT INTO XtkReject (iRejectId, iJobId) VALUES (1, 99)", "XtkReject", "XtkJob"},
		{
			"workflow-logins", "INSERT INTO XtkWorkflowLogin (iWorkflowLoginId, iWorkflowId) VALUES (1, 99)",
			"XtkWorkflowLogin", "XtkWorkflow",
		},
		{
			"email-errors", "INSERT INTO NmsEmailError (iMXIP, iPublicId) VALUES (9, 1)", "NmsEmailError",
			"NmsEmailErrorStat",
		},
		{"mx-domains", "INSERT INTO NmsMxDomain (iMXIP, sDomain) VALUES (9, 'x')", "NmsMxDomain", "NmsEmailErrorStat"},
		{
			"app-subscriptions",
			"INSERT INTO NmsAppSubscriptionRcp (iAppSubscriptionRcpId, iServiceId, iMobileAppId) VALUES (1, 99, 99)",
			"NmsAppSubscriptionRcp", "NmsService, NmsMobileApp",
		},
		{
			"reactions", "INSERT INTO NmsRemaMatchRcp (iHypothesisId) VALUES (99)", "NmsRemaMatchRcp",
			"NmsRemaHypothesis",
		},
	}
	var names []string
	for _, c := range tables {
		db.Do(c.rows)
		names = append(names, c.task)
	}
	for _, state := range []string{"is empty", "is missing"} {
		j := mustRun(t, db, nil, names...)
		for _, c := range tables {
			checkCount(t, db, 1, "SELECT count(*) FROM "+c.child)
			for parent := range strings.SplitSeq(c.parent, ", ") {
				if log := j.log(c.task); !strings.Contains(log, parent) || !strings.Contains(log, state) {
					t.Errorf("%s says %q, want that %s %s", c.task, log, parent, state)
				}
			}
			db.Do("DROP TABLE IF EXISTS " + c.parent)
		}
	}
}

// Orphans are not deleted if row security hides rows of their parent table from the role.
func TestOrphansNeedAParentInPlainSight(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkWorkflow VALUES (1), (2); INSERT INTO XtkWorkflowLogin (iWorkflowLoginId, iWorkflowId)
			VALUES (1, 1), (2, 2);
		ALTER TABLE XtkWorkflow ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
			CREATE POLICY visible ON XtkWorkflow USING (iWorkflowId = 1)`,
	)
	j := mustRun(t, db, nil, "workflow-logins")
	checkCount(t, db, 2, "SELECT count(*) FROM XtkWorkflowLogin")
	j.checkLog(t, "row security", "XtkWorkflow")
}

func TestMissingColumns(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkJob VALUES (1);
		INSERT INTO XtkReject (iRejectId, iJobId) VALUES (1, 99), (2, 1);
		ALTER TABLE XtkReject DROP tsLog;
		INSERT INTO NmsVisitor (iVisitorId, tsLastModified)
			VALUES (1, '2000-01-01'); ALTER TABLE NmsVisitor DROP iOrigin`)
	j := mustRun(t, db, nil, "import-rejects", "visitors")
	// Of two rules, the one without its column is left out. A step without its column is skipped.
	checkRows(t, db, "SELECT iRejectId::text FROM XtkReject", "2")
	j.checkState(t, "import-rejects", cleanup.Succeeded)
	checkCount(t, db, 1, "SELECT count(*) FROM NmsVisitor")
	j.checkState(t, "visitors", cleanup.Skipped)
	j.checkLog(t, "nmsvisitor", "iOrigin")
}

// Mappings that name no table, a table without the columns of a log, or a table twice delete nothing else.
func TestHostileMappings(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	const old = "'2000-01-01'"
	db.Do(`INSERT INTO NmsDelivery (iDeliveryId, tsLastModified) VALUES (1, ` + old + `);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified) VALUES (1, ` + old + `);
		CREATE VIEW cusview AS SELECT * FROM NmsBroadLogRcp;
		CREATE TABLE cusnokey (iBroadLogId bigint, iDeliveryId integer, iStatus integer, tsLastModified timestamptz);
		INSERT INTO cusnokey VALUES (1, 1, 1, ` + old + `);
		CREATE TABLE "CusQuoted" (LIKE NmsBroadLogRcp INCLUDING ALL);
			INSERT INTO "CusQuoted" (iBroadLogId, tsLastModified) VALUES (1, ` + old + `);
		CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.cuselsewhere (LIKE NmsBroadLogRcp INCLUDING ALL);
			INSERT INTO elsewhere.cuselsewhere (iBroadLogId, tsLastModified) VALUES (1, ` + old + `)`)
	for i, name := range []string{
		"nms:delivery", "nms:trackingLogRcp", "cus:view", "cus:nokey", "cus:Quoted", "cus:elsewhere",
		"elsewhere.cus:elsewhere", "broadLogRcp", ":", "a:b:c", "", "nms:broadLogRcp; DROP TABLE NmsDelivery", `nms:"x`,
		"nms:broadLogRcp ", "pg_catalog:pg_class", "nms:broadLogRcp", "NMS:BROADLOGRCP",
	} {
		db.Do("INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES ($1, $2)", i+1, name)
	}
	j := mustRun(t, db, nil, "delivery-logs")
	j.checkDeleted(t, "delivery-logs", 1)
	for _, table := range []string{"NmsDelivery", "cusnokey", `"CusQuoted"`, "elsewhere.cuselsewhere"} {
		if db.Int("SELECT count(*) FROM "+table) != 1 {
			t.Errorf("a row of %s was deleted", table)
		}
	}
	for _, name := range []string{
		"nms:delivery", "nms:trackingLogRcp", "cus:view", "cus:nokey", "broadLogRcp", "DROP TABLE", "a:b:c",
	} {
		j.checkLog(t, "WARNING", name)
	}
}

// A log is recognized by a unique iBroadLogId, whether it is the primary key or not.
func TestLogWithAnotherPrimaryKey(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`CREATE TABLE CusLog (iId integer PRIMARY KEY, iBroadLogId bigint UNIQUE, iDeliveryId integer,
			iStatus integer, tsLastModified timestamptz);
		INSERT INTO CusLog VALUES (0, 5, 1, 1, '2000-01-01'), (1, 1, 1, 1, '2000-01-01'), (2, NULL, 1, 1, '2000-01-01');
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'cus:log')`,
	)
	mustRun(t, db, nil, "delivery-logs")
	checkRows(t, db, "SELECT iId::text FROM CusLog", "0")
}

func TestPartitionedLog(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE SCHEMA archive;
		CREATE TABLE CusBroadLogBig (iBroadLogId bigint, iDeliveryId integer, iStatus integer,
			tsLastModified timestamptz, PRIMARY KEY (iBroadLogId, tsLastModified)) PARTITION BY RANGE (tsLastModified);
		CREATE TABLE archive.big1 PARTITION OF CusBroadLogBig FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
		CREATE TABLE CusBroadLogBig2 PARTITION OF CusBroadLogBig FOR VALUES FROM ('2025-01-01') TO (MAXVALUE);
		INSERT INTO CusBroadLogBig
			VALUES (0, 1, 1, '2000-01-01'), (1, 1, 1, '2000-01-01'), (2, 1, 1, '2025-02-01'), (3, 1, 1, '2026-02-01');
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'cus:broadLogBig')`)
	j := mustRun(t, db, nil, "delivery-logs")
	checkRows(t, db, "SELECT iBroadLogId::text FROM CusBroadLogBig ORDER BY 1", "0", "3")
	j.checkDeleted(t, "delivery-logs", 2)
	j.checkNoLog(t, "INFO", "dropped")
	db.Do("DELETE FROM CusBroadLogBig; INSERT INTO CusBroadLogBig VALUES (1, 1, 1, '2000-01-01')")
	j = mustRun(t, db, nil, "delivery-logs")
	j.checkLog(t, "INFO", "dropped partition big1: all its rows were obsolete")
	checkCount(t, db, 0, "SELECT count(*) FROM pg_class WHERE relname = 'big1'")
}

// A table that inherits from another table of the same family is swept with it. Each row counts once, and its zero
// record is kept, although the key is not inherited.
func TestInheritedTableOfTheFamily(t *testing.T) {
	t.Parallel()
	for _, isDry := range []bool{true, false} {
		db := pgtest.Campaign(t)
		db.Do(`CREATE TABLE nmspropositionold () INHERITS (NmsPropositionRcp);
			INSERT INTO nmspropositionold (iPropositionId, tsLastModified)
				VALUES (0, '2000-01-01'), (1, '2000-01-01'), (2, '2000-01-01');
			INSERT INTO NmsPropositionRcp (iPropositionId, tsLastModified) VALUES (3, '2000-01-01')`)
		j := mustRun(t, db, func(c *cleanup.Config) { c.DryRun = isDry }, "propositions")
		if j.deleted["propositions"] != 3 {
			t.Errorf("dry run: %t: %d rows, want 3", isDry, j.deleted["propositions"])
		}
		if !isDry {
			checkRows(t, db, "SELECT iPropositionId::text FROM NmsPropositionRcp", "0")
		}
	}
}

// A foreign key of "CusMember" does not link cusmember to lists.
func TestListsLinkedFromAQuotedTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`CREATE TABLE "CusMember" (iGroupId integer REFERENCES NmsGroup (iGroupId));
			CREATE TABLE cusmember (iOperatorId integer, iGroupId integer);
		INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) VALUES (1, 0, 1), (2, 0, 0); INSERT INTO "CusMember"
			VALUES (1), (2); INSERT INTO cusmember VALUES (7, 1)`,
	)
	mustRun(t, db, nil, "lists-to-delete")
	checkRows(
		t,
		db,
		`SELECT 'list ' || iGroupId FROM NmsGroup UNION ALL SELECT 'linked ' || iGroupId FROM "CusMember" UNION ALL
			SELECT 'other ' || iGroupId FROM cusmember`,
		"list 2",
		"linked 2",
		"other 1",
	)
}

// An update omits the assignment to a missing column, and makes the others.
func TestDeliveryWithoutTheDateOfItsEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iState, tsValidity)
			VALUES (1, 1, 55, '2000-01-01'); ALTER TABLE NmsDelivery DROP tsBroadEnd`,
	)
	mustRun(t, db, nil, "expired-deliveries")
	if db.Int("SELECT iState FROM NmsDelivery WHERE iDeliveryId = 1") != 95 {
		t.Error("the delivery has not got the state 95")
	}
}

// A cancelled log moves to the partition of its new date.
func TestCancelledLogsMoveToAnotherPartition(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`CREATE TABLE CusBroadLogBig (iBroadLogId bigint, iDeliveryId integer, iStatus integer,
			tsLastModified timestamptz, PRIMARY KEY (iBroadLogId, tsLastModified)) PARTITION BY RANGE (tsLastModified);
		CREATE TABLE big1 PARTITION OF CusBroadLogBig FOR VALUES FROM (MINVALUE) TO ('2026-01-01');
		CREATE TABLE big2 PARTITION OF CusBroadLogBig FOR VALUES FROM ('2026-01-01') TO (MAXVALUE);
		INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iState, tsValidity)
			VALUES (1, 1, 55, '2025-06-01'), (2, 1, 55, '2099-01-01');
		INSERT INTO CusBroadLogBig
			VALUES (0, 1, 6, '2025-06-01'), (1, 1, 6, '2025-06-01'), (2, 1, 1, '2025-06-01'), (3, 2, 6, '2025-06-01');
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'cus:broadLogBig')`,
	)
	j := mustRun(t, db, nil, "expired-deliveries")
	checkRows(t, db,
		"SELECT concat_ws(' ', tableoid::regclass, iBroadLogId, iStatus) FROM CusBroadLogBig ORDER BY iBroadLogId",
		"big1 0 6", "big2 1 7", "big1 2 1", "big1 3 6")
	j.checkUpdated(t, "expired-deliveries", 2)
}

func TestTooSmallDelayIsNeverUsed(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkOption (iOptionId, sName) VALUES (1, 'NmsCleanup_VisitorPurgeDelay');
		INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2000-01-01')`)
	for _, seconds := range []int{86_399, 30, 0, -1} {
		db.Do("UPDATE XtkOption SET iLongValue = $1", seconds)
		j := mustRun(t, db, nil, "visitors")
		checkCount(t, db, 1, "SELECT count(*) FROM NmsVisitor")
		j.checkState(t, "visitors", cleanup.Skipped)
		j.checkLog(t, "WARNING", fmt.Sprint(seconds), "NmsCleanup_VisitorPurgeDelay")
	}
}

func TestStoredDelayIsUsedToTheSecond(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', 86401)")
	db.Do("INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, $1), (2, $2)", now.Add(-86_402e9),
		now.Add(-86_401e9))
	mustRun(t, db, nil, "visitors")
	checkRows(t, db, "SELECT iVisitorId::text FROM NmsVisitor", "2")
}

func TestNpaiMovesItsLowerBound(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for _, c := range []struct{ setup, want string }{
		{"", "1000 7 true"},
		{"INSERT INTO XtkOption (iOptionId, sName, iDataType) VALUES (5, 'NmsCleanup_LastCleanup', 12)", "5 12 true"},
		{
			"SELECT setval('XtkNewId', 1001, false); INSERT INTO XtkOption (iOptionId, sName) VALUES (1001, 'x')",
			"1002 7 true",
		},
		{"CREATE SEQUENCE XtkOptionId START 77", "77 7 true"},
		{"DROP SEQUENCE XtkNewId, XtkOptionId", "-1 7 true"},
		{"INSERT INTO XtkOption (iOptionId, sName) VALUES (1000, 'x'), (-7, 'y')", "-8 7 true"},
	} {
		db.Do("DELETE FROM XtkOption; " + c.setup)
		mustRun(t, db, dry, "npai")
		if db.Int("SELECT count(*) FROM XtkOption WHERE tsTimeStampValue IS NOT NULL") != 0 {
			t.Errorf("%s: a dry run wrote the option", c.setup)
		}
		mustRun(t, db, nil, "npai")
		got := db.Strings(
			"SELECT iOptionId || ' ' || iDataType || ' ' || (tsTimeStampValue = $1) FROM XtkOption WHERE sName = "+
				"'NmsCleanup_LastCleanup'",
			now,
		)
		if !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: the stored option is %q, want %s", c.setup, got, c.want)
		}
	}
}

func TestNpaiThatIsSkippedDoesNotMoveItsLowerBound(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("DROP TABLE NmsAddress")
	j := mustRun(t, db, nil, "npai")
	j.checkState(t, "npai", cleanup.Skipped)
	checkCount(t, db, 0, "SELECT count(*) FROM XtkOption")
}

// npai keeps its lower bound if a row was locked, so that the next run finds the row again.
func TestNpaiThatLeavesARowDoesNotMoveItsLowerBound(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (7, 2, '2026-02-28'), (8, 2, '2026-02-28')")
	tx := db.Hold("SELECT FROM NmsAddress WHERE iAddressId = 7 FOR UPDATE")
	j := mustRun(t, db, impatient, "npai")
	checkRows(t, db, "SELECT iAddressId::text FROM NmsAddress", "7")
	checkCount(t, db, 0, "SELECT count(*) FROM XtkOption")
	j.checkState(t, "npai", cleanup.Succeeded)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, db, nil, "npai")
	checkCount(t, db, 0, "SELECT count(*) FROM NmsAddress")
	checkCount(t, db, 1, "SELECT count(*) FROM XtkOption WHERE tsTimeStampValue = $1", now)
}

// Statistics are rolled up from the oldest one, even if its date is infinite or BC.
func TestEmailErrorStatsOfAllTimes(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for _, date := range []string{"-infinity", "0044-03-15 BC"} {
		db.Do("DELETE FROM NmsEmailErrorStat; DELETE FROM XtkOption")
		db.Do(
			"INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors) VALUES (1, 1, "+
				"$1::text::timestamptz, 30), (1, 1, '2026-02-01', 20)",
			date,
		)
		mustRun(t, db, nil, "email-error-stats")
		query := "SELECT iTotalErrors || ' ' || (tsDate = $1::text::timestamptz) FROM NmsEmailErrorStat"
		if got, want := db.Strings(query, date), []string{"50 true"}; !slices.Equal(got, want) {
			t.Errorf("the sums since %s are %q, want %q", date, got, want)
		}
	}
}

// Sums are limited to the range of their columns, and a sum of NULLs is 0.
func TestEmailErrorStatsAtTheEdge(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`ALTER TABLE NmsEmailErrorStat ALTER iMessageErrors DROP NOT NULL;
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors, iTotalConnections, iMessageErrors)
			VALUES (1, 1, '2026-01-01', 30, -2147483648, NULL), (1, 1, '2026-01-02', 30, -2147483648, NULL)`)
	mustRun(t, db, nil, "email-error-stats")
	checkRows(t, db, "SELECT iTotalErrors || ' ' || iTotalConnections || ' ' || iMessageErrors FROM NmsEmailErrorStat",
		"60 -2147483648 0")
}

// If an option cannot be read, its default is not used: it might delete too much.
func TestOptionsOutOfSight(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', 86400000);
		INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2025-01-01')`)
	for _, hide := range []string{
		"ALTER TABLE XtkOption ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
		"ALTER TABLE XtkOption DISABLE ROW LEVEL SECURITY; ALTER TABLE XtkOption DROP iLongValue",
		"ALTER TABLE XtkOption ADD iLongValue bigint, DROP sName",
	} {
		db.Do(hide)
		j := mustRun(t, db, nil, "visitors", "statistics")
		checkCount(t, db, 1, "SELECT count(*) FROM NmsVisitor")
		j.checkLog(t, "WARNING", "NmsCleanup_VisitorPurgeDelay cannot be read")
		j.checkLog(t, "WARNING", "XtkCleanup_NoStats cannot be read")
	}
}

// The time of the last cleanup and the start of the next roll-up have no default while row security may hide them.
func TestMomentsOutOfSight(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (7, 2, '2026-01-01');
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors)
			VALUES (1, 1, '2026-01-01', 30), (1, 1, '2026-01-02', 30);
		ALTER TABLE XtkOption ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`)
	j := mustRun(t, db, nil, "npai", "email-error-stats")
	got := db.Strings("SELECT (SELECT count(*) FROM NmsAddress) || ' ' || (SELECT count(*) FROM NmsEmailErrorStat)")
	j.checkLog(t, "WARNING", "row security", "last cleanup")
	j.checkLog(t, "row security", "rolled up")
	if want := []string{"1 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Without the column tsTimeStampValue delays apply and npai has no lower bound. Statistics are not rolled up, since the
// time of the roll-up cannot be stored.
func TestOptionsWithoutMoments(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`ALTER TABLE XtkOption DROP tsTimeStampValue;
		INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', 86400000);
		INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2025-01-01');
		INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (7, 2, '2026-01-01');
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors)
			VALUES (1, 1, '2026-01-01', 30), (1, 1, '2026-01-02', 30)`)
	j := mustRun(t, db, nil, "visitors", "npai", "email-error-stats")
	got := db.Strings(
		"SELECT (SELECT count(*) FROM NmsVisitor) || ' ' || (SELECT count(*) FROM NmsAddress) || ' ' || (SELECT " +
			"count(*) FROM NmsEmailErrorStat)",
	)
	j.checkState(t, "email-error-stats", cleanup.Skipped)
	if want := []string{"1 0 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A dry run reports a locked table that it could not count.
func TestDryRunOfALockedTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2025-01-01')")
	db.Hold("LOCK TABLE XtkSessionInfo")
	j := mustRun(t, db, func(c *cleanup.Config) { dry(c); impatient(c) }, "sessions", "visitors")
	j.checkLog(t, "WARNING", "xtksessioninfo", "skipped")
	j.checkDeleted(t, "visitors", 1)
}

func TestNoCampaignDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE something (id integer)")
	if _, err := run(t, db, nil); !errors.Is(err, campaign.ErrNotCampaign) {
		t.Errorf("the run ended with %v, want %v", err, campaign.ErrNotCampaign)
	}
}

// A run warns once of other schemas that have Campaign tables, and does not clean them.
func TestOtherSchemasAreNamed(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`CREATE SCHEMA other; CREATE TABLE other.NmsDelivery (LIKE NmsDelivery); CREATE SCHEMA archive;
			CREATE TABLE archive.XtkAudit (LIKE XtkAudit INCLUDING ALL); CREATE SCHEMA nothing;
			CREATE TABLE nothing.customer (i int);
		INSERT INTO archive.XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')`,
	)
	j := mustRun(t, db, nil, "audit-trail", "sessions", "deliveries")
	said := 0
	for _, line := range j.logs {
		if strings.HasPrefix(line, "WARNING only schema public is cleaned; Campaign's tables in other, archive are not") {
			said++
		}
	}
	checkCount(t, db, 1, "SELECT count(*) FROM archive.XtkAudit")
	if said != 1 {
		t.Errorf("%d warnings, want 1: %q", said, j.logs)
	}
}

// A schema that the role may not use is named as well, and is not chosen for it.
func TestOtherSchemasWithoutRightsAreNamed(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Superuser("CREATE SCHEMA hidden; CREATE TABLE hidden.nmsdelivery (LIKE public.nmsdelivery)")
	j := mustRun(t, db, nil, "audit-trail", "sessions")
	j.checkLog(t, "WARNING", "only schema public is cleaned; Campaign's tables in hidden are not", "that has USAGE on it")
	db.Do("DROP TABLE NmsDelivery")
	j = mustRun(t, db, nil, "audit-trail")
	j.checkLog(t, "WARNING", "only schema public is cleaned; Campaign's tables in hidden are not")

	empty := pgtest.Empty(t)
	empty.Superuser("CREATE SCHEMA hidden; CREATE TABLE hidden.nmsdelivery (id integer)")
	if _, err := run(t, empty, nil); !errors.Is(err, campaign.ErrNotCampaign) {
		t.Errorf("the run ended with %v, want %v", err, campaign.ErrNotCampaign)
	}
	if known, err := campaign.HasKnownTables(t.Context(), empty.Pool); known || err != nil {
		t.Errorf("tables in a schema that the role may not use are known: %t, %v", known, err)
	}
}

// A run cleans the schema of NmsDelivery, and no tables of the same names in other schemas.
func TestOtherSchemas(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE SCHEMA campaign; CREATE TABLE campaign.NmsDelivery (iDeliveryId integer PRIMARY KEY);
		CREATE TABLE campaign.XtkSessionInfo (sKey text, tsExpiration timestamptz);
			INSERT INTO campaign.XtkSessionInfo VALUES ('x', '2000-01-01');
		CREATE TABLE public.XtkSessionInfo (sKey text, tsExpiration timestamptz); INSERT INTO public.XtkSessionInfo
			VALUES ('x', '2000-01-01')`)
	mustRun(t, db, nil, "sessions")
	checkCount(t, db, 0, "SELECT count(*) FROM campaign.XtkSessionInfo")
	checkCount(t, db, 1, "SELECT count(*) FROM public.XtkSessionInfo")
	db.Do("CREATE SCHEMA other; CREATE TABLE other.NmsDelivery (iDeliveryId integer PRIMARY KEY)")
	if _, err := run(t, db, nil, "sessions"); err == nil || !strings.Contains(err.Error(), "search_path") {
		t.Errorf("two schemas have NmsDelivery, and the search path has neither: the error is %v", err)
	}
	db.Do("ALTER ROLE CURRENT_USER IN DATABASE " + db.Name + " SET search_path = other")
	db.Reset()
	if j := mustRun(t, db, nil, "sessions"); j.states["sessions"] != cleanup.Skipped {
		t.Errorf("task sessions is %s with another schema in the search path, want skipped", j.states["sessions"])
	}
}

// Missing rights are reported together, before anything is deleted.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO XtkSessionInfo VALUES ('x', 'x', '2000-01-01'); INSERT INTO XtkAudit (iAuditId, tsChanged) " +
			"VALUES (1, '2000-01-01')",
	)
	db.Do("REVOKE DELETE ON XtkAudit FROM CURRENT_USER; REVOKE SELECT ON XtkJob, NmsDeliveryMapping FROM CURRENT_USER")
	_, err := run(t, db, nil)
	checkError(t, err, `GRANT DELETE ON "public"."xtkaudit" TO "neolane"`, `GRANT SELECT ON "public"."xtkjob"`,
		`GRANT SELECT ON "public"."nmsdeliverymapping"`)
	checkCount(t, db, 1, "SELECT count(*) FROM XtkSessionInfo")
	j, err := run(t, db, func(c *cleanup.Config) { c.ContinueOnError = true })
	j.checkState(t, "audit-trail", cleanup.Failed)
	j.checkState(t, "sessions", cleanup.Succeeded)
	checkCount(t, db, 0, "SELECT count(*) FROM XtkSessionInfo")
	if err == nil {
		t.Error("the run succeeded")
	}
}

// Before it deletes anything, a task reports missing rights, including those that it needs beyond its steps.
func TestMissingRightsBeyondTheSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsGroup (iGroupId, iDeleteStatus) VALUES (1, 1);
		INSERT INTO NmsRcpGrpRel (iGroupId, iRecipientId) VALUES (1, 1);
		INSERT INTO NmsDelivery (iDeliveryId, iNeedMirrorPage, tsWebValidity) VALUES (1, 1, '2000-01-01');
		INSERT INTO NmsMirrorPageInfo (iMirrorPageInfoId, iDeliveryId) VALUES (1, 1);
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors) VALUES (1, 1, '2026-01-01', 30);
		INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (7, 2, '2026-01-01');
		INSERT INTO XtkWorkflow (iWorkflowId, iHistory) VALUES (1, 1);
		INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog) VALUES (1, 1, '2000-01-01')`)
	for _, c := range []struct{ task, right, retained string }{
		{"lists-to-delete", "DELETE ON NmsGroup", "NmsRcpGrpRel"},
		{"lists-to-delete", "UPDATE ON NmsGroup", "NmsRcpGrpRel"},
		{"mirror-pages", "INSERT ON XtkJobLog", "NmsMirrorPageInfo"},
		{"email-error-stats", "INSERT ON NmsEmailErrorStat", "NmsEmailErrorStat"},
		{"npai", "INSERT ON XtkOption", "NmsAddress"},
		{"workflow-instances", "SELECT ON NmsGroup", "XtkWorkflowLog"},
	} {
		db.Do("REVOKE " + c.right + " FROM CURRENT_USER")
		checkCount(t, db, 1, "SELECT count(*) FROM "+c.retained)
		j, err := run(t, db, func(c *cleanup.Config) { c.ContinueOnError = true }, c.task)
		if err == nil {
			t.Errorf("without %s the run succeeded", c.right)
		}
		right, table, _ := strings.Cut(c.right, " ON ")
		j.checkProblem(t, c.task, "GRANT "+right+` ON "public"."`+strings.ToLower(table))
		checkCount(t, db, 1, "SELECT count(*) FROM "+c.retained)
		db.Do("GRANT " + c.right + " TO CURRENT_USER")
	}
}

// Deleting lists is throttled, and counts towards RowsPerSecond.
func TestListsGiveWay(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO NmsGroup (iGroupId, iDeleteStatus) SELECT i, 1 FROM generate_series(1, 20) i")
	j := newJournal(db)
	j.proceed = func() error { return cleanup.ErrStopped }
	err := runWith(t, j, func(c *cleanup.Config) { c.Settings.Limits = purge.Limits{RowsPerSecond: 1} },
		"lists-to-delete")
	checkCount(t, db, 19, "SELECT count(*) FROM NmsGroup WHERE iGroupId <> 0")
	if !errors.Is(err, cleanup.ErrStopped) {
		t.Errorf("the run ended with %v, want %v", err, cleanup.ErrStopped)
	}
}

func TestAFailedTaskEndsTheRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01');
		CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
			CREATE TRIGGER no BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION no()`)
	j, err := run(t, db, nil, "visitors", "audit-trail", "sessions")
	j.checkState(t, "audit-trail", cleanup.Failed)
	j.checkState(t, "sessions", "")
	if j.states["visitors"] == cleanup.Failed {
		t.Errorf("the task before the failed one failed: %s", j.problems["visitors"])
	}
	if err == nil {
		t.Error("the run succeeded")
	}
}

func TestOptionNames(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"tracking-logs": {"NmsCleanup_TrackingLogPurgeDelay", "NmsCleanup_TrackingStatPurgeDelay"},
		"npai":          {"NmsCleanup_LastCleanup"},
		"statistics":    {"XtkCleanup_NoStats"},
		"sessions":      nil,
		"delivery-logs": {"NmsCleanup_BroadLogPurgeDelay"},
	}
	for _, task := range tasks.Pipeline {
		if names, ok := want[task.Name]; ok && !slices.Equal(task.OptionNames(), names) {
			t.Errorf("%s reads %v, want %v", task.Name, task.OptionNames(), names)
		}
		if task.Title == "" || task.Description == "" {
			t.Errorf("%s has no title or description", task.Name)
		}
	}
}

// A run warns if the application's own cleanup workflow is started. It continues if it cannot find that out.
func TestOtherCleaner(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for _, c := range []struct {
		sql   string
		warns bool
	}{
		{"INSERT INTO XtkWorkflow (iWorkflowId, sInternalName, iState) VALUES (7, 'cleanup', 11)", true},
		{
			"UPDATE XtkWorkflow SET iState = 20; INSERT INTO XtkWorkflow (iWorkflowId, sInternalName, iState) " +
				"VALUES (8, 'cleanup2', 11)",
			false,
		},
		{
			"UPDATE XtkWorkflow SET iState = 11; REVOKE ALL ON XtkWorkflow FROM CURRENT_USER; " +
				"GRANT SELECT (iWorkflowId, iState) ON XtkWorkflow TO CURRENT_USER",
			false,
		},
		{"GRANT ALL ON XtkWorkflow TO CURRENT_USER; ALTER TABLE XtkWorkflow DROP sInternalName", false},
		{"DROP TABLE XtkWorkflow", false},
	} {
		db.Do(c.sql)
		for _, change := range []func(*cleanup.Config){dry, nil} {
			if j := mustRun(t, db, change, "sessions"); j.said("WARNING", "own cleanup workflow") != c.warns {
				t.Errorf("%s: want a warning: %t; the log is %q", c.sql, c.warns, j.logs)
			}
		}
	}
	locked := pgtest.Campaign(t)
	locked.Do("INSERT INTO XtkWorkflow (iWorkflowId, sInternalName, iState) VALUES (7, 'cleanup', 11)")
	locked.Hold("LOCK TABLE XtkWorkflow IN ACCESS EXCLUSIVE MODE")
	mustRun(t, locked, nil, "sessions")
}
