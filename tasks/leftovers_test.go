package tasks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// recordRemotes deletes the deliveries of midSourced without configured servers. The run records the remote deliveries
// 101 and 199 of "far", and 102 of "lost".
func recordRemotes(t *testing.T) (here, there *pgtest.DB, knowing func(*cleanup.Config)) {
	t.Helper()
	here, there = midSourced(t)
	here.Do("UPDATE NmsDelivery SET sLabel = 'Sale ' || iDeliveryId WHERE iDeliveryId < 6")
	mustRun(t, here, nil, "deliveries")
	want := []string{"far 101 1 Sale 1", "far 199 6 ", "lost 102 2 Sale 2"}
	if got := recordedRemotes(here); !slices.Equal(got, want) {
		t.Fatalf("the recorded remote deliveries are %q, want %q", got, want)
	}
	return here, there, func(c *cleanup.Config) {
		c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool}
	}
}

const recordOfLost = "lost 102 2 Sale 2"

// Recorded remote deliveries are purged once their server is configured, even if the main database has no obsolete
// deliveries.
func TestLeftoversArePurged(t *testing.T) {
	t.Parallel()
	here, there, knowing := recordRemotes(t)
	before := recordedRemotes(here)
	j := mustRun(t, here, func(c *cleanup.Config) { knowing(c); dry(c) }, "deliveries")
	checkRecordedRemotes(t, here, before...)
	checkCount(t, there, 1, "SELECT count(*) FROM NmsDelivery WHERE iState = 75")
	j.checkLog(t, "INFO", `"far"`, "would purge 2 deliveries", "2 of them left there", "3 rows deleted, 1 updated")
	j.checkDeleted(t, "deliveries", 0)
	if j.recorded != 0 {
		t.Errorf("a dry run counted %d remote deliveries as recorded, want none", j.recorded)
	}
	j = mustRun(t, here, knowing, "deliveries")
	checkRecordedRemotes(t, here, recordOfLost)
	j.checkLog(t, "INFO", `"far"`, "purged 2 deliveries", "2 of them left there", "3 rows deleted, 1 updated")
	j.checkDeleted(t, "deliveries", 0)
	j.checkUpdated(t, "deliveries", 0)
	if j.recorded != 0 {
		t.Errorf("%d remote deliveries were recorded, want none", j.recorded)
	}
	checkRows(t, there, deliveriesLeft, "0", "1", "102", "103", "104")
	checkCount(t, there, 5, "SELECT count(*) FROM NmsBroadLogMid")
	checkCount(t, there, 1, "SELECT count(*) FROM NmsDeliveryPart")
	mustRun(t, here, knowing, "deliveries").checkNoLog(t, "deliveries")
}

