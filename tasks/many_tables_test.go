package tasks_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// A run drops ten thousand work tables with a server's default settings. One transaction cannot lock so many tables, so
// it drops them in groups.
func TestTenThousandWorkTables(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	db, _ := pgtest.Private(t)
	db.Do(
		`DO
			$$ BEGIN FOR i IN 1..10000 LOOP EXECUTE format('CREATE TABLE wkf%s_1 (i int)', i); IF i % 500 = 0 THEN COMMIT;
				END IF; END LOOP; END $$`,
	)
	db.Do("INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (77, 0)")
	j := mustRun(t, db, nil, "workflow-instances")
	dropped, groups := int64(0), 0
	for _, d := range j.batches {
		if dropped += d.Dropped; d.Dropped > 0 {
			groups++
		}
	}
	checkRows(t, db, "SELECT relname::text FROM pg_class WHERE relname LIKE 'wkf%'", "wkf77_1")
	if dropped != 9_999 {
		t.Errorf("%d tables were dropped, want 9999", dropped)
	}
	if groups > 1_000 {
		t.Errorf("the tables were dropped in %d groups, want at most 1000", groups)
	}
}
