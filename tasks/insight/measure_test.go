package insight_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

func measure(t *testing.T, db insight.DB) map[string]*insight.Table {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := insight.Measure(ctx, db, insight.Masks(tasks.Pipeline))
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*insight.Table{}
	for _, table := range found.Tables {
		if byName[table.Name] != nil {
			t.Errorf("%s is there twice", table.Name)
		}
		byName[table.Name] = table
	}
	if !slices.IsSortedFunc(found.Tables, func(a, b *insight.Table) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the tables are not in the order of their names")
	}
	return byName
}

// All kinds of tables in all schemas of the application are found, with their rows and bytes. Those of PostgreSQL and
// of the service are not.
func TestMeasureFindsAllTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE SCHEMA shop; CREATE SCHEMA cleanupd; CREATE TABLE cleanupd.own (i int);
		CREATE TABLE shop.orders (id int PRIMARY KEY, note text);
		INSERT INTO shop.orders SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i;
		CREATE MATERIALIZED VIEW shop.sums AS SELECT count(*) FROM shop.orders;
		CREATE VIEW shop.view AS SELECT * FROM shop.orders;
		CREATE TABLE shop.wkf12_1 (i int);
		CREATE TEMPORARY TABLE passing (i int)`)
	db.Do("VACUUM ANALYZE shop.orders, shop.sums")
	found := measure(t, db)
	for name, kind := range map[string]insight.TableKind{
		"shop.orders":  insight.Ordinary,
		"shop.sums":    insight.Materialized,
		"shop.wkf12_1": insight.Ordinary, // there are no work tables without Campaign's tables
	} {
		if found[name] == nil || found[name].Kind != kind {
			t.Errorf("%s is not there, or no %s: %+v", name, kind, found[name])
		}
	}
	if len(found) != 3 {
		t.Errorf("%d tables were found", len(found))
	}
	orders := found["shop.orders"]
	size := db.Int("SELECT pg_table_size('shop.orders') - pg_relation_size('shop.orders', 'fsm') - " +
		"pg_relation_size('shop.orders', 'vm')")
	if orders.Rows != 10_000 || orders.Bytes != size ||
		orders.IndexBytes != db.Int("SELECT pg_indexes_size('shop.orders')") {
		t.Errorf("%+v, of %d bytes", orders.Figures, size)
	}
}

// The size of a table that was never vacuumed or analyzed, such as a work table without autovacuum, follows from its
// rows.
func TestMeasureOfUnseenTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.DoCounted(`CREATE UNLOGGED TABLE unseen (i bigint, name varchar(20)) WITH (autovacuum_enabled = false);
		INSERT INTO unseen SELECT i, 'name of ' || i FROM generate_series(1, 100000) i`)
	db.Until("SELECT (pg_stat_get_live_tuples('unseen'::regclass) = 100000)::int")
	got, size := measure(t, db)["public.unseen"], db.Int("SELECT pg_relation_size('unseen')")
	if got.Rows != 100_000 || got.Bytes < size/2 || got.Bytes > 2*size {
		t.Errorf("%+v, of %d bytes", got.Figures, size)
	}
}

// Partitions at any depth, in any schema, count as their table.
func TestMeasureOfPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE SCHEMA parts; CREATE TABLE events (id int, at date) PARTITION BY RANGE (at);
		CREATE TABLE parts.old PARTITION OF events FOR VALUES FROM (MINVALUE) TO ('2020-01-01') PARTITION BY RANGE (id);
		CREATE TABLE parts.old_1 PARTITION OF parts.old FOR VALUES FROM (0) TO (1000);
		CREATE TABLE parts.young PARTITION OF events FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
		INSERT INTO events SELECT i, CASE WHEN i % 2 = 0 THEN '2019-01-01'::date ELSE '2021-01-01' END
			FROM generate_series(1, 998) i;
		CREATE TABLE parent (i int); CREATE TABLE child () INHERITS (parent)`)
	db.Do("ANALYZE parts.old_1, parts.young")
	found := measure(t, db)
	events := found["public.events"]
	if len(found) != 3 || events == nil || events.Kind != insight.Partitioned || events.Rows != 998 ||
		len(events.Relations) != 2 {
		t.Errorf("%d tables, %+v", len(found), events)
	}
}

