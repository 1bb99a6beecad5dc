package tasks_test

import (
	"fmt"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// An error inside a trigger is an error of the row, even if a table of the trigger is missing or a server is
// unreachable, or if it raises an error with an SQLSTATE that otherwise means that the database is unusable.
func TestErrorsInsideTriggers(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Superuser("CREATE TABLE forbidden ()")
	db.Do(mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, 1, '2000-01-01'
			FROM generate_series(1, 200) i;
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT i, 1 + i % 200 FROM generate_series(1, 600) i`)
	kept := []string(nil)
	for i, body := range []string{
		"INSERT INTO nowhere VALUES (1)",
		"PERFORM nowhere(1)",
		"UPDATE XtkReject SET nowhere = 1",
		"INSERT INTO nowhere.at_all VALUES (1)",
		"EXECUTE 'SELECT 1::nowhere'",
		"DELETE FROM forbidden",
		"EXECUTE 'SELEC 1'",
		"RAISE 'could not connect to server' USING ERRCODE = '08001'",
		"RAISE 'closed for the night' USING ERRCODE = '57P01'",
		"RAISE 'too many of them' USING ERRCODE = '53300'",
		"RAISE 'no such file' USING ERRCODE = '58P01'",
		"RAISE 'closed books' USING ERRCODE = '25006'",
	} {
		log := 10 + i
		kept = append(kept, fmt.Sprint(1+log))
		db.Do(fmt.Sprintf(`CREATE FUNCTION audit%[1]d() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %[2]s;
				RETURN OLD; END $$;
			CREATE TRIGGER audit%[1]d BEFORE DELETE ON NmsBroadLogRcp FOR EACH ROW WHEN (OLD.iBroadLogId = %[1]d)
				EXECUTE FUNCTION audit%[1]d()`, log, body))
	}
	j := mustRun(t, db, nil, "deliveries")
	checkRows(t, db, deliveriesLeft, kept...)
	checkRows(t, db, logsLeft, kept...)
	j.checkDeleted(t, "deliveries", 800-24)
	for i := range kept {
		j.checkLog(t, "WARNING", fmt.Sprintf("row %d failed", 10+i))
	}
	j.checkRetained(t, "deliveries", purge.Retained{Failed: 12, Dependent: 12})
}

// A trigger that fails for every row fails the task. The parents of the failed rows are not deleted.
func TestTriggerThatAlwaysFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ task, trigger, table string }{
		"a dependent table":       {"deliveries", "BEFORE DELETE ON NmsBroadLogRcp FOR EACH ROW", "NmsDelivery"},
		"each statement":          {"deliveries", "BEFORE DELETE ON NmsBroadLogRcp FOR EACH STATEMENT", "NmsDelivery"},
		"a table that is updated": {"expired-deliveries", "BEFORE UPDATE ON NmsDelivery FOR EACH ROW", "NmsDelivery"},
		"a rolled up table": {
			"email-error-stats", "BEFORE DELETE ON NmsEmailErrorStat FOR EACH ROW", "NmsEmailErrorStat",
		},
		"a list": {"lists-to-delete", "BEFORE DELETE ON NmsGroup FOR EACH ROW", "NmsGroup"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "each statement", "a rolled up table", "a list")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iDeliveryMode, iState,
					tsValidity) SELECT i, i % 2, '2000-01-01', 1, 51, '2000-01-01' FROM generate_series(1, 20) i;
				INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT i, i FROM generate_series(1, 20) i;
					INSERT INTO NmsGroup (iGroupId, iDeleteStatus) VALUES (7, 1);
				INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors) SELECT 1, 1, '2026-01-01', i
					FROM generate_series(1, 20) i;
				CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO nowhere
					VALUES (1); RETURN OLD; END $$;
				CREATE TRIGGER audit ` + c.trigger + " EXECUTE FUNCTION audit()",
			)
			before := db.Int("SELECT count(*) FROM " + c.table)
			j, err := run(t, db, nil, c.task)
			j.checkState(t, c.task, cleanup.Failed)
			j.checkProblem(t, c.task, `relation "nowhere" does not exist`)
			if err == nil {
				t.Error("the run succeeded")
			}
			checkCount(t, db, before, "SELECT count(*) FROM "+c.table)
			j.checkNoLog(t, "was dropped")
		})
	}
}

// If an event trigger refuses to drop a work table, the table is reported and counted as retained.
func TestDropThatAnEventTriggerRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkWorkflow (iWorkflowId) VALUES (1); CREATE TABLE wkf12_3 (); CREATE TABLE wkf12_4 ()")
	db.Superuser(`CREATE FUNCTION audit() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
			IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() WHERE object_name = 'wkf12_3') THEN
				INSERT INTO nowhere VALUES (1); END IF; END $$;
		CREATE EVENT TRIGGER audit ON sql_drop EXECUTE FUNCTION audit()`)
	j := mustRun(t, db, nil, "workflow-instances")
	checkCount(t, db, 1, "SELECT count(*) FROM pg_class WHERE relname IN ('wkf12_3', 'wkf12_4')")
	j.checkLog(t, "WARNING", "wkf12_3 could not be dropped", "nowhere")
	j.checkRetained(t, "workflow-instances", purge.Retained{Tables: 1})
	if j.details["workflow-instances"] == "" {
		t.Error("the task has no detail")
	}
}

// A run and a dry run fail if a row security policy of a table fails. They do not treat the table as missing.
func TestPolicyThatFails(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01');
		CREATE FUNCTION seen(id integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN EXISTS (SELECT
			FROM nowhere WHERE i = id); END $$;
		ALTER TABLE XtkAudit ENABLE ROW LEVEL SECURITY; ALTER TABLE XtkAudit FORCE ROW LEVEL SECURITY;
			CREATE POLICY seen ON XtkAudit USING (seen(iAuditId))`)
	for _, change := range []func(*cleanup.Config){nil, dry} {
		j, err := run(t, db, change, "audit-trail")
		j.checkState(t, "audit-trail", cleanup.Failed)
		j.checkProblem(t, "audit-trail", "nowhere")
		if err == nil {
			t.Error("the run succeeded")
		}
	}
}
