package tasks_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// partitionedLogs has deleted deliveries 1 and 2, and their logs in partitions. The logs of 1 are deleted first.
const partitionedLogs = mappings + `
INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete)
  VALUES (0, 0, NULL), (1, 1, '2000-01-01'), (2, 1, '2000-01-01');
CREATE TABLE old AS SELECT * FROM NmsBroadLogRcp; DROP TABLE NmsBroadLogRcp;
ALTER TABLE old ALTER iBroadLogId SET NOT NULL;
CREATE TABLE NmsBroadLogRcp (LIKE old) PARTITION BY RANGE (iBroadLogId);
CREATE TABLE log1 PARTITION OF NmsBroadLogRcp (PRIMARY KEY (iBroadLogId)) FOR VALUES FROM (0) TO (100);
CREATE TABLE log2 PARTITION OF NmsBroadLogRcp (PRIMARY KEY (iBroadLogId)) FOR VALUES FROM (100) TO (200);
CREATE TABLE apart (LIKE old, PRIMARY KEY (iBroadLogId));
INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (1, 1), (101, 2);
INSERT INTO apart (iBroadLogId, iDeliveryId) VALUES (201, 2)`

// Rows of a partition that is detached while its task works are not touched, rows of one that is attached are cleaned
// by the next run, and the deliveries of either are retained.
func TestPartitionsThatChangeDuringARun(t *testing.T) {
	t.Parallel()
	const replacedLater = "replaced after its turn"
	for name, c := range map[string]struct {
		change     string // made once the logs of delivery 1 are deleted
		said       string
		deliveries []string
		logs       int64 // anywhere
		retained   purge.Retained
	}{
		"none": {"", "", []string{"0"}, 1, purge.Retained{}},
		"detached, and its table gone": {
			"ALTER TABLE NmsBroadLogRcp DETACH PARTITION log2; ALTER TABLE NmsBroadLogRcp RENAME TO other",
			"log2: it was detached from nmsbroadlogrcp",
			[]string{"0", "2"},
			2,
			purge.Retained{Dependent: 1, Tables: 1},
		},
		"detached": {
			"ALTER TABLE NmsBroadLogRcp DETACH PARTITION log2",
			"log2: it was detached from nmsbroadlogrcp",
			[]string{"0", "2"},
			2,
			purge.Retained{Dependent: 1, Tables: 1},
		},
		"replaced": {
			"ALTER TABLE NmsBroadLogRcp DETACH PARTITION log2; ALTER TABLE log2 RENAME TO older; CREATE TABLE log2 (LIKE " +
				"older); INSERT INTO log2 SELECT * FROM older",
			"log2: it was detached from nmsbroadlogrcp",
			[]string{"0", "2"},
			3,
			purge.Retained{Dependent: 1, Tables: 1},
		},
		"moved to another table": {
			"ALTER TABLE NmsBroadLogRcp DETACH PARTITION log2; CREATE TABLE archive (LIKE old) PARTITION BY RANGE " +
				"(iBroadLogId); ALTER TABLE archive ATTACH PARTITION log2 FOR VALUES FROM (100) TO (200)",
			"log2: it was detached from nmsbroadlogrcp",
			[]string{"0", "2"},
			2,
			purge.Retained{Dependent: 1, Tables: 1},
		},
		"attached": {
			"ALTER TABLE NmsBroadLogRcp ATTACH PARTITION apart FOR VALUES FROM (200) TO (300)",
			"apart became a partition of nmsbroadlogrcp",
			[]string{"0", "2"},
			1,
			purge.Retained{Dependent: 1},
		},
		"renamed": {
			"ALTER TABLE log2 RENAME TO older",
			"older became a partition of nmsbroadlogrcp",
			[]string{"0", "2"},
			2,
			purge.Retained{Dependent: 1},
		},
		replacedLater: {
			"ALTER TABLE NmsBroadLogRcp DETACH PARTITION log1; ALTER TABLE log1 RENAME TO older; CREATE TABLE log1 PARTITION " +
				"OF NmsBroadLogRcp FOR VALUES FROM (0) TO (100); INSERT INTO log1 (iBroadLogId, iDeliveryId) VALUES (1, 1)",
			"log1 became a partition of nmsbroadlogrcp",
			[]string{"0", "1"},
			2,
			purge.Retained{Dependent: 1},
		},
		"dropped": {"DROP TABLE log2", "log2: it was dropped", []string{"0"}, 1, purge.Retained{}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "detached", "replaced", "attached", "dropped", replacedLater)
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(partitionedLogs)
			j, deletions, changeAt := newJournal(db), 0, 1
			if name == replacedLater { // once the logs of delivery 2 are deleted, too
				changeAt = 2
			}
			j.beforeCommit = func(_ *pgx.Batch, d purge.Delta) {
				if d.Deleted == 0 {
					return
				}
				if deletions++; deletions == changeAt && c.change != "" {
					db.Do(c.change)
				}
			}
			if err := runWith(t, j, nil, "deliveries"); err != nil {
				t.Fatal(err)
			}
			if got := db.Strings(deliveriesLeft); !slices.Equal(got, c.deliveries) {
				t.Errorf("deliveries %q are left, want %q: %q", got, c.deliveries, j.logs)
			}
			if c.said != "" && !j.said("WARNING", c.said) {
				t.Errorf("no warning has %q: %q", c.said, j.logs)
			}
			if got := j.retained["deliveries"]; got != c.retained {
				t.Errorf("retained %+v, want %+v", got, c.retained)
			}
			left := int64(0)
			for _, table := range db.Strings(
				"SELECT relname FROM pg_class WHERE relname IN ('log1', 'log2', 'older', 'apart')",
			) {
				left += db.Int("SELECT count(*) FROM " + table)
			}
			if left != c.logs {
				t.Errorf("%d logs are left, want %d", left, c.logs)
			}
		})
	}
}

