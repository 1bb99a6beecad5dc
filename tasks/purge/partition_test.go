package purge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// A partition that is entirely older than the cutoff is dropped, and its rows counted. If a row must be retained, or a
// drop has another effect than a deletion, its rows are deleted.
func TestPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		change  string
		dropped int64 // of the two partitions before the cutoff
	}{
		{"plain", "", 2},
		{"zero record", "INSERT INTO t VALUES (0, '2020-01-10')", 1},
		{"empty", "DELETE FROM t", 2},
		{
			"a trigger",
			"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; CREATE " +
				"TRIGGER f AFTER DELETE ON t_01 FOR EACH ROW EXECUTE FUNCTION f()",
			1,
		},
		{
			"a trigger of all",
			"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; " +
				"CREATE TRIGGER f AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()",
			0,
		},
		{"published", "ALTER TABLE t_01 REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t_01", 1},
		{
			"published through the root",
			"ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE t_01 REPLICA IDENTITY FULL; " +
				"ALTER TABLE t_02 REPLICA IDENTITY FULL; ALTER TABLE t_03 REPLICA IDENTITY FULL; ALTER TABLE t_rest " +
				"REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)",
			0,
		},
		{"a rule", "CREATE RULE also AS ON DELETE TO t_01 DO ALSO NOTHING", 1},
		{
			"a policy",
			"ALTER TABLE t_01 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY all_rows " +
				"ON t_01 USING (true)",
			1,
		},
		{"a view on it", "CREATE VIEW v AS SELECT * FROM t_01", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(
				`CREATE TABLE t (id int NOT NULL, ts timestamptz) PARTITION BY RANGE (ts);
					CREATE TABLE t_01 PARTITION OF t FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
				CREATE TABLE t_02 PARTITION OF t FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z');
					CREATE TABLE t_03 PARTITION OF t FOR VALUES FROM ('2020-03-01Z') TO ('2020-04-01Z');
				CREATE TABLE t_rest PARTITION OF t DEFAULT; INSERT INTO t
					SELECT i, '2020-01-01Z'::timestamptz + i * interval '1 hour' FROM generate_series(1, 2400) i;
					INSERT INTO t VALUES (3000, NULL), (3001, '2019-01-01Z')`,
			)
			if c.change != "" {
				db.Do(c.change)
			}
			cutoff := time.Date(2020, 3, 15, 0, 0, 0, 0, time.UTC)
			where := sqlexpr.Format("r.ts < %s AND r.id IS DISTINCT FROM 0", sqlexpr.Arg(cutoff, "timestamptz"))
			obsolete := db.Int("SELECT count(*) FROM t AS r WHERE r.ts < '2020-03-15Z' AND r.id <> 0")
			retained := db.Int("SELECT count(*) FROM t") - obsolete
			e, a := engine(db)
			for _, name := range []string{"t_01", "t_02", "t_03", "t_rest"} {
				if _, err := e.Sweep(t.Context(), purge.Sweep{
					Unit: name, Name: name, Relation: name, Root: "t", Where: where, Limit: 500,
					Older: &purge.Older{Column: "ts", Than: cutoff, Key: "id"}, Partition: true,
				}, purge.Cursor{}); err != nil {
					t.Fatal(err)
				}
			}
			dropped := 2 - db.Int("SELECT count(*) FROM pg_class WHERE relname IN ('t_01', 't_02')")
			if dropped != c.dropped || a.deleted() != obsolete || db.Int("SELECT count(*) FROM t") != retained {
				t.Errorf("%d partitions were dropped; deleted %d rows of %d; %d rows remain, want %d", dropped,
					a.deleted(), obsolete, db.Int("SELECT count(*) FROM t"), retained)
			}
			if n := db.Int("SELECT count(*) FROM pg_class WHERE relname IN ('t_03', 't_rest')"); n != 2 {
				t.Error("a partition was dropped that is not entirely older")
			}
		})
	}
}

