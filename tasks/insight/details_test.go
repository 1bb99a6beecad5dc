package insight_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

func read(t *testing.T, pool *pgxpool.Pool, name string) insight.Details {
	t.Helper()
	table := measure(t, pool)[name]
	if table == nil {
		t.Fatalf("there is no %s", name)
	}
	details, err := insight.ReadDetails(t.Context(), pool, []*insight.Table{table})
	if err != nil {
		t.Fatal(err)
	}
	return details[0]
}

// The oldest and the newest date come from an index that begins with the column, or else from the statistics.
func TestDates(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Superuser("ALTER DATABASE " + db.Name + " SET timezone = 'Europe/Paris'") // where a day begins before that of UTC
	db.Reset()
	db.Do(
		`CREATE DOMAIN day AS date; CREATE DOMAIN birthday AS day;
		CREATE TABLE events (id int PRIMARY KEY, note text, by_index timestamptz, by_statistics date,
			of_domain birthday, unknown timestamp,
			second timestamptz, partial timestamptz, endless timestamptz, mistyped date, mistyped_indexed date);
		CREATE INDEX ON events (mistyped_indexed);
		CREATE INDEX ON events (by_index, id); CREATE INDEX ON events (id, second);
		CREATE INDEX ON events (partial) WHERE partial > '2024-01-01'; CREATE INDEX ON events (endless);
		ALTER TABLE events ALTER unknown SET STATISTICS 0;
		INSERT INTO events SELECT i, 'x', '2020-01-01Z'::timestamptz + i * interval '24 hours', '2021-01-01'::date + i,
			'2021-01-01'::date + i, now(),
			'2023-01-01Z', '2020-01-01Z', CASE WHEN i = 1 THEN '-infinity'::timestamptz ELSE 'infinity' END,
			CASE WHEN i < 2 THEN '2023111-01-01' ELSE '2022-01-01'::date + i END,
			CASE WHEN i < 2 THEN '2023111-01-01' ELSE '2022-01-01'::date + i END
			FROM generate_series(0, 100) i;
		ALTER TABLE events ALTER mistyped_indexed SET STATISTICS 0`,
	)
	db.Do("ANALYZE events")
	day := func(text string) time.Time {
		parsed, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	got := map[string]insight.DateColumn{}
	for _, c := range read(t, db.Pool, "public.events").Dates {
		got[c.Column] = c
	}
	if len(got) != 9 {
		t.Errorf("%d columns are dates: %+v", len(got), got)
	}
	for column, want := range map[string]struct {
		indexed        bool
		source         insight.DateSource
		oldest, newest string
	}{
		"by_index":      {true, insight.FromIndex, "2020-01-01", "2020-04-10"},
		"by_statistics": {false, insight.FromStatistics, "2021-01-01", "2021-04-11"},
		"of_domain":     {false, insight.FromStatistics, "2021-01-01", "2021-04-11"},
		"unknown":       {false, "", "", ""},
		"second":        {false, insight.FromStatistics, "2023-01-01", "2023-01-01"},
		"partial":       {false, insight.FromStatistics, "2020-01-01", "2020-01-01"},
		"endless":       {true, "", "", ""},
		// no timestamp has such a date: nothing else is affected
		"mistyped":         {false, insight.FromStatistics, "2022-01-03", "2022-04-11"},
		"mistyped_indexed": {true, "", "", ""},
	} {
		c := got[column]
		if c.Indexed != want.indexed || c.Source != want.source || (c.Oldest == nil) != (want.oldest == "") {
			t.Errorf("%s: %+v", column, c)
			continue
		}
		if want.oldest != "" && (!c.Oldest.Equal(day(want.oldest)) || !c.Newest.Equal(day(want.newest))) {
			t.Errorf("%s: from %v to %v", column, c.Oldest, c.Newest)
		}
	}
}

// The dates of a partitioned table come from all partitions.
func TestDatesOfPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE events (at timestamptz, seen timestamptz) PARTITION BY RANGE (at);
		CREATE TABLE old PARTITION OF events FOR VALUES FROM (MINVALUE) TO ('2020-01-01Z');
		CREATE TABLE young PARTITION OF events FOR VALUES FROM ('2020-01-01Z') TO (MAXVALUE);
		CREATE INDEX ON events (at);
		INSERT INTO events VALUES ('2010-01-01Z', '2010-01-01Z'), ('2011-01-01Z', '2011-01-01Z'),
			('2022-01-01Z', '2022-01-01Z'), ('2023-01-01Z', '2023-01-01Z')`)
	db.Do("ANALYZE old, young")
	for i, c := range read(t, db.Pool, "public.events").Dates {
		want := []insight.DateSource{insight.FromIndex, insight.FromStatistics}[i]
		if c.Source != want || c.Oldest == nil || c.Oldest.UTC().Year() != 2010 || c.Newest.UTC().Year() != 2023 {
			t.Errorf("%+v", c)
		}
	}
}

// Without a right to a table, a role sees its size and none of its values. Nothing of a table is read if its owner
// could make the service run code.
func TestDetailsWithoutRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE secret (at timestamptz); CREATE INDEX ON secret (at);
		INSERT INTO secret SELECT now() FROM generate_series(1, 1000)`)
	db.Do("ANALYZE secret")
	viewer := db.Role("viewer")
	other := db.Role("other")
	db.Superuser("GRANT USAGE ON SCHEMA public TO " + viewer)
	pool := db.For(viewer).Pool
	table := measure(t, pool)["public.secret"]
	d := read(t, pool, "public.secret")
	if table.Rows != 1000 || len(d.Dates) != 1 || d.Dates[0].Oldest != nil || d.DeadBytes != nil {
		t.Errorf("%+v, %+v", table, d)
	}
	db.Superuser("ALTER TABLE secret OWNER TO " + other + "; GRANT SELECT ON secret TO " + viewer)
	if c := read(t, pool, "public.secret").Dates[0]; c.Source != insight.FromStatistics || c.Oldest == nil {
		t.Errorf("the table of another role: %+v", c)
	}
	db.Superuser("ALTER TABLE secret OWNER TO postgres; GRANT SELECT ON secret TO " + viewer)
	if c := read(t, pool, "public.secret").Dates[0]; c.Source != insight.FromIndex {
		t.Errorf("the superuser's table: %+v", c)
	}
	db.Superuser("ALTER TABLE secret ENABLE ROW LEVEL SECURITY")
	if c := read(t, pool, "public.secret").Dates[0]; c.Oldest != nil {
		t.Errorf("with row security: %+v", c)
	}
}

