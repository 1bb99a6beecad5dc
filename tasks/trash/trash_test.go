package trash_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// ledger counts what goes to the trash as the service does, in the transaction of the batch.
type ledger struct {
	batches []purge.Delta
	settled func() // called after each batch, if set
}

func (l *ledger) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (func(error) error, error) {
	trash.Count(b, d)
	return func(err error) error {
		l.batches = append(l.batches, d)
		if l.settled != nil {
			l.settled()
		}
		return err
	}, nil
}

func (*ledger) Scanning(purge.Scan)           {}
func (*ledger) Throttled(purge.Throttle)      {}
func (*ledger) Retried(string)                {}
func (*ledger) Warn(message.Message)          {}
func (*ledger) Proceed(context.Context) error { return nil }

func database(t *testing.T, setup string) *pgtest.DB {
	t.Helper()
	db := pgtest.Prepared(t, "trash", store.Migrate)
	db.Do(setup)
	if err := trash.Prepare(t.Context(), db.Pool, false); err != nil {
		t.Fatal(err)
	}
	return db
}

func newCan(db *pgtest.DB) *trash.Can { return &trash.Can{Pool: db.Pool, Run: uuid.NewString()} }

// sweep deletes the rows of a table that match a condition, in batches of up to 500 rows, with a trash.
func sweep(t *testing.T, db *pgtest.DB, can *trash.Can, s purge.Sweep) (purge.Result, *ledger) {
	t.Helper()
	s.Unit, s.Name, s.Limit = "1", s.Relation, 500
	s.Root = s.Relation
	if why := s.NotUndoable(); why != "" {
		t.Fatal(why)
	}
	if err := can.Put(t.Context(), "a-task", time.Hour, &s); err != nil {
		t.Fatal(err)
	}
	l := &ledger{}
	result, err := purge.New(purge.Engine{Pool: db.Pool, Ledger: l, Recorder: l}).Sweep(t.Context(), s, purge.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	return result, l
}

func key(parent, child int, column string) purge.ForeignKey {
	return purge.ForeignKey{
		Parent: parent, Child: child, Keys: []string{"id"}, Columns: []string{column},
		Equal: []campaign.Equality{{Operator: "OPERATOR(pg_catalog.=)"}},
	}
}

// Rows of a table that refers to itself come back with those that they refer to, in whatever order they were deleted.
// A row does not come back if another one has the key of the row that it refers to.
func TestRowsThatReferToTheirOwnTable(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE message (id int PRIMARY KEY, answers int REFERENCES message, old bool, word text);
CREATE TABLE reader (message int REFERENCES message ON DELETE CASCADE, word text);
CREATE INDEX ON message (answers); CREATE INDEX ON reader (message);
INSERT INTO message SELECT i, CASE WHEN i % 100 = 0 OR i = 1 THEN NULL WHEN i <= 2000 THEN i - 1 ELSE i + 1 END,
	i % 1500 <> 7, repeat('x', 700) FROM generate_series(1, 4000) i;
INSERT INTO reader SELECT i, 'reader ' || i FROM generate_series(1, 4000) i;
CREATE TABLE before AS SELECT message::text AS row FROM message UNION ALL SELECT reader::text FROM reader`)
	tables := []string{`"public"."message"`, `"public"."reader"`}
	own := key(0, 0, "answers")
	own.Refuses = true
	result, _ := sweep(t, db, newCan(db), purge.Sweep{
		Relation: tables[0], Where: sqlexpr.SQL("r.old"),
		Cascade: &purge.Cascade{Tables: tables, Keys: []purge.ForeignKey{own, key(0, 1, "message")}},
	})
	gone := db.Int("SELECT 4000 - count(*) FROM message")
	if gone < 3000 || gone == 4000 || result.Failed > 0 {
		t.Fatalf("%d rows were deleted, want most; %+v", gone, result)
	}
	of := entries(t, db)
	db.Do("INSERT INTO message VALUES (100, NULL, false, 'another')")
	passes := func(n int) {
		for i := range n {
			l := &ledger{}
			engine := purge.New(purge.Engine{Pool: db.Pool, Ledger: l, Recorder: l})
			r := trash.Restore{Engine: engine, Entry: of[0], Backwards: i%2 == 1}
			if _, err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	passes(2)
	const left = "SELECT count(*) FROM cleanupd_trash."
	if in := db.Int(left + of[0].Name); in != 100 {
		t.Errorf("%d rows are in the trash, want 100: one and those that refer to it", in)
	}
	db.Do("DELETE FROM message WHERE word = 'another'")
	passes(2)
	restore(t, db, of[1])
	if lost := db.Int("SELECT count(*) FROM (SELECT row FROM before EXCEPT ALL (SELECT message::text FROM message " +
		"UNION ALL SELECT reader::text FROM reader)) AS l"); lost != 0 {
		t.Errorf("%d rows did not come back; %d and %d are in the trash", lost, db.Int(left+of[0].Name),
			db.Int(left+of[1].Name))
	}
}

// Rows of three levels go to the trash in the statement that deletes the first, each once, and the entries count them.
func TestCascades(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE orders (id int PRIMARY KEY, old bool);
CREATE TABLE bill (id int PRIMARY KEY, orders int REFERENCES orders ON DELETE CASCADE);
CREATE TABLE line (id int PRIMARY KEY, orders int REFERENCES orders ON DELETE CASCADE,
	bill int REFERENCES bill ON DELETE CASCADE);
CREATE TABLE note (id int PRIMARY KEY, line int REFERENCES line ON DELETE CASCADE, word text);
CREATE INDEX ON bill (orders); CREATE INDEX ON line (orders); CREATE INDEX ON line (bill); CREATE INDEX ON note (line);
INSERT INTO orders SELECT i, i % 2 = 0 FROM generate_series(1, 2000) i;
INSERT INTO bill SELECT i, i FROM generate_series(1, 2000) i;
INSERT INTO line SELECT i, 1 + i % 2000, 1 + (i * 7) % 2000 FROM generate_series(1, 6000) i;
INSERT INTO note SELECT i, 1 + i % 6000, md5(i::text) FROM generate_series(1, 9000) i;
CREATE TABLE before AS SELECT 'orders' AS t, orders::text AS r FROM orders UNION ALL SELECT 'bill', bill::text FROM bill
	UNION ALL SELECT 'line', line::text FROM line UNION ALL SELECT 'note', note::text FROM note`)
	tables := []string{`"public"."orders"`, `"public"."bill"`, `"public"."line"`, `"public"."note"`}
	can := newCan(db)
	result, l := sweep(t, db, can, purge.Sweep{
		Relation: tables[0], Where: sqlexpr.SQL("r.old"),
		Cascade: &purge.Cascade{Tables: tables, Keys: []purge.ForeignKey{
			key(0, 1, "orders"), key(0, 2, "orders"), key(1, 2, "bill"), key(2, 3, "line"),
		}},
	})
	if result.Retained != (purge.Retained{}) {
		t.Errorf("the sweep retained %+v, want nothing; %v", result.Retained, result.FirstError)
	}
	const missing = `SELECT count(*) FROM (SELECT * FROM before EXCEPT ALL (
		SELECT 'orders', orders::text FROM orders UNION ALL SELECT 'bill', bill::text FROM bill
		UNION ALL SELECT 'line', line::text FROM line UNION ALL SELECT 'note', note::text FROM note`
	in := missing
	var counted int64
	const named = `SELECT concat_ws(' ', name, replace(split_part(root, '.', 2), '"', '')) FROM cleanupd.trash`
	for _, e := range db.Strings(named) {
		name, table, _ := strings.Cut(e, " ")
		in += " UNION ALL SELECT '" + table + "', t::text FROM cleanupd_trash." + name + " AS t"
		if got, want := db.Int("SELECT count(*) FROM cleanupd_trash."+name),
			db.Int("SELECT rows_trashed FROM cleanupd.trash WHERE name = $1", name); got != want || got == 0 {
			t.Errorf("%s has %d rows of %s, and its entry counts %d", name, got, table, want)
		}
		counted += db.Int("SELECT rows_trashed FROM cleanupd.trash WHERE name = $1", name)
	}
	if gone := db.Int(missing + ")) AS m"); gone != counted {
		t.Errorf("%d rows are gone, and the entries count %d", gone, counted)
	}
	if lost := db.Int(in + ")) AS m"); lost != 0 {
		t.Errorf("%d rows are neither in their tables nor in the trash", lost)
	}
	var deleted int64
	for _, d := range l.batches {
		deleted += d.Deleted + d.Cascaded
	}
	if deleted != counted {
		t.Errorf("the batches deleted %d rows, and the entries count %d", deleted, counted)
	}
	for _, e := range entries(t, db) { // parents come first
		if got := restore(t, db, e); got.Rows != e.Rows || got.Existing+got.Failed > 0 {
			t.Errorf("%+v of %s came back, want %d rows", got, e.Root, e.Rows)
		}
	}
	if gone := db.Int(missing + ")) AS m"); gone != 0 {
		t.Errorf("%d rows have not come back", gone)
	}
}

