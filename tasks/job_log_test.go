package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

const deliveryWithPages = "INSERT INTO NmsDelivery (iDeliveryId, iNeedMirrorPage, tsWebValidity) VALUES (5, 1, " +
	"'2000-01-01'); "

// Entries of the job log get their ids from the sequence of XtkJobLog, as in the application, and not from XtkNewId.
func TestEntriesOfTheJobLogHaveItsOwnIDs(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]string{
		"XtkNewId is behind": "INSERT INTO XtkJobLog (iJobLogId) SELECT generate_series(900, 9000); SELECT " +
			"setval('XtkJobLogId', 9000)",
		"XtkNewId is ahead": "SELECT setval('XtkNewId', 9002), setval('XtkJobLogId', 9000)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(deliveryWithPages + setup)
			mustRun(t, db, nil, "mirror-pages")
			checkRows(t, db, "SELECT iJobLogId::text FROM XtkJobLog WHERE iJobId = 5", "9001")
			// the next entries of the application
			db.Do("INSERT INTO XtkJobLog (iJobLogId) SELECT nextval('XtkJobLogId') FROM generate_series(1, 3)")
		})
	}
}

// The id of an existing entry is not used again.
func TestEntryOfTheJobLogAfterAWrap(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(deliveryWithPages + "INSERT INTO XtkJobLog (iJobLogId) VALUES (1)")
	mustRun(t, db, nil, "mirror-pages")
	checkRows(t, db, "SELECT iJobLogId::text FROM XtkJobLog WHERE iJobId = 5", "2")
}

// A job log entry that cannot be written is logged, and the task succeeds.
func TestEntryOfTheJobLogThatCanNotBeWritten(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(deliveryWithPages)
	for _, test := range []struct{ setup, undo, says string }{
		{
			"INSERT INTO XtkJobLog (iJobLogId) SELECT generate_series(1, 100)", "TRUNCATE XtkJobLog", "duplicate key",
		},
		{
			"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not today''; END'; " +
				"CREATE TRIGGER no BEFORE INSERT ON XtkJobLog FOR EACH ROW EXECUTE FUNCTION no()",
			"DROP TRIGGER no ON XtkJobLog", "not today",
		},
		{
			"ALTER TABLE XtkJobLog ADD sPhase text NOT NULL", "ALTER TABLE XtkJobLog DROP sPhase", "sphase",
		},
		{
			"REVOKE USAGE ON SEQUENCE XtkJobLogId FROM neolane", "SELECT",
			`GRANT USAGE ON SEQUENCE public.xtkjoblogid TO "neolane"`,
		},
	} {
		db.Do("UPDATE NmsDelivery SET iWebResPurged = 0; " + test.setup)
		j := mustRun(t, db, nil, "mirror-pages")
		checkCount(t, db, 1, "SELECT iWebResPurged FROM NmsDelivery WHERE iDeliveryId = 5")
		checkCount(t, db, 0, "SELECT count(*) FROM XtkJobLog WHERE iJobId = 5")
		j.checkState(t, "mirror-pages", cleanup.Succeeded)
		j.checkLog(t, "WARNING", "job log", test.says)
		db.Do(test.undo)
	}
}

// A delivery that cannot be updated fails the task. Its job log entry is not reported as the cause.
func TestDeliveryThatCanNotBeFlagged(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(deliveryWithPages + "ALTER TABLE NmsDelivery ADD CHECK (iWebResPurged = 0)")
	j, err := run(t, db, nil, "mirror-pages")
	j.checkState(t, "mirror-pages", cleanup.Failed)
	j.checkNoLog(t, "job log")
	checkCount(t, db, 0, "SELECT count(*) FROM XtkJobLog")
	if err == nil {
		t.Error("the run succeeded")
	}
}