// Dead and free bytes come from the statistics.
func TestSpace(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE full_of_holes (i int, note text) WITH (autovacuum_enabled = false);
		INSERT INTO full_of_holes SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i`)
	db.Do("VACUUM ANALYZE full_of_holes")
	db.DoCounted("DELETE FROM full_of_holes WHERE i % 2 = 0")
	db.Until("SELECT (pg_stat_get_dead_tuples('full_of_holes'::regclass) = 5000)::int")
	size := measure(t, db)["public.full_of_holes"].Bytes
	d := read(t, db.Pool, "public.full_of_holes")
	if d.DeadBytes == nil || *d.DeadBytes < size/3 || *d.FreeBytes > size/5 {
		t.Errorf("of %d: %d dead, %d free", size, *d.DeadBytes, *d.FreeBytes)
	}
	db.Do("VACUUM full_of_holes")
	db.Until("SELECT (pg_stat_get_dead_tuples('full_of_holes'::regclass) = 0)::int")
	if d = read(t, db.Pool, "public.full_of_holes"); *d.DeadBytes != 0 || *d.FreeBytes < size/3 {
		t.Errorf("of %d: %d dead, %d free", size, *d.DeadBytes, *d.FreeBytes)
	}
}

// Foreign keys that point at a table are returned, once for all partitions.
func TestReferences(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE orders (a int, b int, PRIMARY KEY (a, b)); CREATE SCHEMA "Shop";
		CREATE TABLE "Shop"."Lines" (x int, y int,
			CONSTRAINT of FOREIGN KEY (x, y) REFERENCES orders ON DELETE CASCADE);
		CREATE TABLE notes (a int, b int, FOREIGN KEY (a, b) REFERENCES orders) PARTITION BY RANGE (a);
		CREATE TABLE notes_1 PARTITION OF notes FOR VALUES FROM (0) TO (9)`)
	keys := read(t, db.Pool, "public.orders").ReferencedBy
	if len(keys) != 2 || keys[0].Table != `"Shop"."Lines"` || keys[0].OnDelete != "CASCADE" || keys[0].Name != "of" ||
		!slices.Equal(keys[0].Columns, []string{"x", "y"}) || keys[1].Table != "public.notes" ||
		keys[1].OnDelete != "NO ACTION" {
		t.Errorf("%+v", keys)
	}
}