// Rows that are deleted with another row are kept as they were when they were deleted, even if another session changed
// them after the statement began.
func TestChangeOfWhatGoesWithARow(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE orders (id int PRIMARY KEY);
CREATE TABLE note (id int PRIMARY KEY, orders int REFERENCES orders ON DELETE CASCADE, word text);
CREATE INDEX ON note (orders); INSERT INTO orders VALUES (1); INSERT INTO note VALUES (1, 1, 'old');
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END';
CREATE TRIGGER wait BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION wait()`)
	other := db.Hold("SELECT pg_advisory_xact_lock(1)")
	done := make(chan purge.Result)
	go func() {
		result, _ := sweep(t, db, newCan(db), purge.Sweep{
			Relation: `"public"."orders"`, Where: sqlexpr.SQL("true"), Cascade: &purge.Cascade{
				Tables: []string{`"public"."orders"`, `"public"."note"`}, Keys: []purge.ForeignKey{key(0, 1, "orders")},
			},
		})
		done <- result
	}()
	db.Until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 1")
	if _, err := other.Exec(t.Context(), "UPDATE note SET word = 'new'"); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if result := <-done; result.Retained != (purge.Retained{}) {
		t.Errorf("the sweep retained %+v, want nothing; %v", result.Retained, result.FirstError)
	}
	for _, e := range entries(t, db) {
		restore(t, db, e)
	}
	if got := db.Strings("SELECT word FROM note"); !slices.Equal(got, []string{"new"}) {
		t.Errorf("what came back is %q, want what went", got)
	}
}

// Rows of two tables with the same name are not restored into one table.
func TestIntoOneName(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE SCHEMA a; CREATE TABLE a.t (id int); INSERT INTO a.t VALUES (1);
		CREATE TABLE t (id int); INSERT INTO t VALUES (2); CREATE SCHEMA restored`)
	for _, relation := range []string{`"a"."t"`, `"public"."t"`} {
		sweep(t, db, newCan(db), purge.Sweep{Relation: relation, Where: sqlexpr.SQL("true")})
	}
	for i, e := range entries(t, db) {
		for range 2 { // as a restore that goes on
			err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error { return e.Into(t.Context(), tx, "restored") })
			if errors.Is(err, trash.ErrTarget) != (i == 1) {
				t.Errorf("the table %d came into the schema: %v", i, err)
			}
			e = entries(t, db)[i]
		}
	}
}

// The command of a table with a rule DO ALSO cannot be part of the statement that fills the trash.
func TestRuleDoAlso(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE t (id int); INSERT INTO t VALUES (1);
CREATE TABLE gone (id int); CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO gone VALUES (OLD.id)`)
	s := purge.Sweep{
		Unit: "1", Name: "t", Limit: 500, Relation: `"public"."t"`, Root: `"public"."t"`, Where: sqlexpr.SQL("true"),
	}
	if err := newCan(db).Put(t.Context(), "a-task", time.Hour, &s); err != nil {
		t.Fatal(err)
	}
	l := &ledger{}
	_, err := purge.New(purge.Engine{Pool: db.Pool, Ledger: l, Recorder: l}).Sweep(t.Context(), s, purge.Cursor{})
	refused := (*failure.Refusal)(nil)
	if !errors.As(err, &refused) || refused.Reason != failure.ReasonNotUndoable {
		t.Errorf("the sweep ended with %v, want a refusal", err)
	}
	if left := db.Int("SELECT count(*) FROM t"); left != 1 {
		t.Errorf("%d rows are left, want 1", left)
	}
}

func entries(t *testing.T, db *pgtest.DB) []trash.Entry {
	t.Helper()
	all, err := trash.Entries(t.Context(), db.Pool, "")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	return all
}

// entryOf returns the entry of a table from which rows were deleted once.
func entryOf(t *testing.T, db *pgtest.DB, relation string) trash.Entry {
	t.Helper()
	all := entries(t, db)
	i := slices.IndexFunc(all, func(e trash.Entry) bool { return e.Root == relation })
	if i < 0 {
		t.Fatalf("the trash has nothing of %s: %+v", relation, all)
	}
	return all[i]
}

// restore restores all rows of an entry, or only those with the given names.
func restore(t *testing.T, db *pgtest.DB, e trash.Entry, names ...string) trash.Restored {
	t.Helper()
	l := &ledger{}
	r := trash.Restore{Engine: purge.New(purge.Engine{Pool: db.Pool, Ledger: l, Recorder: l}), Entry: e, Keys: names}
	result, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A restore of single rows says how many rows that refer to them stay in the trash, also of their own table.
func TestLeftInTrash(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE invoice (id int PRIMARY KEY, corrects int REFERENCES invoice);
CREATE TABLE line (id int PRIMARY KEY, invoice int REFERENCES invoice ON DELETE CASCADE,
	credit int REFERENCES invoice ON DELETE CASCADE);
CREATE INDEX ON invoice (corrects); CREATE INDEX ON line (invoice); CREATE INDEX ON line (credit);
INSERT INTO invoice VALUES (1, NULL), (2, 1), (3, NULL);
INSERT INTO line VALUES (1, 1, NULL), (2, 1, 1), (3, 3, 1), (4, 3, NULL)`)
	tables := []string{`"public"."invoice"`, `"public"."line"`}
	corrects := key(0, 0, "corrects")
	corrects.Refuses = true
	sweep(t, db, newCan(db), purge.Sweep{
		Relation: tables[0], Where: sqlexpr.SQL("true"), Cascade: &purge.Cascade{Tables: tables, Keys: []purge.ForeignKey{
			corrects, key(0, 1, "invoice"), key(0, 1, "credit"),
		}},
	})
	of := entries(t, db)
	for _, c := range []struct {
		key  string
		want map[string]int64
	}{
		{"1", map[string]int64{tables[0]: 1, tables[1]: 3}}, {"2", map[string]int64{}}, {"3", map[string]int64{tables[1]: 2}},
	} {
		if got := restore(t, db, of[0], c.key); got.Rows != 1 || !maps.Equal(got.Left, c.want) {
			t.Errorf("the row %s: %+v, want %v left", c.key, got, c.want)
		}
	}
}