// Work tables of a kind are one entry, only in the schema of Campaign's tables.
func TestMeasureOfWorkTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE TABLE wkf12_1 (i int); CREATE TABLE wkf13_1 (i int); CREATE TABLE wkfhisto12_q (i int);
		CREATE TABLE grp7 (i int); CREATE TABLE grpnone (i int); CREATE TABLE wkDlv_1_x (i int);
		CREATE SCHEMA other; CREATE TABLE other.wkf12_1 (i int); CREATE TABLE "wkf%" (i int);
		INSERT INTO wkf12_1 SELECT generate_series(1, 500); INSERT INTO wkf13_1 SELECT generate_series(1, 7)`)
	db.Do("ANALYZE wkf12_1, wkf13_1")
	found := measure(t, db)
	for name, members := range map[string][]string{
		"public.wkf%":      {"wkf12_1", "wkf13_1"},
		"public.wkfhisto%": {"wkfhisto12_q"},
		"public.grp%":      {"grp7"},
		`public.wkdlv\_%`:  {"wkdlv_1_x"},
	} {
		if found[name] == nil || found[name].Kind != insight.WorkTables || len(found[name].Members) != len(members) {
			t.Errorf("%s: %+v", name, found[name])
			continue
		}
		for _, member := range members {
			if _, ok := found[name].Members[member]; !ok {
				t.Errorf("%s has no %s", name, member)
			}
		}
	}
	for _, name := range []string{"public.grpnone", "other.wkf12_1", `public."wkf%"`, "public.nmsdelivery"} {
		if found[name] == nil || found[name].Kind != insight.Ordinary {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	if wkf := found["public.wkf%"]; wkf.Rows != 507 || wkf.Members["wkf13_1"].Rows != 7 {
		t.Errorf("%+v", wkf)
	}
}

// Names may have any characters. Each table has a unique name, which SQL accepts.
func TestMeasureOfHostileNames(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	names := []pgx.Identifier{
		{"a.b", "c"},
		{"a", "b.c"},
		{"a", `"`},
		{"a", `x"; DROP TABLE y; --`},
		{"a", "select"},
		{"a", "Ärger ☃"},
		{"a", "%"},
		{"a", "back\\slash"},
		{"a", "'"},
		{"a", strings.Repeat("n", 63)},
		{"A", "B"},
	}
	db.Do(`CREATE SCHEMA a; CREATE SCHEMA "a.b"; CREATE SCHEMA "A"`)
	for _, name := range names {
		db.Do("CREATE TABLE " + name.Sanitize() + ` ("at""" timestamptz)`)
		db.Do("CREATE INDEX ON " + name.Sanitize() + ` ("at""")`)
		db.Do("INSERT INTO " + name.Sanitize() + " VALUES ('2020-01-01Z')")
	}
	found := measure(t, db)
	var list []*insight.Table
	for name, table := range found {
		if db.Int("SELECT to_regclass($1)::oid::bigint", name) != int64(table.OID) {
			t.Errorf("SQL does not find %s", name)
		}
		list = append(list, table)
	}
	details, err := insight.ReadDetails(t.Context(), db.Pool, list)
	if err != nil || len(found) != len(names) {
		t.Fatalf("%d tables, %v", len(found), err)
	}
	for i, table := range list {
		name := table.Name
		if d := details[i].Dates; len(d) != 1 || d[0].Column != `at"` || d[0].Source != insight.FromIndex {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Measuring locks no table: not even one that is being altered makes it wait.
func TestMeasureLocksNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE altered (id int PRIMARY KEY, at timestamptz); CREATE INDEX ON altered (at); " +
		"INSERT INTO altered SELECT i, '2020-01-01Z' FROM generate_series(1, 100) i")
	db.Do("ANALYZE altered")
	tx := db.Hold("LOCK altered IN ACCESS EXCLUSIVE MODE")
	defer func() { _ = tx.Rollback(context.Background()) }()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1ms'"); err != nil {
			return err
		}
		table := measure(t, tx)["public.altered"]
		if table.Rows != 100 || table.Bytes == 0 {
			t.Errorf("%+v", table)
		}
		details, err := insight.ReadDetails(t.Context(), db.Pool, []*insight.Table{table})
		if d := details[0].Dates; err != nil || len(d) != 1 || d[0].Source != insight.FromStatistics {
			t.Errorf("%+v, %v", d, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Fifty thousand tables are measured by two queries of the catalog.
func TestMeasureOfManyTables(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, _ := pgtest.Private(t)
	const n = 10_000
	db.Do(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		EXECUTE format('CREATE TABLE many_%%s (id int PRIMARY KEY, note text)', i);
		IF i %% 500 = 0 THEN COMMIT; END IF; END LOOP; END $$`, n))
	db.Superuser("VACUUM ANALYZE pg_class, pg_attribute, pg_index, pg_namespace, pg_inherits")
	var took time.Duration
	for range 2 {
		start := time.Now()
		found := measure(t, db)
		took = time.Since(start)
		t.Logf("%d tables in %v", len(found), took)
		if len(found) < n {
			t.Errorf("%d tables of %d were found", len(found), n)
		}
	}
	start := time.Now()
	db.Int("SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relname LIKE 'many%' AND relkind = 'r'")
	exact := time.Since(start)
	t.Logf("their sizes alone, by pg_total_relation_size, in %v", exact)
	if took > 2*exact { // other tests run at the same time
		t.Errorf("the estimates take %v, and pg_total_relation_size %v", took, exact)
	}
}
