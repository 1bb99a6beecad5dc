package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// The value of an option of the type text is its text, never its number. A text that is not a number is not used.
func TestDelayInAText(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', " +
		"6, 86400)")
	for _, c := range []struct {
		text string
		left int64
		used bool
	}{
		{"'172800'", 1, true},
		{"' 172800 '", 1, true},
		{"'17280000'", 2, true},
		{"'86399'", 2, false},
		{"'2 days'", 2, false},
		{"'172800.0'", 2, false},
		{"''", 2, false},
		{"NULL", 2, false},
		{"'99999999999999999999'", 2, false},
	} {
		db.Do("DELETE FROM NmsVisitor; INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES " +
			"(1, '2026-02-26 12:00Z'), (2, '2026-02-28 11:00Z'); UPDATE XtkOption SET sStringValue = " + c.text)
		j := mustRun(t, db, nil, "visitors")
		if left := db.Int("SELECT count(*) FROM NmsVisitor"); left != c.left {
			t.Errorf("%s: %d rows are left, want %d", c.text, left, c.left)
		}
		if warned := j.said("WARNING", "NmsCleanup_VisitorPurgeDelay", "not used"); warned == c.used {
			t.Errorf("%s: a warning that the option is not used: %t, want %t: %q", c.text, warned, !c.used, j.logs)
		}
	}
}

// A time that is stored as a text is not read. The task is skipped, since it would delete more without the time.
func TestMomentInAText(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue, tsTimeStampValue)
			VALUES (1, 'NmsCleanup_LastCleanup', 6, '2026-02-28', NULL), (2, 'NmsLastErrorStatCoalesce', 6, NULL,
			'2026-01-01');
		INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES (1, 2, '2020-01-01');
			INSERT INTO NmsEmailErrorStat (iMXIP, tsDate) VALUES (1, '2026-02-01')`,
	)
	j := mustRun(t, db, nil, "npai", "email-error-stats")
	for _, task := range []string{"npai", "email-error-stats"} {
		j.checkState(t, task, cleanup.Skipped)
		j.checkDeleted(t, task, 0)
	}
	j.checkLog(t, "WARNING", "NmsCleanup_LastCleanup", "text")
	j.checkLog(t, "WARNING", "NmsLastErrorStatCoalesce", "text")
}

// Without the column of texts, an option of the type text has no value.
func TestDelayInATextThatIsMissing(t *testing.T) {
	t.Parallel()
	for column, left := range map[string]int64{"sStringValue": 1, "iDataType": 0} {
		db := pgtest.Campaign(t)
		db.Do(
			`INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue)
				VALUES (1, 'NmsCleanup_VisitorPurgeDelay', 6, 86400);
				INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2026-02-26 12:00Z');
			ALTER TABLE XtkOption DROP ` + column,
		)
		j := mustRun(t, db, nil, "visitors")
		if n := db.Int("SELECT count(*) FROM NmsVisitor"); n != left {
			t.Errorf("without %s %d rows remain, want %d: %q", column, n, left, j.logs)
		}
	}
}

// If the role cannot read the types and texts of options, the run fails before it deletes anything. The error names the
// GRANT.
func TestOptionsThatTheRoleMayNotRead(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	role := db.Role("service")
	db.Do("GRANT SELECT (sName, iLongValue, tsTimeStampValue) ON XtkOption TO " + role)
	_, err := run(t, db.For(role), nil, "visitors")
	checkError(t, err, `GRANT SELECT (idatatype, sstringvalue) ON "public"."xtkoption" TO "`+role)
}