// Find locates a row by a condition on its columns, among deleted rows and in dropped partitions, and returns its key
// if it has one.
func TestFind(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE t (code int UNIQUE, id int PRIMARY KEY, word text); INSERT INTO t VALUES (7, 1, 'x');
		CREATE TABLE session (key char(6) PRIMARY KEY, id int UNIQUE); INSERT INTO session VALUES ('secret', 1);
		CREATE TABLE pair (a int, b int, PRIMARY KEY (a, b)); INSERT INTO pair VALUES (1, 2);
		CREATE TABLE log (id int, at timestamptz) PARTITION BY RANGE (at);
		CREATE TABLE log_2020 PARTITION OF log FOR VALUES FROM ('2020-01-01Z') TO ('2021-01-01Z');
		INSERT INTO log VALUES (1, '2020-05-01Z')`)
	can := newCan(db)
	for _, table := range []string{"t", "session", "pair"} {
		sweep(t, db, can, purge.Sweep{Relation: `"public"."` + table + `"`, Where: sqlexpr.SQL("true")})
	}
	err := inTx(t, db, func(tx pgx.Tx) error {
		return can.Move(t.Context(), tx, "a-task", time.Hour,
			trash.Dropped{Kind: trash.Partition, Name: `"public"."log_2020"`, Rows: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
	find := func(table, key string) (found []string) {
		t.Helper()
		all, complete, err := trash.Find(t.Context(), db.Pool, `"public"."`+table+`"`, sqlexpr.SQL(key))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			found = append(found, fmt.Sprint(f.Root, " ", f.Key, " ", f.KeyIsText))
		}
		if !complete {
			found = append(found, "and perhaps more")
		}
		return found
	}
	for _, c := range []struct{ table, key, want string }{
		{"t", "r.id = 1", `["public"."t" 1 false]`},
		{"t", "r.code = 7", `["public"."t" 1 false]`},
		{"t", "r.id = 2", "[]"},
		{"session", "r.id = 1", `["public"."session" secret true]`},
		{"pair", "r.a = 1 AND r.b = 2", `["public"."pair" a=1,b=2 false]`},
		{"log", "r.id = 1", `["public"."log_2020"  false]`},
		{"log_2020", "r.id = 1", `["public"."log_2020"  false]`},
		{"log", "r.id = 2", "[]"},
		{"t", "r.added = 1", "[]"},
		{"t", "r.word = 1", "[]"},
	} {
		if got := fmt.Sprint(find(c.table, c.key)); got != c.want {
			t.Errorf("%s where %s is in the trash as %s, want %s", c.table, c.key, got, c.want)
		}
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "LOCK TABLE cleanupd_trash."+entries(t, db)[0].Name+" IN ACCESS EXCLUSIVE MODE")
		if got := fmt.Sprint(find("log", "r.id = 1")); got != "[and perhaps more]" {
			t.Errorf("while it is locked, the row is in the trash as %s, want that this is not known", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A row comes back alone by its name: the value of a key of one column, or each column of a longer one.
func TestNamedRows(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE pair (a int, b int, PRIMARY KEY (b, a)); INSERT INTO pair VALUES (1, 2);
		CREATE TABLE bare (a int); INSERT INTO bare VALUES (1)`)
	for name, c := range map[string]struct {
		keys []string
		rows string // what comes back
	}{
		"one column":         {[]string{"2", "04", "6"}, "{2,4}"},
		"two":                {[]string{"order=1,The Part=a"}, "{1}"},
		"in another order":   {[]string{"The Part=a, order=2"}, "{3}"},
		"commas":             {[]string{"The Part=d,n=3,order=2", "order=1,The Part=b,c"}, "{2,4}"},
		"an equals sign":     {[]string{"order=3,The Part=e=f"}, "{5}"},
		"another spelling":   {[]string{"order= 01,The Part=a"}, "{1}"},
		"both":               {[]string{"order=1,The Part=a", "5"}, "{1,5}"},
		"none of these rows": {[]string{"order=9,The Part=a"}, ""},
	} {
		relation := fmt.Sprintf(`"public"."%s"`, name)
		db.Do(fmt.Sprintf(`CREATE TABLE %[1]s ("order" int, "The Part" text, n int UNIQUE, PRIMARY KEY ("order", "The Part"));
			INSERT INTO %[1]s VALUES (1, 'a', 1), (1, 'b,c', 2), (2, 'a', 3), (2, 'd,n=3', 4), (3, 'e=f', 5)`, relation))
		sweep(t, db, newCan(db), purge.Sweep{Relation: relation, Where: sqlexpr.SQL("true")})
		restore(t, db, entryOf(t, db, relation), c.keys...)
		var got string
		err := db.QueryRow(t.Context(), "SELECT COALESCE(array_agg(n ORDER BY n)::text, '') FROM "+relation).Scan(&got)
		if err != nil || got != c.rows {
			t.Errorf("%s: the rows %q came back, %v; want %q", name, got, err, c.rows)
		}
	}
	for table, want := range map[string]string{
		"pair": `cannot parse "1" as a row of "public"."pair": write b=VALUE,a=VALUE`,
		"bare": `cannot be used: "public"."bare" has no unique key`,
	} {
		sweep(t, db, newCan(db), purge.Sweep{Relation: `"public"."` + table + `"`, Where: sqlexpr.SQL("true")})
		e := entryOf(t, db, `"public"."`+table+`"`)
		_, err := trash.Missing(t.Context(), db.Pool, []trash.Entry{e}, []string{"1"}, time.Minute)
		if err == nil || err.Error() != want {
			t.Errorf("a row of %s named 1: %v, want %s", table, err, want)
		}
	}
}

