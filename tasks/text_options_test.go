package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// The value of an option of the type text is its text, never its number. A text that is not a number is not used.
func TestDelayInAText(t *testing.T) {
	t.Parallel()
	for text, left := range map[string]int64{
		"'172800'":               1,
		"' 172800 '":             1,
		"'17280000'":             2,
		"'86399'":                2,
		"'2 days'":               2,
		"'172800.0'":             2,
		"''":                     2,
		"NULL":                   2,
		"'99999999999999999999'": 2,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue, iLongValue) VALUES (1, " +
					"'NmsCleanup_VisitorPurgeDelay', 6, " + text + `, 86400);
				INSERT INTO NmsVisitor (iVisitorId, tsLastModified)
					VALUES (1, '2026-02-26 12:00Z'), (2, '2026-02-28 11:00Z')`,
			)
			j := mustRun(t, db, nil, "visitors")
			used := text == "'172800'" || text == "' 172800 '" || text == "'17280000'"
			checkCount(t, db, left, "SELECT count(*) FROM NmsVisitor")
			if warned := j.said("WARNING", "NmsCleanup_VisitorPurgeDelay", "not used"); warned == used {
				t.Errorf("a warning that the option is not used: %t, want %t: %q", warned, !used, j.logs)
			}
		})
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
