package purge_test

import (
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Rows whose new values belong in another partition move there, once each, and are counted exactly. Rows of a table
// that is not a partition, or not partitioned by an assigned column, are updated where they are.
func TestUpdatedRowsMove(t *testing.T) {
	t.Parallel()
	const columns = "(id int, pending boolean, ts timestamptz)"
	for name, test := range map[string]struct {
		tables string
		leaves []string
		last   int64 // rows in the last of the leaves in the end
	}{
		"by the date": {
			`CREATE TABLE "T ""o" ` + columns + ` PARTITION BY RANGE (ts);
				CREATE TABLE "t 'o" PARTITION OF "T ""o" FOR VALUES FROM (MINVALUE) TO ('2026-01-01');
				CREATE TABLE young PARTITION OF "T ""o" DEFAULT`,
			[]string{`"t 'o"`, "young"},
			499,
		},
		"by an expression": {
			`CREATE TABLE "T ""o" ` + columns + ` PARTITION BY RANGE (date_part('year', ts AT TIME ZONE 'UTC'));
				CREATE TABLE old PARTITION OF "T ""o" FOR VALUES FROM (0) TO (2026);
				CREATE TABLE young PARTITION OF "T ""o" DEFAULT`,
			[]string{"old", "young"},
			499,
		},
		"at two levels": {
			`CREATE TABLE "T ""o" ` + columns + ` PARTITION BY RANGE (ts); CREATE TABLE old PARTITION OF "T ""o" FOR
				VALUES FROM (MINVALUE) TO ('2026-01-01') PARTITION BY HASH (id);
			CREATE TABLE old_0 PARTITION OF old FOR VALUES WITH (MODULUS 2, REMAINDER 0);
				CREATE TABLE old_1 PARTITION OF old FOR VALUES WITH (MODULUS 2, REMAINDER 1);
				CREATE TABLE young PARTITION OF "T ""o" DEFAULT`,
			[]string{"old_0", "old_1", "young"},
			499,
		},
		"by the id": {
			`CREATE TABLE "T ""o" ` + columns + ` PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF "T ""o" FOR
				VALUES FROM (MINVALUE) TO (501); CREATE TABLE high PARTITION OF "T ""o" DEFAULT`,
			[]string{"low", "high"},
			500,
		},
		"inherited": {
			`CREATE TABLE "T ""o" ` + columns + `; CREATE TABLE child () INHERITS ("T ""o")`,
			[]string{`"T ""o"`, "child"},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(test.tables)
			db.Do(`INSERT INTO "T ""o" SELECT i, i % 2 = 0, '2020-01-01' FROM generate_series(1, 1000) i`)
			db.Hold(`SELECT FROM "T ""o" WHERE id = 2 FOR UPDATE`)
			e, a := engine(db)
			e.LockTimeout = 50 * time.Millisecond
			locked := int64(0)
			for _, leaf := range test.leaves {
				result, err := e.Sweep(t.Context(), purge.Sweep{
					Unit:     leaf,
					Name:     leaf,
					Relation: leaf,
					Root:     `"T ""o"`,
					Where:    sqlexpr.Format("r.pending AND r.id > %s", sqlexpr.Arg(0, "int")),
					Limit:    50,
					Set: []purge.Assignment{
						{Column: "pending", Value: sqlexpr.SQL("false")},
						{Column: "ts", Value: sqlexpr.Arg("2026-02-03", "timestamptz")},
					},
					Partition: true,
				}, purge.Cursor{})
				if err != nil {
					t.Fatal(err)
				}
				locked += result.Locked
			}
			updated := int64(0)
			for _, b := range a.batches {
				updated += b.Updated
			}
			if got := db.Int(
				`SELECT count(*) FROM "T ""o" WHERE NOT pending AND ts = '2026-02-03' AND id % 2 = 0`,
			); updated != 499 || got != 499 || locked != 1 ||
				a.biggest() > 50 {
				t.Errorf("%d rows were changed, %d are in the ledger, %d were locked; at most %d at once", got, updated,
					locked, a.biggest())
			}
			if all := db.Int(`SELECT count(*) FROM "T ""o"`); all != 1000 {
				t.Errorf("there are %d rows", all)
			}
			if last := db.Int("SELECT count(*) FROM " + test.leaves[len(test.leaves)-1]); last != test.last {
				t.Errorf("the last table has %d rows, want %d", last, test.last)
			}
		})
	}
}