// A key is compared as its types compare values, and as a text if PostgreSQL does not come with the type.
func TestSpellingsOfKeys(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TYPE mood AS ENUM ('so so', 'fine'); CREATE TABLE t (id uuid UNIQUE, at timestamptz,
	n numeric, mood mood, span int4range, code char(5), tags text[][], PRIMARY KEY (at, n, mood, span, code, tags));
INSERT INTO t VALUES ('0000000a-0000-0000-0000-000000000001', '2026-02-01 11:13:46Z', 1.50, 'fine', '[1,5)', 'ab',
	'{{a,b}}')`)
	sweep(t, db, newCan(db), purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")})
	const long = "at=2026-02-01T11:13:46Z,n=1.5,mood=fine,span=[1,4],code=ab,tags={{a,b}}"
	for name, want := range map[string]string{
		"0000000A-0000-0000-0000-000000000001": "[]",
		"0000000A-0000-0000-0000-000000000002": "[0000000A-0000-0000-0000-000000000002]",
		long:                                   "[]",
		strings.Replace(long, "T11:13:46Z", " 12:13:46+01", 1): "[]",
		"7": "keys has a value",
		strings.Replace(long, "2026-02-01", "2026-02-31", 1): "keys has a value",
	} {
		missing, err := trash.Missing(t.Context(), db.Pool, entries(t, db), []string{name}, time.Minute)
		got := fmt.Sprint(missing)
		if err != nil {
			got = "keys " + err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("of %s, %s is missing; want %s", name, got, want)
		}
	}
	if got := restore(t, db, entries(t, db)[0], long); got.Rows != 1 {
		t.Errorf("%+v came back, want the row", got)
	}
}

// Values of every kind of type are restored unchanged.
func TestTypes(t *testing.T) {
	t.Parallel()
	values := map[string][]string{
		"smallint":       {"-32768"},
		"bigint":         {"9223372036854775807"},
		"numeric":        {"'NaN'", "'Infinity'", "1.500", "-0.0000000000000000000001"},
		"numeric(10,2)":  {"12345678.90"},
		"real":           {"'-0'", "'infinity'", "'NaN'", "1e-40", "0.1"},
		"float8":         {"'-0'", "'-infinity'", "2.2250738585072014e-308", "0.1"},
		"money":          {"'12.34'"},
		"boolean":        {"true"},
		"\"char\"":       {"'x'"},
		"name":           {"'a name'"},
		"char(5)":        {"'ab'"},
		"varchar(3)":     {"'abc'", "''"},
		"text":           {"E'tab\\tnewline\\n\\\\ ü €'", "''"},
		"bytea":          {"'\\x00ff'", "''"},
		"date":           {"'infinity'", "'-infinity'", "'0044-03-15 BC'"},
		"time(3)":        {"'23:59:59.123'"},
		"timetz":         {"'24:00:00-15:59'"},
		"timestamp":      {"'infinity'", "'2026-10-25 02:30:00.123456'"},
		"timestamptz":    {"'-infinity'", "'2026-10-25 02:30:00.123456+02'"},
		"interval":       {"'1 mon -3 days 04:05:06.789'", "'-178000000 years'"},
		"uuid":           {"'00000000-0000-0000-0000-000000000001'"},
		"json":           {"'null'", "'{\"b\": 1,  \"a\":1, \"a\":2}'"},
		"jsonb":          {"'null'", "'{\"b\": [1, null]}'"},
		"xml":            {"'<a>x</a>'"},
		"inet":           {"'10.0.0.1/8'"},
		"macaddr8":       {"'08:00:2b:01:02:03:04:05'"},
		"bit(3)":         {"B'101'"},
		"varbit":         {"B''", "B'10101'"},
		"point":          {"'(1,-0)'"},
		"polygon":        {"'((0,0),(1,1),(2,0))'"},
		"tsvector":       {"'a:1A b:2'"},
		"tsquery":        {"'a & !b'"},
		"pg_lsn":         {"'16/B374D848'"},
		"oid":            {"4294967295"},
		"int4range":      {"'empty'", "'(,5]'"},
		"nummultirange":  {"'{[1,2),[3,4)}'"},
		"int[]":          {"'[2:3]={1,NULL}'", "'{}'", "'{{1,2},{3,4}}'"},
		"text[]":         {"ARRAY['a,b', NULL, 'NULL', '\"']"},
		"timestamptz[]":  {"'{infinity,2026-01-01 00:00:00+00}'"},
		"shop.mood":      {"'so so'"},
		"shop.mood[]":    {"'[0:1]={so so,NULL}'"},
		"shop.price":     {"12.50"},
		"shop.prices":    {"'{1,2}'"},
		"shop.moody":     {"'so so'"},
		"shop.address":   {"ROW('a \"b\"', NULL, '1 mon'::interval, '2026-01-01 00:00:00.5+00'::timestamptz)"},
		"shop.address[]": {"ARRAY[ROW('x', 1, NULL, NULL)::shop.address, NULL]"},
		"shop.span":      {"'[1.5,2]'"},
		"shop.odd":       {"'a'"}, // its casts change it
	}
	setup := `CREATE SCHEMA shop; CREATE TYPE shop.mood AS ENUM ('so so', 'fine');
CREATE DOMAIN shop.price AS numeric(10,2) CHECK (VALUE > 0); CREATE DOMAIN shop.prices AS shop.price[];
CREATE DOMAIN shop.moody AS shop.mood; CREATE TYPE shop.span AS RANGE (subtype = float8);
CREATE TYPE shop.address AS (street text, number int, since interval, at timestamptz);
CREATE TYPE shop.odd AS ENUM ('a', 'b');
CREATE FUNCTION shop.odd(text) RETURNS shop.odd LANGUAGE sql AS $$ SELECT 'b'::shop.odd $$;
CREATE FUNCTION shop.text(shop.odd) RETURNS text LANGUAGE sql AS $$ SELECT 'b' $$;
CREATE CAST (text AS shop.odd) WITH FUNCTION shop.odd(text);
CREATE CAST (shop.odd AS text) WITH FUNCTION shop.text(shop.odd);
CREATE TABLE shop.t (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, twice int GENERATED ALWAYS AS (id * 2) STORED`
	var inserts string
	i := 0
	for _, typ := range slices.Sorted(maps.Keys(values)) {
		setup += fmt.Sprintf(", c%d %s", i, typ)
		for _, v := range append(values[typ], "NULL") {
			inserts += fmt.Sprintf("; INSERT INTO shop.t (c%d) VALUES (CAST(%s AS %s))", i, v, typ)
		}
		i++
	}
	db := database(t, setup+")"+inserts)
	const rows = "SELECT row_to_json(t)::text || ' ' || t::text || (c0 IS NULL)::text FROM shop.t AS t ORDER BY id"
	before := db.Strings(rows)
	sweep(t, db, newCan(db), purge.Sweep{Relation: `"shop"."t"`, Where: sqlexpr.SQL("true")})
	if left := db.Int("SELECT count(*) FROM shop.t"); left != 0 {
		t.Fatalf("%d rows were not deleted", left)
	}
	if n := db.Int(`SELECT count(*) FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
		WHERE c.relnamespace = 'cleanupd_trash'::regnamespace AND d.refobjid IN (SELECT oid FROM pg_type WHERE
			typnamespace = 'shop'::regnamespace)`); n > 0 {
		t.Errorf("the trash depends on %d types of the application", n)
	}
	for _, e := range entries(t, db) {
		if got, want := restore(t, db, e), int64(len(before)); got.Rows != want || got.Existing+got.Failed > 0 {
			t.Errorf("%+v came back, want %d rows", got, want)
		}
	}
	if after := db.Strings(rows); !slices.Equal(after, before) {
		for i := range before {
			if i >= len(after) || after[i] != before[i] {
				t.Errorf("row %d differs: %s, want %s", i, after[min(i, len(after)-1)], before[i])
			}
		}
	}
	if left := db.Int("SELECT sum(rows_trashed - rows_restored) FROM cleanupd.trash"); left != 0 {
		t.Errorf("the entries count %d rows in the trash", left)
	}
}

// Each built-in type, and each array of one, is kept as it is and comes back.
func TestBuiltInTypes(t *testing.T) {
	t.Parallel()
	// One of these values is valid for each type, except for types whose values only PostgreSQL makes.
	db := database(t, `CREATE TABLE sample (value text); INSERT INTO sample VALUES ('1'), ('{"a": [1, null]}'),
	('pg_class'), ('(1,2)'), ('<(1,2),3>'), ('(1,2),(3,4)'), ('{1,2,3}'), ('((1,2),(3,4))'), ('[(1,2),(3,4)]'),
	('2026-01-31 23:59:59.5'),
	('23:59:59.5'), ('10.1.0.0/16'), ('08:00:2b:01:02:03'), ('a7b0e3d2-8c2e-4b67-9d1c-000000000001'), ('16/B374D848'),
	('10:20:10,14'), ('[1,5)'), ('{[1,5)}'), ('[2026-01-01,2026-02-01)'), ('{[2026-01-01,2026-02-01)}'), ('t'),
	('lower(text)'), ('pg_catalog.!~(text,text)'), ('postgres=r/postgres'), ('english'), ('simple'), ('"C"'), ('!~'),
	('md5'), ('pg_read_all_data'),
	('<a>x</a>'), ('a & b'), ('now'), ('pg_catalog'), ('(0,1)');
CREATE FUNCTION takes(typ text, value text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE format('SELECT %L::%s', value, typ); RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END $$;
CREATE TABLE type AS SELECT row_number() OVER (ORDER BY oid) AS n, format_type(oid, -1) AS typ,
	(SELECT s.value FROM sample s WHERE takes(format_type(t.oid, -1), s.value) LIMIT 1) AS value
FROM pg_type t WHERE typtype IN ('b', 'r', 'm') AND typcategory <> 'A' AND oid < 16384
	AND typnamespace = 'pg_catalog'::regnamespace`)
	without := db.Strings("SELECT typ FROM type WHERE value IS NULL ORDER BY 1")
	internal := []string{
		"gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list",
		"pg_ndistinct", "pg_node_tree",
	}
	if !slices.Equal(without, internal) {
		t.Errorf("no value is known of %q, want none only of %q", without, internal)
	}
	db.Do(`DO $$ DECLARE kind record; BEGIN
	CREATE TABLE t (id int PRIMARY KEY);
	FOR kind IN SELECT * FROM type ORDER BY n LOOP
		EXECUTE format('ALTER TABLE t ADD c%s %s', kind.n, kind.typ);
		INSERT INTO t VALUES (kind.n);
		IF kind.value IS NOT NULL THEN
			EXECUTE format('ALTER TABLE t ADD a%1$s %2$s[];
				UPDATE t SET c%1$s = %3$L, a%1$s = ARRAY[%3$L::%2$s, NULL] WHERE id = %1$s', kind.n, kind.typ, kind.value);
		END IF;
	END LOOP; END $$`)
	before := db.Strings("SELECT t::text FROM t ORDER BY id")
	sweep(t, db, newCan(db), purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")})
	const others = `SELECT a.attname::text FROM pg_attribute a JOIN pg_attribute b ON b.attrelid = 't'::regclass
		AND b.attname = a.attname WHERE a.attrelid = to_regclass($1) AND a.atttypid <> b.atttypid`
	e := entries(t, db)[0]
	if text := db.Strings(others, "cleanupd_trash."+e.Name); len(text) > 0 {
		t.Errorf("the trash has %q with other types", text)
	}
	if got := restore(t, db, e); got.Rows != int64(len(before)) || len(before) < 70 {
		t.Errorf("%+v came back, want %d rows, at least 70", got, len(before))
	}
	if after := db.Strings("SELECT t::text FROM t ORDER BY id"); !slices.Equal(after, before) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// Columns may have the names of the statements' aliases, and names as long and odd as PostgreSQL allows. A table may
// have as many columns as it allows.
func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 29)
	db := database(t, fmt.Sprintf(`CREATE TABLE "a""b.%[1]s" (id int PRIMARY KEY, r int, t text, c text, p text, gone int,
	c0 text, place text, rel int, restored bool, name text, "%[1]s" text, "a""b' %%s" text, """ " text);
DO $$ BEGIN EXECUTE 'ALTER TABLE "a""b.%[1]s" '
	|| (SELECT string_agg('ADD x' || i || ' bool', ', ') FROM generate_series(1, 1585) i); END $$;
CREATE TABLE "R" (id int PRIMARY KEY, r int REFERENCES "a""b.%[1]s" ON DELETE CASCADE, c text, p text, k text, c0 int);
CREATE INDEX ON "R" (r);
INSERT INTO "a""b.%[1]s" (id, r, t, c, p, gone, c0, place, rel, restored, name, "%[1]s", "a""b' %%s", """ ", x1585)
	SELECT i, -i, 't', 'c', 'p', 0, 'c0', 'x', 1, true, 'n', 'long', 'odd', 'space', true FROM generate_series(1, 20) i;
INSERT INTO "R" SELECT 2 * i, i, 'c', 'p', 'k', 0 FROM generate_series(1, 20) i;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'`, long))
	parent, child := fmt.Sprintf(`"public"."a""b.%s"`, long), `"public"."R"`
	rows := func() []string {
		return db.Strings(fmt.Sprintf("SELECT a::text FROM (SELECT * FROM %s) AS a "+
			"UNION ALL SELECT a::text FROM (SELECT * FROM %s) AS a", parent, child))
	}
	for name, s := range map[string]purge.Sweep{
		"alone": {Relation: child},
		"with others": {Relation: parent, Cascade: &purge.Cascade{
			Tables: []string{parent, child}, Keys: []purge.ForeignKey{key(0, 1, "r")},
		}},
		"with a trigger": {Relation: child},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "with a trigger" {
				db.Do(`CREATE TRIGGER nothing BEFORE DELETE ON "R" FOR EACH ROW EXECUTE FUNCTION nothing()`)
				defer db.Do(`DROP TRIGGER nothing ON "R"`)
			}
			before := rows()
			s.Where = sqlexpr.SQL("r.id % 4 = 0")
			sweep(t, db, newCan(db), s)
			deleted := len(before) - len(rows())
			for _, e := range entries(t, db) {
				deleted -= int(restore(t, db, e).Rows)
				db.Do("UPDATE cleanupd.trash SET end_time = now()")
			}
			slices.Sort(before)
			if after := slices.Sorted(slices.Values(rows())); deleted != 0 || !slices.Equal(after, before) {
				t.Errorf("%d rows have not come back, or others: %d rows, want %d", deleted, len(after), len(before))
			}
		})
	}
}

// Rows that cannot be restored stay in the trash with the reason, and are restored when the table takes them again.
func TestRowsThatCannotComeBack(t *testing.T) {
	t.Parallel()
	db := database(t, "SELECT")
	for name, c := range map[string]struct {
		change           string
		existing, failed int64
		reason           string
		mend             string
	}{
		"unchanged":    {},
		"a new column": {change: "ALTER TABLE t ADD added int NOT NULL DEFAULT 7"},
		"a key exists": {
			change: "INSERT INTO t VALUES (2, 'other'), (4, 'other')", existing: 2,
			mend: "DELETE FROM t WHERE word = 'other'",
		},
		"a new NOT NULL": {
			change: "ALTER TABLE t ADD added int NOT NULL", failed: 5, reason: "null value in column",
			mend: "ALTER TABLE t ALTER added DROP NOT NULL",
		},
		"a new constraint": {
			change: "ALTER TABLE t ADD CHECK (id > 4)", failed: 2, reason: "t_id_check",
			mend: "ALTER TABLE t DROP CONSTRAINT t_id_check",
		},
		"a dropped column": {
			change: "ALTER TABLE t DROP word", failed: 4, reason: "has lost word", mend: "ALTER TABLE t ADD word text",
		},
		"a shorter text": {
			change: "ALTER TABLE t ALTER word TYPE varchar(5)", failed: 1, reason: "too long",
			mend: "ALTER TABLE t ALTER word TYPE text",
		},
		"a wider type": {change: "ALTER TABLE t ALTER id TYPE bigint"},
		"a type without a cast": {
			change: "ALTER TABLE t DROP word; ALTER TABLE t ADD word date", failed: 5, reason: "is of type date",
			mend: "ALTER TABLE t DROP word; ALTER TABLE t ADD word text",
		},
		"a trigger": {
			change: `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
				'BEGIN IF NEW.id = 6 THEN RETURN NULL; END IF; RETURN NEW; END';
				CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()`,
			failed: 1, reason: "a trigger of the table suppresses it", mend: "DROP TRIGGER no ON t",
		},
	} {
		schema := strings.ToLower(strings.ReplaceAll(name, " ", "_"))
		do := func(sql string) { db.Do("SET search_path = " + schema + "; " + sql + "; RESET search_path") }
		db.Do("CREATE SCHEMA " + schema)
		do(`CREATE TABLE t (id int PRIMARY KEY, word text);
			INSERT INTO t VALUES (2, 'two'), (4, 'four'), (6, 'the sixth'), (8, NULL), (10, 'ten')`)
		relation := fmt.Sprintf(`"%s"."t"`, schema)
		sweep(t, db, newCan(db), purge.Sweep{Relation: relation, Where: sqlexpr.SQL("true")})
		do(c.change)
		e := entryOf(t, db, relation)
		got := restore(t, db, e)
		if want := 5 - c.existing - c.failed; got.Rows != want || got.Existing != c.existing || got.Failed != c.failed {
			t.Errorf("%s: %+v came back, want %d rows, %d existing, %d failed", name, got, want, c.existing, c.failed)
		}
		if c.reason != "" && (len(got.Reasons) == 0 || !strings.Contains(got.Reasons[0], c.reason)) {
			t.Errorf("%s: the reasons are %q, want %q in one", name, got.Reasons, c.reason)
		}
		if in := db.Int("SELECT count(*) FROM cleanupd_trash." + e.Name); in != c.existing+c.failed {
			t.Errorf("%s: %d rows are in the trash, want %d", name, in, c.existing+c.failed)
		}
		do(c.mend)
		if got := restore(t, db, e); got.Rows != c.existing+c.failed {
			t.Errorf("%s: %+v came back then, want %d rows", name, got, c.existing+c.failed)
		}
		checkWords(t, db, relation)
	}
}

// Between two batches of a restore, its table may change, or be replaced by another one: each batch checks it again.
func TestTableThatChangesBetweenBatches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		fails  string // why the rest cannot come back
	}{
		"a new column":     {"ALTER TABLE t ADD other int DEFAULT 7", ""},
		"a renamed column": {"ALTER TABLE t RENAME word TO other", "has lost word"},
		"dropped":          {"DROP TABLE t", "no longer exists"},
		"renamed":          {"ALTER TABLE t RENAME TO before", "no longer exists"},
		"a view": {
			"ALTER TABLE t RENAME TO before; CREATE VIEW t AS TABLE before; GRANT ALL ON t TO PUBLIC",
			"is no longer a table",
		},
		"a rule": {
			"CREATE TABLE x (LIKE t); CREATE RULE x AS ON INSERT TO t DO INSTEAD INSERT INTO x VALUES (NEW.*)", "a rule of",
		},
		"another role's": {
			"ALTER TABLE t RENAME TO before; CREATE TABLE t (LIKE before); ALTER TABLE t OWNER TO %other; " +
				"GRANT ALL ON t TO PUBLIC", "their table (GRANT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "a renamed column", "dropped", "a rule", "another role's")
			t.Parallel()
			db := database(t, "CREATE TABLE t (id int PRIMARY KEY, word text); "+
				"INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i")
			sweep(t, db, newCan(db), purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")})
			e := entries(t, db)[0]
			l := &ledger{}
			changed := false
			l.settled = func() {
				if !changed {
					changed = true
					db.Superuser(strings.ReplaceAll(c.change, "%other", db.Role("other")))
				}
			}
			r := trash.Restore{Engine: purge.New(purge.Engine{Pool: db.Pool, Ledger: l, Recorder: l}), Entry: e}
			got, err := r.Run(t.Context())
			rest := fmt.Sprint(err, got.Reasons)
			if got.Rows == 0 || (c.fails == "") != (got.Rows == 2000) || !strings.Contains(rest, c.fails) {
				t.Errorf("%+v came back, %v; want %q for the rest", got, err, c.fails)
			}
			if in := db.Int("SELECT count(*) FROM cleanupd_trash." + e.Name); in != 2000-got.Rows {
				t.Errorf("%d rows are in the trash, want %d", in, 2000-got.Rows)
			}
		})
	}
}

