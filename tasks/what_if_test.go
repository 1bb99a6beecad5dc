package tasks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// A dry run with assumed options reads a table twice: once with them for all its tasks, and once with the stored
// options.
func TestWhatIfReads(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp')")
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iIsModel, iDeliveryMode, iState) SELECT i, " +
			"1, '2026-02-25 12:00+00'::timestamptz - i * interval '1 day', 0, 1, 55 FROM generate_series(1, 10) i",
	)
	db.Do(
		"INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus, tsLastModified) SELECT i, i % 20 + 1, 1, " +
			"'2026-03-01 12:00+00'::timestamptz - i * interval '1 day' FROM generate_series(1, 400) i",
	)
	traced, asks := tracedPool(t, db)
	j := newJournal(db)
	if err := runWith(t, j, func(c *cleanup.Config) {
		c.Pool, c.DryRun = traced, true
		c.WhatIf = map[string]int{"NmsCleanup_BroadLogPurgeDelay": 20, "NmsCleanup_RecycledDeliveryPurgeDelay": 9}
	}, "deliveries", "delivery-logs"); err != nil {
		t.Fatal(err)
	}
	reads := slices.DeleteFunc(*asks, func(sql string) bool {
		return !strings.HasPrefix(sql, "SELECT count(*) FILTER") ||
			!strings.Contains(sql, `FROM ONLY "public"."nmsbroadlogrcp" AS r WHERE r.ctid >= `) // others estimate
	})
	if len(reads) != 2 {
		t.Errorf("the table was read %d times, want 2: %q", len(reads), reads)
	}
	for _, c := range []struct {
		task      string
		rows, now int64
	}{{"deliveries", 5 * 20, 7 * 20}, {"delivery-logs", 380 - 95, 220 - 77}} {
		i := slices.IndexFunc(j.previews[c.task],
			func(p cleanup.PreviewTable) bool { return strings.Contains(p.Table, "nmsbroadlogrcp") })
		if i < 0 {
			t.Fatalf("%s: the preview lacks the logs: %+v", c.task, j.previews[c.task])
		}
		p := j.previews[c.task][i]
		if p.Rows != c.rows {
			t.Errorf("%s: %d rows with the assumed options, want %d", c.task, p.Rows, c.rows)
		}
		if p.BaselineRows == nil {
			t.Errorf("%s: the preview has no baseline, want %d", c.task, c.now)
		} else if *p.BaselineRows != c.now {
			t.Errorf("%s: the baseline is %d, want %d", c.task, *p.BaselineRows, c.now)
		}
	}
}