// The bounds of partitions in another order than the usual one say nothing about the age of their rows.
func TestPartitionsInAnotherOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Superuser(`CREATE FUNCTION later_first(timestamptz, timestamptz) RETURNS int LANGUAGE sql IMMUTABLE
			AS 'SELECT timestamptz_cmp($2, $1)';
		CREATE OPERATOR CLASS later_first FOR TYPE timestamptz USING btree AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =,
			OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 later_first(timestamptz, timestamptz)`)
	db.Do(`CREATE TABLE t (id int NOT NULL, ts timestamptz) PARTITION BY RANGE (ts later_first);
		CREATE TABLE t_01 PARTITION OF t FOR VALUES FROM ('2020-02-01Z') TO ('2020-01-01Z');
		INSERT INTO t VALUES (1, '2020-01-10Z'), (2, '2020-01-20Z')`)
	cutoff := time.Date(2020, 1, 15, 0, 0, 0, 0, time.UTC)
	e, a := engine(db)
	if _, err := e.Sweep(t.Context(), purge.Sweep{
		Unit: "t_01", Name: "t_01", Relation: "t_01", Root: "t",
		Where: sqlexpr.Format("r.ts < %s", sqlexpr.Arg(cutoff, "timestamptz")), Limit: 500,
		Older: &purge.Older{Column: "ts", Than: cutoff}, Partition: true,
	}, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if left := db.Strings("SELECT id::text FROM t"); a.deleted() != 1 || !slices.Equal(left, []string{"2"}) {
		t.Errorf("deleted %d rows, and left %q; want only row 1 deleted", a.deleted(), left)
	}
}

// A sweep does not wait for sessions that read a partition: it deletes its rows in batches.
func TestPartitionInUse(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(
		"CREATE TABLE t (id int NOT NULL, ts timestamptz) PARTITION BY RANGE (ts); CREATE TABLE t_01 PARTITION OF t " +
			"FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z'); INSERT INTO t SELECT i, '2020-01-01Z' FROM " +
			"generate_series(1, 100) i",
	)
	db.Hold("SELECT FROM t")
	e, a := engine(db)
	cutoff := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := e.Sweep(t.Context(), purge.Sweep{
		Unit:      "1",
		Name:      "t_01",
		Relation:  "t_01",
		Root:      "t",
		Where:     sqlexpr.Format("r.ts < %s", sqlexpr.Arg(cutoff, "timestamptz")),
		Limit:     500,
		Older:     &purge.Older{Column: "ts", Than: cutoff},
		Partition: true,
	}, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 100 || db.Int("SELECT count(*) FROM pg_class WHERE relname = 't_01'") != 1 ||
		!slices.ContainsFunc(a.warned, func(w string) bool { return strings.Contains(w, "was not dropped, and its rows") }) {
		t.Errorf("deleted %d rows; %s", a.deleted(), fmt.Sprint(a.warned))
	}
}

// The bounds of a partition are read correctly with any DateStyle of the database: the summer time of Dublin has the
// abbreviation of another zone.
func TestPartitionOfADatabaseWithItsOwnDateStyle(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	for _, setting := range []string{"timezone = 'Europe/Dublin'", "datestyle = 'SQL, DMY'"} {
		db.Superuser(fmt.Sprintf("ALTER DATABASE %s SET %s", db.Name, setting))
	}
	db.Reset()
	db.Do(
		"CREATE TABLE t (id int NOT NULL, ts timestamptz) PARTITION BY RANGE (ts); CREATE TABLE t_01 PARTITION OF t " +
			"FOR VALUES FROM ('2020-06-01Z') TO ('2020-06-30 23:00:00Z'); INSERT INTO t SELECT i, '2020-06-30 " +
			"22:59:00Z' FROM generate_series(1, 100) i",
	)
	cutoff := time.Date(2020, 6, 30, 22, 30, 0, 0, time.UTC)
	e, a := engine(db)
	if _, err := e.Sweep(t.Context(), purge.Sweep{
		Unit:      "1",
		Name:      "t_01",
		Relation:  "t_01",
		Root:      "t",
		Where:     sqlexpr.Format("r.ts < %s", sqlexpr.Arg(cutoff, "timestamptz")),
		Limit:     500,
		Older:     &purge.Older{Column: "ts", Than: cutoff},
		Partition: true,
	}, purge.Cursor{}); err != nil || a.deleted() != 0 || db.Int("SELECT count(*) FROM t") != 100 {
		t.Errorf("deleted %d rows, %v", a.deleted(), err)
	}
}