// If the application uses the keys of some rows by now, committed or not, these rows stay in the trash, and the others
// are restored.
func TestKeysThatTheApplicationUses(t *testing.T) {
	t.Parallel()
	db := database(t, "CREATE TABLE t (id int PRIMARY KEY, word text); "+
		"INSERT INTO t SELECT i, 'old' FROM generate_series(1, 99) i")
	sweep(t, db, newCan(db), purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")})
	e := entries(t, db)[0]
	db.Do("INSERT INTO t VALUES (7, 'new')")
	tx := db.Hold("INSERT INTO t VALUES (8, 'new')")
	l := &ledger{}
	r := trash.Restore{Engine: purge.New(purge.Engine{
		Pool: db.Pool, Ledger: l, Recorder: l,
		Settings: purge.Settings{LockTimeout: 50 * time.Millisecond},
	}), Entry: e}
	if got, err := r.Run(t.Context()); err != nil || got.Rows != 97 || got.Existing != 1 || got.Failed != 1 {
		t.Errorf("%+v came back while a key was not committed: %v; want 97 rows, one that exists, and one that failed", got,
			err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := restore(t, db, e); got.Rows != 0 || got.Existing != 2 || got.Failed != 0 {
		t.Errorf("%+v came back, want two rows that exist", got)
	}
	if got := db.Strings("SELECT concat_ws(' ', word, count(*)) FROM t GROUP BY word ORDER BY 1"); !slices.Equal(got,
		[]string{"new 2", "old 97"}) {
		t.Errorf("the table has %q", got)
	}
}

// Code that the owner of a table has attached to it runs as the owner, or not at all, when rows go to the trash and
// when rows, tables and partitions are restored.
func TestHostileOwner(t *testing.T) {
	t.Parallel()
	db := database(t, "CREATE TABLE who (what text, name text); GRANT ALL ON who TO PUBLIC")
	service, owner := db.Role("trash_service"), db.Role("trash_owner")
	db.Superuser(fmt.Sprintf(`GRANT %[2]s TO %[1]s; GRANT %[2]s TO %[3]s; ALTER SCHEMA cleanupd_trash OWNER TO %[1]s;
		GRANT USAGE ON SCHEMA cleanupd TO %[1]s; GRANT ALL ON cleanupd.trash TO %[1]s;
		GRANT ALL ON SCHEMA public TO %[1]s, %[2]s`,
		service, owner, campaigndb.Role))
	hostile, as := db.For(owner), db.For(service)
	hostile.Do(`CREATE FUNCTION told(what text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
	IF NOT pg_is_in_recovery() THEN INSERT INTO public.who VALUES (what, current_user); END IF; RETURN true; END $$;
CREATE FUNCTION tell(what text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN public.told(what); END';
CREATE FUNCTION tell(what text, n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	'BEGIN PERFORM public.told(what); RETURN n; END';
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM public.told(TG_ARGV[0]); RETURN NEW; END';
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE DOMAIN told AS int CHECK (tell('a domain') AND VALUE > 0);
CREATE FUNCTION tell(mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM public.told('a cast'); RETURN 'a'; END $$;
CREATE FUNCTION mood(text) RETURNS mood LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM public.told('a cast'); RETURN 'a'; END $$;
CREATE CAST (mood AS text) WITH FUNCTION tell(mood); CREATE CAST (text AS mood) WITH FUNCTION mood(text);
CREATE TABLE t (id int PRIMARY KEY, mood mood, n told); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2);
CREATE TABLE parent (id int) PARTITION BY RANGE (tell('a partition key', id));
CREATE TABLE part PARTITION OF parent FOR VALUES FROM (0) TO (100); INSERT INTO part VALUES (1);
TRUNCATE who; GRANT ALL ON t, parent, part TO PUBLIC`)
	t.Cleanup(func() { db.Superuser("DROP OWNED BY " + owner + " CASCADE") })
	sweep(t, as, newCan(as), purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")})
	e := entries(t, as)[0]
	if err := inTx(t, as, func(tx pgx.Tx) error {
		part := trash.Dropped{Kind: trash.Partition, Name: `"public"."part"`, Rows: 1}
		return newCan(as).Move(t.Context(), tx, "a-task", time.Hour, part)
	}); err != nil {
		t.Fatal(err)
	}
	if called := db.Strings("SELECT DISTINCT concat_ws(' ', what, name) FROM who"); len(called) > 0 {
		t.Errorf("on the way to the trash, these were called: %q", called)
	}
	hostile.Do(`ALTER TABLE t ADD CHECK (tell('a check')), ADD other bool DEFAULT tell('a default'),
	ADD computed bool GENERATED ALWAYS AS (tell('a generated column')) STORED;
CREATE INDEX ON t ((tell('an index'))); CREATE INDEX ON t (id) WHERE tell('a predicate');
CREATE STATISTICS s ON (tell('statistics')), id FROM t;
CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tell('a trigger');
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	EXECUTE FUNCTION tell('a deferred trigger');
CREATE RULE r AS ON INSERT TO t DO ALSO SELECT tell('a rule');
ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (tell('a policy')) WITH CHECK (tell('a policy'));
TRUNCATE who`)
	if got := restore(t, as, e); got.Rows != 2 {
		t.Errorf("%+v came back, want 2 rows", got)
	}
	if err := inTx(t, as, func(tx pgx.Tx) error {
		return trash.Return(t.Context(), tx, entries(t, as)[0], "")
	}); err != nil {
		t.Error(err)
	}
	called := db.Strings("SELECT DISTINCT what FROM who ORDER BY 1")
	want := []string{
		"a check", "a deferred trigger", "a default", "a domain", "a generated column", "a partition key", "a policy",
		"a predicate", "a rule", "a trigger", "an index",
	}
	for _, what := range want {
		if !slices.Contains(called, what) {
			t.Errorf("%s was not called, so that this tests nothing of it; %q were", what, called)
		}
	}
	const asOthers = "SELECT DISTINCT concat_ws(' ', what, name) FROM who WHERE name <> $1"
	if others := db.Strings(asOthers, owner); len(others) > 0 {
		t.Errorf("these were called as another role than the owner: %q", others)
	}
}

func checkWords(t *testing.T, db *pgtest.DB, table string) {
	t.Helper()
	want := []string{"2 two", "4 four", "6 the sixth", "8", "10 ten"}
	got := db.Strings("SELECT concat_ws(' ', t.id, to_jsonb(t) ->> 'word') FROM " + table + " AS t ORDER BY t.id")
	if len(got) == 5 && !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}
}

func inTx(t *testing.T, db *pgtest.DB, do func(tx pgx.Tx) error) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), db.Pool, do)
}

