package tasks_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// A column may have NULLs in spite of NOT NULL while that is NOT VALID: they are one group, with and without an index,
// and in partitions.
func TestNotNullThatIsNotValid(t *testing.T) {
	t.Parallel()
	newest := policy.Policy{
		Name: "p", Table: "t", KeepNewest: &policy.KeepNewest{Per: []string{"grp"}, OrderBy: "at", Count: 10},
	}
	for name, setup := range map[string]string{
		"an index": "CREATE TABLE t (id int, grp int, at timestamptz NOT NULL); CREATE INDEX ON t (grp, at)",
		"no index": "CREATE TABLE t (id int, grp int, at timestamptz NOT NULL)",
		"a partition": "CREATE TABLE t (id int, grp int, at timestamptz NOT NULL) PARTITION BY RANGE (id); " +
			"CREATE TABLE u PARTITION OF t DEFAULT; CREATE INDEX ON t (grp, at)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			since(t, db, 18)
			db.Do(setup + `; INSERT INTO t SELECT g, CASE WHEN g % 3 > 0 THEN g % 5 END, now() - g * interval '1 day'
				FROM generate_series(1, 3000) g; ALTER TABLE t ADD CONSTRAINT n NOT NULL grp NOT VALID; ANALYZE t`)
			j, err := runPolicies(t, db, false, newest)
			if err != nil {
				t.Fatal(err)
			}
			if n := db.Int("SELECT count(*) FROM t WHERE grp IS NULL"); n != 10 ||
				db.Int("SELECT count(*) FROM t") != 60 {
				t.Errorf("%d rows with NULL are left, %v", n, j.rows)
			}
		})
	}
}

// A foreign key that is not enforced neither cascades nor refuses, and needs no index.
func TestForeignKeysThatAreNotEnforced(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"CASCADE", "SET NULL", "NO ACTION"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			since(t, db, 18)
			db.Do(fmt.Sprintf(`CREATE TABLE parent (id int PRIMARY KEY, at timestamptz);
				CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE %s NOT ENFORCED);
				INSERT INTO parent SELECT g, timestamptz '2026-03-01 12:00Z' - g * interval '1 day' FROM generate_series(1, 100) g;
				INSERT INTO child SELECT g, g FROM generate_series(1, 100) g`, action))
			catalog, err := campaign.LoadCatalog(t.Context(), db.Pool,
				campaign.Scope{Named: []string{"parent"}, NoCampaign: true})
			if err != nil {
				t.Fatal(err)
			}
			if dependents := catalog.Table("parent").Dependents(); dependents != nil {
				t.Errorf("%d tables depend on it", len(dependents))
			}
			p := policy.Policy{Name: "p", Table: "parent", OlderThan: &policy.OlderThan{Column: "at", Days: new(50)}}
			j, err := runPolicies(t, db, false, p)
			if err != nil {
				t.Fatal(err)
			}
			j.checkDeleted(t, p.TaskName(), 50)
			j.checkNoLog(t, "foreign key")
			if n := db.Int("SELECT count(*) FROM child WHERE parent = id"); n != 100 {
				t.Errorf("%d of 100 rows are as they were", n)
			}
		})
	}
}

// Rules read virtual generated columns, which cannot be assigned.
func TestVirtualColumns(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	since(t, db, 18)
	db.Do(`CREATE TABLE t (id int PRIMARY KEY, seen timestamptz, due timestamptz GENERATED ALWAYS AS (seen) VIRTUAL,
			state text, big boolean GENERATED ALWAYS AS (id > 50) VIRTUAL);
		INSERT INTO t (id, seen) SELECT g, timestamptz '2026-03-01 12:00Z' - g * interval '1 day' FROM
			generate_series(1, 100) g`)
	old := &policy.OlderThan{Column: "due", Days: new(30)}
	closed := "closed"
	first := policy.Policy{
		Name: "a", Table: "t", OlderThan: old, Assign: []policy.Assign{{Column: "state", Value: &closed}},
		Filters: []policy.Filter{{Column: "big", Op: "EQUAL", Values: []string{"true"}}},
	}
	second := policy.Policy{
		Name:       "b",
		Table:      "t",
		OlderThan:  old,
		KeepNewest: &policy.KeepNewest{OrderBy: "due", Count: 40},
	}
	j, err := runPolicies(t, db, false, first, second)
	if err != nil {
		t.Fatal(err)
	}
	j.checkUpdated(t, "policy/a", 50)
	j.checkDeleted(t, "policy/b", 60)
	assigning := policy.Policy{Name: "c", Table: "t", OlderThan: old, Assign: []policy.Assign{{Column: "big"}}}
	if j, err = runPolicies(t, db, false, assigning); err != nil || !j.said("WARNING", "its values are generated") {
		t.Errorf("%v %q", err, j.logs)
	}
}

// Temporal keys are keys of a row and a period: several rows may have the same id, and rows that others refer to for a
// period are retained.
func TestTemporalKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	since(t, db, 18)
	db.Superuser("CREATE EXTENSION btree_gist")
	db.Do(`CREATE TABLE price (id int, valid daterange, at timestamptz, PRIMARY KEY (id, valid WITHOUT OVERLAPS));
		CREATE TABLE sale (id int, valid daterange, price int, at timestamptz,
			FOREIGN KEY (price, PERIOD valid) REFERENCES price (id, PERIOD valid));
		INSERT INTO price SELECT p, daterange(date '2020-01-01' + 30 * v, date '2020-01-31' + 30 * v), '2020-01-01'
			FROM generate_series(1, 20) p, generate_series(0, 4) v;
		INSERT INTO sale SELECT p, daterange('2020-01-05', '2020-02-05'), p, '2026-02-01' FROM generate_series(1, 5) p`)
	p := policy.Policy{Name: "p", Table: "price", OlderThan: &policy.OlderThan{Column: "at", Days: new(50)}}
	j, err := runPolicies(t, db, false, p)
	if err != nil {
		t.Fatal(err)
	}
	j.checkDeleted(t, p.TaskName(), 90)
	j.checkRetained(t, p.TaskName(), purge.Retained{Failed: 10, Kept: 10})
	left := db.Strings("SELECT DISTINCT id::text FROM price ORDER BY 1")
	if !slices.Equal(left, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("left: %v", left)
	}
}
