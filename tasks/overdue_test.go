package tasks_test

import (
	"maps"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

// Tables whose rule compares only a date are reported with their delay, and partitions together. Locked tables, and
// tables with an unknown oldest row, are not reported.
func TestOverdue(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
		INSERT INTO XtkOption (iOptionId, sName, iLongValue)
			VALUES (1, 'NmsCleanup_BroadLogPurgeDelay', 10 * 86400), (2, 'NmsCleanup_PropositionPurgeDelay', 30);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified)
			VALUES (0, '1970-01-01'), (1, now() - interval '13 days'), (2, now());
		INSERT INTO NmsBroadLogEventHisto (iBroadLogId, tsLastModified) VALUES (1, now() - interval '14 days');
		INSERT INTO NmsPropositionRcp (iPropositionId, tsLastModified) VALUES (1, '2000-01-01');
		INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, now());
		INSERT INTO NmsRtEvent (iRtEventId, tsLastModified) VALUES (1, '2000-01-01'), (2, '2000-01-01');
		INSERT INTO XtkSessionInfo VALUES ('x', 'x', now() - interval '1 day');
		DROP TABLE NmsBatchEvent;
		CREATE TABLE NmsBatchEvent (iBatchEventId int, tsLastModified timestamptz) PARTITION BY RANGE
			(tsLastModified); CREATE INDEX ON NmsBatchEvent (tsLastModified);
		CREATE TABLE b1 PARTITION OF NmsBatchEvent FOR VALUES FROM ('2000-01-01') TO ('2020-01-01');
			CREATE TABLE b2 PARTITION OF NmsBatchEvent DEFAULT;
		INSERT INTO NmsBatchEvent VALUES (1, now() - interval '32 days')`)
	db.Do("ANALYZE NmsRtEvent; ANALYZE XtkAudit")
	cleaned := map[string]time.Time{"expired-events": time.Now().Add(-time.Hour)}
	ask := func() map[string]time.Duration {
		t.Helper()
		catalog, err := campaign.LoadCatalog(t.Context(), db.Pool, campaign.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		ages, err := insight.Overdue(t.Context(), db.Pool, catalog, tasks.Pipeline, cleaned)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(ages, func(_ string, age time.Duration) bool { return age == 0 })
		return ages
	}
	const day = 24 * time.Hour
	want := map[string]time.Duration{
		"public.nmsbroadlogrcp": 3 * day,
		"public.nmsrtevent":     time.Hour,
		"public.nmsbatchevent":  2 * day,
	}
	got := ask()
	for table, age := range want {
		if (got[table] - age).Abs() > 10*time.Minute {
			t.Errorf("%s: %s, want %s", table, got[table], age)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	db.Hold("LOCK TABLE NmsBroadLogRcp")
	locked := ask()
	if age := locked["public.nmsbroadlogrcp"]; age != 0 {
		t.Errorf("the locked table is reported as overdue by %s", age)
	}
	if locked["public.nmsbatchevent"] == 0 {
		t.Errorf("another table is not reported while one is locked: %v", locked)
	}
}