// facts describes relations of the schema public with what belongs to them.
const facts = `SELECT concat_ws(' ', c.relkind, c.relname, pg_get_userbyid(c.relowner), c.relacl::text,
  pg_get_expr(c.relpartbound, c.oid),
  (SELECT string_agg(inhparent::regclass::text, ' ') FROM pg_inherits WHERE inhrelid = c.oid),
  CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END, c.reloptions::text,
  (SELECT string_agg(pg_get_constraintdef(k.oid), '; ' ORDER BY k.conname) FROM pg_constraint k
    WHERE k.conrelid = c.oid),
  (SELECT string_agg(pg_get_indexdef(i.indexrelid), '; ' ORDER BY i.indexrelid::regclass::text) FROM pg_index i
    WHERE i.indrelid = c.oid),
  (SELECT string_agg(pg_get_expr(d.adbin, d.adrelid), '; ') FROM pg_attrdef d WHERE d.adrelid = c.oid))
FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'S') ORDER BY c.relname`

// Tables, partitions and views are restored with all that belongs to them. Until then, their names are free.
func TestDroppedRelations(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1);
CREATE TABLE wkf5_1 (id serial PRIMARY KEY, parent int REFERENCES parent, name text DEFAULT 'x', CHECK (id < 100));
CREATE INDEX wkf5_1_name ON wkf5_1 (lower(name)); INSERT INTO wkf5_1 (parent) VALUES (1), (1);
CREATE VIEW wkf5_2 WITH (security_barrier) AS SELECT id AS number, name FROM wkf5_1 WHERE id > 1;
CREATE TABLE log (at timestamptz, parent int REFERENCES parent, PRIMARY KEY (at)) PARTITION BY RANGE (at);
CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM ('2020-01-01Z') TO ('2021-01-01Z');
ALTER TABLE log_1 ADD CONSTRAINT of_its_own FOREIGN KEY (parent) REFERENCES parent;
CREATE TABLE base (id int, name text); CREATE TABLE wkf5_3 (CHECK (id > 0)) INHERITS (base);
INSERT INTO wkf5_3 VALUES (3);
CREATE TABLE log_2 PARTITION OF log DEFAULT; INSERT INTO log VALUES ('2020-05-01Z', 1), ('2021-05-01Z', 1);
GRANT SELECT ON wkf5_1, wkf5_2 TO PUBLIC`)
	other := db.Role("trash_other")
	db.Superuser(fmt.Sprintf(`GRANT %[1]s TO %[2]s; GRANT ALL ON SCHEMA public TO %[1]s; ALTER TABLE wkf5_3 OWNER TO %[1]s;
		ALTER TABLE base OWNER TO %[1]s`, other, campaigndb.Role))
	before, rows := db.Strings(facts), db.Strings("SELECT wkf5_1::text FROM wkf5_1")
	can := newCan(db)
	move := func(kind trash.Kind, name string) error {
		var rows int64
		if kind != trash.View {
			rows = db.Int("SELECT count(*) FROM " + name)
		}
		return inTx(t, db, func(tx pgx.Tx) error {
			return can.Move(t.Context(), tx, "a-task", time.Hour, trash.Dropped{Kind: kind, Name: name, Rows: rows})
		})
	}
	if err := move(trash.Table, `"public"."wkf5_1"`); !sqlstate.Is(err, pgerrcode.DependentObjectsStillExist) {
		t.Errorf("a table with a view of it moves to the trash: %v", err)
	}
	for _, m := range []struct {
		kind trash.Kind
		name string
	}{
		{trash.View, `"public"."wkf5_2"`},
		{trash.Table, `"public"."wkf5_1"`},
		{trash.Partition, `"public"."log_1"`},
		{trash.Table, `"public"."wkf5_3"`},
	} {
		if err := move(m.kind, m.name); err != nil {
			t.Fatal(err)
		}
	}
	const moved = `SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
		AND relname ~ 'wkf|log_1'`
	if left := db.Strings(moved); len(left) > 0 {
		t.Errorf("%q are still there", left)
	}
	if left := db.Int("SELECT count(*) FROM base"); left != 0 {
		t.Errorf("%d rows in the trash are read by the table from which theirs inherits", left)
	}
	db.Do("DELETE FROM log; DELETE FROM parent; INSERT INTO parent VALUES (1)") // nothing in the trash refers to it
	again := `CREATE TABLE wkf5_1 (id serial PRIMARY KEY, name text); CREATE INDEX wkf5_1_name ON wkf5_1 (lower(name))`
	db.Do(again)
	if err := move(trash.Table, `"public"."wkf5_1"`); err != nil { // its names are in the trash already
		t.Fatal(err)
	}
	all := entries(t, db)
	if all[len(all)-1].Rows != 0 || all[len(all)-2].Rows != 2 {
		t.Errorf("the entries are %+v", all)
	}
	db.Do("CREATE TABLE wkf5_1 (i int)")
	back := func(e trash.Entry) error {
		return inTx(t, db, func(tx pgx.Tx) error { return trash.Return(t.Context(), tx, e, "") })
	}
	if err := back(all[3]); !sqlstate.Is(err, pgerrcode.DuplicateTable) {
		t.Errorf("a table returns although its name is taken: %v", err)
	}
	db.Do("DROP TABLE wkf5_1")
	for _, e := range all[1:] { // not the second table of that name
		if err := back(e); err != nil {
			t.Fatal(err)
		}
	}
	if after := db.Strings(facts); !slices.Equal(after, before) {
		t.Errorf("the relations are\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	if after := db.Strings("SELECT wkf5_1::text FROM wkf5_1"); !slices.Equal(after, rows) {
		t.Errorf("the rows are %q, want %q", after, rows)
	}
	if err := move(trash.View, `"public"."wkf5_2"`); err != nil {
		t.Fatal(err)
	}
	db.Do("CREATE VIEW wkf5_2 AS SELECT 'a secret' AS secret; CREATE SCHEMA restored")
	if err := inTx(t, db, func(tx pgx.Tx) error {
		return trash.Return(t.Context(), tx, entries(t, db)[0], "restored")
	}); err != nil {
		t.Fatal(err)
	}
	if granted := db.Int("SELECT count(*) FROM pg_class WHERE relname = 'wkf5_2' AND relacl IS NOT NULL"); granted != 0 {
		t.Error("a view that comes back into another schema grants rights on the one that has its name")
	}
	drop := func(tx pgx.Tx) error { _, err := trash.Drop(t.Context(), tx, all[0], "rows_expired"); return err }
	if err := inTx(t, db, drop); err != nil {
		t.Fatal(err)
	}
	const inTrash = "SELECT relname::text FROM pg_class WHERE relnamespace = 'cleanupd_trash'::regnamespace"
	if left := db.Strings(inTrash); len(left) > 0 {
		t.Errorf("%q are left in the trash", left)
	}
}

// Rows are purged by values, compared by the type of the column, and from all partitions below a table.
func TestPurge(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE t (id int, code char(10), at date, mood text); CREATE TYPE mood AS ENUM ('a', 'b');
ALTER TABLE t ADD how mood DEFAULT 'a';
INSERT INTO t SELECT i, 'c' || i, '2026-01-01', 'x' FROM generate_series(1, 4) i;
CREATE TABLE top (id int, at date) PARTITION BY LIST (id); CREATE TABLE mid PARTITION OF top FOR VALUES IN (1)
	PARTITION BY RANGE (at); CREATE TABLE low PARTITION OF mid DEFAULT; INSERT INTO top VALUES (1, '2026-01-01')`)
	sweep(t, db, newCan(db), purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")})
	e := entries(t, db)[0]
	for _, c := range []struct {
		values map[string]string
		want   int64
	}{
		{map[string]string{"id": "01"}, 1},
		{map[string]string{"code": "c2", "how": "a"}, 1},
		{map[string]string{"at": "2026-01-01", "id": "3", "mood": "x"}, 1},
		{map[string]string{"how": "b"}, 0},
		{map[string]string{"ID": "4"}, 0},
	} {
		var got trash.Purged
		if err := inTx(t, db, func(tx pgx.Tx) (err error) {
			got, err = e.Purge(t.Context(), tx, c.values, nil)
			return err
		}); err != nil || got.Rows != c.want || got.Gone {
			t.Errorf("purging %v: %+v, %v; want %d rows", c.values, got, err, c.want)
		}
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		_, err := e.Purge(t.Context(), tx, map[string]string{"id": "four"}, nil)
		return err
	}); err == nil || !strings.Contains(err.Error(), "four") {
		t.Errorf("purging by a value of another type: %v", err)
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		low := trash.Dropped{Kind: trash.Partition, Name: `"public"."low"`}
		return newCan(db).Move(t.Context(), tx, "a-task", time.Hour, low)
	}); err != nil {
		t.Fatal(err)
	}
	for name, is := range map[string]bool{
		"low": true, "mid": true, "public.top": true, `"public"."top"`: true, `public."top"`: true, `"low"`: true,
		"Public.Low": false, `"Low"`: false, "other.low": false, "lo": false,
	} {
		if e := entries(t, db)[0]; e.Of(name) != is {
			t.Errorf("%s has the entry of %s: %t, want %t", name, e.Root, !is, is)
		}
	}
}