// Rows of attached partitions retain their deliveries even if they are on hold, or if the table had no partition
// before.
func TestPartitionsThatAreAttachedDuringARun(t *testing.T) {
	t.Parallel()
	const attach = "ALTER TABLE NmsBroadLogRcp ATTACH PARTITION apart FOR VALUES FROM (200) TO (300)"
	for name, c := range map[string]struct {
		before string
		holds  rules.Holds
	}{
		"on hold": {
			`INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iRecipientId) VALUES (150, 9, 7);
			UPDATE apart SET iRecipientId = 7`,
			rules.Holds{Names: []string{"a hold"}, Recipients: []int64{7}},
		},
		"the first": {"DROP TABLE log1, log2; ALTER TABLE NmsBroadLogRcp ADD PRIMARY KEY (iBroadLogId)", rules.Holds{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(partitionedLogs + ";" + c.before + "; INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES " +
				"(1, 1)")
			j, attached := newJournal(db), false
			j.holds = func() rules.Holds { return c.holds }
			j.beforeCommit = func(_ *pgx.Batch, d purge.Delta) {
				if d.Deleted > 0 && !attached {
					db.Do(attach)
					attached = true
				}
			}
			if err := runWith(t, j, nil, "deliveries"); err != nil {
				t.Fatal(err)
			}
			if got, want := db.Strings(deliveriesLeft), []string{"0", "2"}; !slices.Equal(got, want) {
				t.Errorf("deliveries %q are left, want %q: %q", got, want, j.logs)
			}
			if said := "apart became a partition of nmsbroadlogrcp"; !j.said("WARNING", said) {
				t.Errorf("no warning has %q: %q", said, j.logs)
			}
			checkCount(t, db, 1, "SELECT count(*) FROM apart")
		})
	}
}

// A partition that was detached after the run had begun is not dropped, even if all of its rows are obsolete.
func TestPartitionThatIsDetachedBeforeItsDrop(t *testing.T) {
	t.Parallel()
	for name, detach := range map[string]string{
		"detached": "ALTER TABLE XtkAudit DETACH PARTITION audit2",
		"moved to another table": "ALTER TABLE XtkAudit DETACH PARTITION audit2; CREATE TABLE archive (LIKE old) PARTITION " +
			"BY RANGE (tsChanged); ALTER TABLE archive ATTACH PARTITION audit2 FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(`CREATE TABLE old AS SELECT * FROM XtkAudit; DROP TABLE XtkAudit;
				CREATE TABLE XtkAudit (LIKE old) PARTITION BY RANGE (tsChanged);
				CREATE TABLE audit1 PARTITION OF XtkAudit FOR VALUES FROM ('2000-01-01') TO ('2001-01-01');
				CREATE TABLE audit2 PARTITION OF XtkAudit FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
				-- audit1 is not dropped, since it has the zero record
				INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (0, '2000-02-01'), (1, '2000-02-01'), (2, '2001-02-01')`)
			j, change := newJournal(db), detach
			j.beforeCommit = func(*pgx.Batch, purge.Delta) {
				if change != "" {
					db.Do(change)
					change = ""
				}
			}
			if err := runWith(t, j, nil, "audit-trail"); err != nil {
				t.Fatal(err)
			}
			checkCount(t, db, 1, "SELECT count(*) FROM audit2")
			checkCount(t, db, 1, "SELECT count(*) FROM audit1")
			if !j.said("WARNING", "audit2: it was detached from xtkaudit") {
				t.Errorf("no warning of the detached partition: %q", j.logs)
			}
		})
	}
}
