package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func addFailingAudits(db *pgtest.DB, rows int, condition, message string) {
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, $1::int) i", rows)
	db.Do("CREATE TABLE said AS SELECT $1::text AS what", message)
	db.Do(
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF ` + condition + ` THEN RAISE ''%'',
			(SELECT what FROM said); END IF; RETURN OLD; END';
		CREATE TRIGGER refuse BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION refuse()`,
	)
}

// A task succeeds if at most a tenth of its rows fail, and fails otherwise. It reports the number of failed rows, and
// logs up to 20 of them.
func TestFewRowsThatRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, refuse int
		state        cleanup.State
	}{
		{10, 1, cleanup.Succeeded},
		{10, 2, cleanup.Failed},
		{1, 1, cleanup.Failed},
		{500, 50, cleanup.Succeeded},
		{500, 51, cleanup.Failed},
		{20_000, 1_000, cleanup.Succeeded},
		{20_000, 1_001, cleanup.Failed},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.refuse, c.rows), func(t *testing.T) {
			suite.Except(t, suite.Long, "1 of 10", "2 of 10")
			t.Parallel()
			db := pgtest.Campaign(t)
			addFailingAudits(db, c.rows, fmt.Sprintf("OLD.iAuditId <= %d", c.refuse), "dear to me")
			j, err := run(t, db, nil, "audit-trail")
			j.checkState(t, "audit-trail", c.state)
			if (err == nil) != (c.state == cleanup.Succeeded) {
				t.Errorf("the run ended with %v, want the task %s", err, c.state)
			}
			if got := j.retained["audit-trail"].Failed; got != int64(c.refuse) {
				t.Errorf("%d rows failed, want %d", got, c.refuse)
			}
			left := db.Int("SELECT count(*) FROM XtkAudit")
			if c.refuse <= purge.MaxFailedRows {
				if left != int64(c.refuse) {
					t.Errorf("%d rows remain, want %d", left, c.refuse)
				}
				j.checkDeleted(t, "audit-trail", int64(c.rows-c.refuse))
			}
			if c.state == cleanup.Failed {
				j.checkProblem(t, "audit-trail",
					"dear to me (SQLSTATE P0001): a trigger or function of the application refuses")
			}
			if got, want := j.details["audit-trail"], "with an error"; !strings.Contains(got, want) {
				t.Errorf("the detail is %q, want %q in it", got, want)
			}
			named := 0
			for _, line := range j.logs {
				if strings.Contains(line, "failed and is retained: dear to me") {
					named++
				}
			}
			j.checkLog(t, "WARNING", message.RowsFailed.With("table", "xtkaudit", "rows", c.refuse).Text)
			if want := min(c.refuse, purge.FailedRowsLogged); named != want {
				t.Errorf("%d failed rows are logged, want %d: %q", named, want, j.logs)
			}
		})
	}
}

// An error message is logged on one line, without control characters, and shortened.
func TestHostileRefusal(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	addFailingAudits(db, 20, "OLD.iAuditId = 7", "no\nWARNING forged \x1b[2J\u202e"+strings.Repeat("ä", 100_000))
	j := mustRun(t, db, nil, "audit-trail")
	i := slices.IndexFunc(j.logs, func(line string) bool {
		return strings.HasPrefix(line, "WARNING xtkaudit: row 7 failed and is retained: no WARNING forged ")
	})
	if i < 0 {
		t.Fatalf("the message is not in the log %.2000q", j.logs)
	}
	if n := len(j.logs[i]); n > 1_000 {
		t.Errorf("the line has %d bytes: %.2000q", n, j.logs[i])
	}
	if strings.ContainsFunc(j.logs[i], func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("the line has control characters: %.2000q", j.logs[i])
	}
}

// A locked row and a locked table are counted and reported.
func TestWhatStaysLocked(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 20) i;
		INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2000-01-01')`)
	db.Hold("SELECT FROM XtkAudit WHERE iAuditId = 7 FOR UPDATE")
	db.Hold("LOCK TABLE NmsVisitor")
	j := mustRun(t, db, impatient, "audit-trail", "visitors")
	for task, want := range map[string]struct {
		detail   string
		retained purge.Retained
	}{
		"audit-trail": {"1 obsolete row was locked by other sessions", purge.Retained{Locked: 1}},
		"visitors":    {"1 table could not be finished", purge.Retained{Tables: 1}},
	} {
		j.checkState(t, task, cleanup.Succeeded)
		j.checkRetained(t, task, want.retained)
		if got := j.details[task]; got != want.detail {
			t.Errorf("the detail of %s is %q, want %q", task, got, want.detail)
		}
	}
}

// A delivery with a failed row is retained together with only that row, and so is a list.
func TestParentsStayWithRowsThatRefuse(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, 1, '2000-01-01'
			FROM generate_series(1, 20) i;
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT i, 1 + i % 20 FROM generate_series(1, 60) i;
			INSERT INTO NmsTrackingUrl (iTrackingUrlId, iDeliveryId) SELECT i, i FROM generate_series(1, 20) i;
		INSERT INTO NmsGroup (iGroupId, iDeleteStatus) SELECT i, 1 FROM generate_series(1, 20) i;
			INSERT INTO NmsRcpGrpRel (iGroupId, iRecipientId) SELECT i, 1 FROM generate_series(1, 20) i;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
		CREATE TRIGGER refuse BEFORE DELETE ON NmsBroadLogRcp FOR EACH ROW WHEN (OLD.iBroadLogId = 4)
			EXECUTE FUNCTION refuse(); CREATE TRIGGER refuse BEFORE DELETE ON NmsRcpGrpRel FOR EACH ROW
			WHEN (OLD.iGroupId = 5) EXECUTE FUNCTION refuse()`,
	)
	j := mustRun(t, db, nil, "lists-to-delete", "deliveries")
	checkRows(t, db, deliveriesLeft, "5")
	checkCount(t, db, 1, "SELECT count(*) FROM NmsBroadLogRcp")
	checkCount(t, db, 1, "SELECT count(*) FROM NmsTrackingUrl")
	checkRows(t, db, "SELECT iGroupId::text FROM NmsGroup", "5")
	for _, task := range []string{"lists-to-delete", "deliveries"} {
		j.checkRetained(t, task, purge.Retained{Failed: 1, Dependent: 1})
	}
}