// With a row go those that refer to it by foreign keys of any kind, directly or through others, each once.
func TestPurgeWithReferringRows(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE loan (id int PRIMARY KEY, person int);
CREATE TABLE fine (id int PRIMARY KEY, loan int REFERENCES loan ON DELETE CASCADE, part_of int REFERENCES fine);
CREATE TABLE payment (fine int REFERENCES fine ON DELETE CASCADE, loan int REFERENCES loan ON DELETE CASCADE);
CREATE INDEX ON fine (loan); CREATE INDEX ON fine (part_of); CREATE INDEX ON payment (fine);
CREATE INDEX ON payment (loan);
INSERT INTO loan SELECT i, i % 10 FROM generate_series(1, 100) i;
INSERT INTO fine SELECT i, i, CASE WHEN i % 10 = 7 THEN i - 1 END FROM generate_series(1, 100) i;
INSERT INTO payment SELECT i, i FROM generate_series(1, 100) i; INSERT INTO payment SELECT NULL, id FROM loan`)
	tables := []string{`"public"."loan"`, `"public"."fine"`, `"public"."payment"`}
	sweep(t, db, newCan(db), purge.Sweep{
		Relation: tables[0], Where: sqlexpr.SQL("true"),
		Cascade: &purge.Cascade{Tables: tables, Keys: []purge.ForeignKey{
			key(0, 1, "loan"), key(1, 2, "fine"), key(0, 2, "loan"),
		}},
	})
	all := entries(t, db)
	i := slices.IndexFunc(all, func(e trash.Entry) bool { return e.Root == tables[0] })
	// Other runs delete fines of the loan 6, payments of these, and fines of another loan that has the key 16.
	db.Do("ALTER TABLE fine DROP CONSTRAINT fine_loan_fkey; INSERT INTO fine VALUES (201, 6), (202, 6), (203, 7); " +
		"ALTER TABLE fine ADD FOREIGN KEY (loan) REFERENCES loan ON DELETE CASCADE NOT VALID; " +
		"INSERT INTO payment VALUES (201), (203)")
	sweep(t, db, newCan(db), purge.Sweep{
		Relation: tables[1], Where: sqlexpr.SQL("true"),
		Cascade: &purge.Cascade{Tables: tables[1:], Keys: []purge.ForeignKey{key(0, 1, "fine")}},
	})
	db.Do("INSERT INTO loan VALUES (16, 1); INSERT INTO fine VALUES (216, 16)")
	sweep(t, db, newCan(db), purge.Sweep{
		Relation: tables[0], Where: sqlexpr.SQL("true"),
		Cascade: &purge.Cascade{Tables: tables[:2], Keys: []purge.ForeignKey{key(0, 1, "loan")}},
	})
	others, err := all[i].Referring(t.Context(), db, all)
	if err != nil || len(others) != 2 {
		t.Fatalf("%d entries have rows that refer to loans, want 2: %v", len(others), err)
	}
	var got trash.Purged
	if err := inTx(t, db, func(tx pgx.Tx) (err error) {
		got, err = all[i].Purge(t.Context(), tx, map[string]string{"person": "6"}, others)
		return err
	}); err != nil || got.Rows != 60 || len(got.Tables) != 3 {
		t.Errorf("purging a person: %+v, %v; want 10 loans, 20 fines and 30 payments", got, err)
	}
	if want := map[string]int64{tables[1]: 2}; !maps.Equal(got.Left, want) {
		t.Errorf("of other runs, %v refer to them, want %v", got.Left, want)
	}
	if left := db.Int("SELECT sum(rows_trashed - rows_purged) FROM cleanupd.trash"); left != 340+5+2 {
		t.Errorf("the entries count %d rows, want 347", left)
	}
}

// Another role's table is filled as its owner, whose triggers and constraints must not run with the service's rights.
// Its rows are not deleted with undo if they have triggers, since the owner has no right to the trash.
func TestTableOfAnotherRole(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2);
CREATE TABLE who (name text); GRANT ALL ON t, who TO PUBLIC`)
	service := db.Role("trash_service")
	member := func(grant string) { db.Superuser(fmt.Sprintf(grant, campaigndb.Role, service)) }
	member("GRANT %s TO %s")
	db.Superuser(fmt.Sprintf(`ALTER SCHEMA cleanupd_trash OWNER TO %[1]s; GRANT USAGE ON SCHEMA cleanupd TO %[1]s;
		GRANT ALL ON cleanupd.trash TO %[1]s`, service))
	as := db.For(service)
	s := purge.Sweep{Relation: `"public"."t"`, Where: sqlexpr.SQL("true")}
	sweep(t, as, newCan(as), s)
	db.Do(`CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO who VALUES (current_user); RETURN NEW; END';
		CREATE TRIGGER look AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION look()`)
	e := entries(t, as)[0]
	member("REVOKE %s FROM %s")
	l := &ledger{}
	r := trash.Restore{Engine: purge.New(purge.Engine{Pool: as.Pool, Ledger: l, Recorder: l}), Entry: e}
	if _, err := r.Run(t.Context()); !errors.Is(err, trash.ErrTarget) {
		t.Errorf("a restore as no member of the owner ended with %v", err)
	}
	member("GRANT %s TO %s")
	if got := restore(t, as, e); got.Rows != 2 {
		t.Errorf("%+v came back, want 2 rows", got)
	}
	if got := db.Strings("SELECT DISTINCT name FROM who"); !slices.Equal(got, []string{campaigndb.Role}) {
		t.Errorf("the trigger ran as %q, want the owner of the table", got)
	}
	if got := db.Strings("SELECT nspacl::text FROM pg_namespace WHERE nspname = 'cleanupd_trash' AND nspacl::text ~ $1",
		campaigndb.Role); len(got) > 0 {
		t.Errorf("the owner keeps rights on the trash: %q", got)
	}
	db.Do("CREATE TRIGGER gone BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION look()")
	s.Unit, s.Name, s.Limit, s.Root = "1", s.Relation, 500, s.Relation
	if err := newCan(as).Put(t.Context(), "a-task", time.Hour, &s); err != nil {
		t.Fatal(err)
	}
	_, err := purge.New(purge.Engine{Pool: as.Pool, Ledger: l, Recorder: l}).Sweep(t.Context(), s, purge.Cursor{})
	if refused := (*failure.Refusal)(nil); !errors.As(err, &refused) || refused.Reason != failure.ReasonNotUndoable {
		t.Errorf("a table with triggers of another role: %v, want it to be refused", err)
	}
}

