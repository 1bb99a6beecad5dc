package tasks_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// deliveryWithPages is a delivery whose mirror pages are to be purged.
const deliveryWithPages = "INSERT INTO NmsDelivery (iDeliveryId, iNeedMirrorPage, tsWebValidity) VALUES (5, 1, " +
	"'2000-01-01'); "

// Entries of the job log have ids of its own sequence, as the application's have, whatever XtkNewId would give.
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
			j := mustRun(t, db, nil, "mirror-pages")
			if ids := db.Strings(
				"SELECT iJobLogId::text FROM XtkJobLog WHERE iJobId = 5",
			); !slices.Equal(
				ids,
				[]string{"9001"},
			) {
				t.Errorf("the ids are %v; %q", ids, j.logs)
			}
			// the application's next ones
			db.Do("INSERT INTO XtkJobLog (iJobLogId) SELECT nextval('XtkJobLogId') FROM generate_series(1, 3)")
		})
	}
}

// An id that an older entry has is passed over.
func TestEntryOfTheJobLogAfterAWrap(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(deliveryWithPages + "INSERT INTO XtkJobLog (iJobLogId) VALUES (1)")
	j := mustRun(t, db, nil, "mirror-pages")
	if ids := db.Strings("SELECT iJobLogId::text FROM XtkJobLog WHERE iJobId = 5"); !slices.Equal(ids, []string{"2"}) {
		t.Errorf("the ids are %v; %q", ids, j.logs)
	}
}

// An entry of the job log that cannot be written is reported, and the task does what it is for.
func TestEntryOfTheJobLogThatCanNotBeWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ setup, says string }{
		"every id is taken": {"INSERT INTO XtkJobLog (iJobLogId) SELECT generate_series(1, 100)", "duplicate key"},
		"a trigger refuses": {
			"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not " +
				"today''; END'; CREATE TRIGGER no BEFORE INSERT ON XtkJobLog FOR EACH ROW EXECUTE FUNCTION no()",
			"not today",
		},
		"a column is mandatory": {"ALTER TABLE XtkJobLog ADD sPhase text NOT NULL", "sphase"},
		"no right": {
			"REVOKE USAGE ON SEQUENCE XtkJobLogId FROM neolane",
			`GRANT USAGE ON SEQUENCE public.xtkjoblogid TO "neolane"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(deliveryWithPages + test.setup)
			j := mustRun(t, db, nil, "mirror-pages")
			if db.Int("SELECT iWebResPurged FROM NmsDelivery WHERE iDeliveryId = 5") != 1 ||
				db.Int("SELECT count(*) FROM XtkJobLog WHERE iJobId = 5") != 0 ||
				j.states["mirror-pages"] != pipeline.Succeeded {
				t.Errorf("the task is %s: %s", j.states["mirror-pages"], j.problems["mirror-pages"])
			}
			if !j.said("WARNING", "job log", test.says) {
				t.Errorf("said %q", j.logs)
			}
		})
	}
}

// A delivery that cannot be flagged fails the task, as before: its entry is not the reason.
func TestDeliveryThatCanNotBeFlagged(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(deliveryWithPages + "ALTER TABLE NmsDelivery ADD CHECK (iWebResPurged = 0)")
	if j, err := run(
		t,
		db,
		nil,
		"mirror-pages",
	); err == nil || j.states["mirror-pages"] != pipeline.Failed || j.said("job log") ||
		db.Int("SELECT count(*) FROM XtkJobLog") != 0 {
		t.Errorf("the task is %s, and %q", j.states["mirror-pages"], j.logs)
	}
}