// Remote deliveries that cannot be purged remain recorded. The task deletes the other deliveries, and fails.
func TestLeftoversThatStay(t *testing.T) {
	t.Parallel()
	here, there, knowing := recordRemotes(t)
	before := recordedRemotes(here)
	here.Do(`INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId,
		iDeliveryProviderId) VALUES (7, 1, '2000-01-01', 4, 104, 1)`)
	for _, hinder := range []func(c *cleanup.Config){
		func(c *cleanup.Config) { c.MidSourcing.Databases["far"] = here.Pool },
		func(*cleanup.Config) {
			there.Do("ALTER TABLE NmsDelivery ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
		},
		func(*cleanup.Config) {
			there.Do("ALTER TABLE NmsDelivery DISABLE ROW LEVEL SECURITY; REVOKE DELETE ON NmsDelivery FROM neolane")
		},
		func(*cleanup.Config) { there.Do("DROP TABLE NmsDelivery") },
		func(*cleanup.Config) {
			there.Superuser("ALTER DATABASE " + there.Name + " CONNECTION LIMIT 0")
			there.Reset()
		},
	} {
		here.Do("INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iDeliveryMode) " +
			"VALUES (8, 1, '2000-01-01', 1)")
		j, err := run(t, here, func(c *cleanup.Config) { knowing(c); hinder(c) }, "deliveries")
		j.checkState(t, "deliveries", cleanup.Failed)
		j.checkProblem(t, "deliveries",
			`"far" failed: 1 of its deliveries are retained here, and 2 of earlier runs there: `)
		if err == nil {
			t.Error("the run succeeded")
		}
		checkRows(t, here, deliveriesLeft, "4", "7")
		checkRecordedRemotes(t, here, before...)
	}
}

// A recorded delivery that was restored in the main database is not purged on its server before it is deleted again,
// and one that is retained on its server remains recorded.
func TestLeftoversThatAreHereAgain(t *testing.T) {
	t.Parallel()
	here, there, knowing := recordRemotes(t)
	before := recordedRemotes(here)
	here.Do(
		"INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iMidRemoteId, iDeliveryProviderId) VALUES (1, 4, 101, " +
			"1), (9, 4, 102, 1), (10, 1, 199, 1)",
	)
	j := mustRun(t, here, knowing, "deliveries")
	checkRecordedRemotes(t, here, before[0], recordOfLost)
	const remote = "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101"
	checkCount(t, there, 1, remote)
	j.checkLog(t, "INFO", "1 deliveries", `"far"`, "here again")
	here.Do("DELETE FROM NmsDelivery WHERE iDeliveryId = 1")
	locked := there.Hold("SELECT FROM NmsBroadLogMid WHERE iDeliveryId = 101 FOR UPDATE")
	mustRun(t, here, knowing, "deliveries")
	checkRecordedRemotes(t, here, before[0], recordOfLost)
	checkCount(t, there, 1, remote)
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	here.Do("INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iMidRemoteId, iDeliveryProviderId, iDeleteStatus, " +
		"tsDelete) VALUES (1, 4, 101, 1, 1, '2000-01-01')")
	mustRun(t, here, knowing, "deliveries")
	checkRecordedRemotes(t, here, recordOfLost)
	checkCount(t, there, 0, remote)
}

// Recorded deliveries remain recorded while row security may hide that they are in the main database again.
func TestLeftoversThatMayBeHereAgain(t *testing.T) {
	t.Parallel()
	here, there, knowing := recordRemotes(t)
	before := recordedRemotes(here)
	here.Do("INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iMidRemoteId, iDeliveryProviderId) " +
		"VALUES (1, 4, 101, 1)")
	for _, table := range []string{"NmsDelivery", "NmsExtAccount"} {
		here.Do(hideRows(table))
		j := mustRun(t, here, knowing, "deliveries")
		checkRecordedRemotes(t, here, before...)
		checkCount(t, there, 1, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101")
		j.checkLog(t, "WARNING", "row security may hide rows of "+strings.ToLower(table))
		here.Do("ALTER TABLE " + table + " DISABLE ROW LEVEL SECURITY")
	}
}

// If a run is interrupted after the purge on the server and before it deletes the records, the next run deletes them.
func TestLeftoversOfAnInterruptedRun(t *testing.T) {
	t.Parallel()
	here, there, knowing := recordRemotes(t)
	here.Do(
		`CREATE FUNCTION fail() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60); END';
			CREATE TRIGGER fail BEFORE DELETE ON kept.delivery EXECUTE FUNCTION fail()`,
	)
	_, err := run(t, here, knowing, "deliveries")
	if !sqlstate.Lost(err) {
		t.Fatalf("the run ended with %v, want an error of the server", err)
	}
	checkCount(t, there, 0, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 101")
	if got := recordedRemotes(here); len(got) != 3 {
		t.Fatalf("the recorded remote deliveries are %q, want 3", got)
	}
	here.Do("DROP TRIGGER fail ON kept.delivery")
	mustRun(t, here, knowing, "deliveries")
	checkRecordedRemotes(t, here, recordOfLost)
}

// Remote deliveries are recorded also without labels or accounts, but not without the columns that identify them.
func TestLeftoversWithLessColumns(t *testing.T) {
	t.Parallel()
	for without, want := range map[string][]string{
		"ALTER TABLE NmsDelivery DROP sLabel":       {"far 101 1 ", "far 199 6 ", "lost 102 2 "},
		"DROP TABLE NmsExtAccount":                  {" 101 1 ", " 102 2 ", " 199 6 "},
		"ALTER TABLE NmsDelivery DROP iMidRemoteId": nil,
	} {
		here := mainDatabase(t)
		here.Do(without)
		if mustRun(t, here, nil, "deliveries"); !slices.Equal(recordedRemotes(here), want) {
			t.Errorf("%s: the recorded remote deliveries are %q, want %q", without, recordedRemotes(here), want)
		}
	}
}

// A delivery that cannot be recorded is not deleted.
func TestLeftoversThatCanNotBeRecorded(t *testing.T) {
	t.Parallel()
	here := mainDatabase(t)
	here.Do(recording)
	here.Do("ALTER TABLE kept.delivery ADD CHECK (there <> 102)")
	j, err := run(t, here, nil, "deliveries")
	j.checkState(t, "deliveries", cleanup.Failed)
	if err == nil {
		t.Error("the run succeeded")
	}
	checkCount(t, here, 1, "SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 2")
	if slices.Contains(recordedRemotes(here), "lost 102 2 ") {
		t.Errorf("the delivery 102 was recorded: %q", recordedRemotes(here))
	}
}