// A row that refers to one that is still in the trash stays, whoever owns the tables: a row that has the key of its
// parent now is another one.
func TestRowsOfOthersInTheTrash(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE visit (id numeric PRIMARY KEY);
CREATE TABLE finding (id int PRIMARY KEY, visit numeric REFERENCES visit ON DELETE CASCADE);
CREATE INDEX ON finding (visit);
INSERT INTO visit VALUES (1), (2), (3); INSERT INTO finding VALUES (10, 1.0), (20, 2.0), (30, 3), (40, NULL);
GRANT ALL ON visit, finding TO PUBLIC`)
	service := db.Role("trash_service")
	db.Superuser(fmt.Sprintf(`GRANT %[2]s TO %[1]s; ALTER SCHEMA cleanupd_trash OWNER TO %[1]s;
		GRANT USAGE ON SCHEMA cleanupd TO %[1]s; GRANT ALL ON cleanupd.trash TO %[1]s`, service, campaigndb.Role))
	as := db.For(service)
	can := newCan(as)
	sweep(t, as, can, purge.Sweep{Relation: `"public"."visit"`, Where: sqlexpr.SQL("true"), Cascade: &purge.Cascade{
		Tables: []string{`"public"."visit"`, `"public"."finding"`}, Keys: []purge.ForeignKey{key(0, 1, "visit")},
	}})
	sweep(t, as, can, purge.Sweep{Relation: `"public"."finding"`, Where: sqlexpr.SQL("true")})
	visits, findings := entries(t, as)[0], entries(t, as)[1]
	db.Do("INSERT INTO visit VALUES (2)")
	back := func(e trash.Entry, want trash.Restored, existing ...int64) {
		t.Helper()
		l := &ledger{}
		r := trash.Restore{
			Engine: purge.New(purge.Engine{Pool: as.Pool, Ledger: l, Recorder: l}), Entry: e, Existing: existing,
		}
		if got, err := r.Run(t.Context()); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v came back of %s, %v; want %+v", got, e.Root, err, want)
		}
	}
	back(findings, trash.Restored{Rows: 1, Failed: 3, Reasons: []string{
		`it refers to a row of "public"."visit" that is still in the trash: restore that first`,
	}})
	back(visits, trash.Restored{Rows: 2, Existing: 1})
	back(findings, trash.Restored{Rows: 2, Failed: 1, Reasons: []string{
		`it refers to a row of "public"."visit" that stays in the trash, because its key exists again`,
	}}, visits.ID)
	db.Do("DELETE FROM visit WHERE id = 2")
	back(visits, trash.Restored{Rows: 1})
	back(findings, trash.Restored{Rows: 1})
}
