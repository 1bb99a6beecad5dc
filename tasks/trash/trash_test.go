package trash_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// ledger counts what goes to the trash as the service does, in the transaction of the batch.
type ledger struct{ batches []purge.Delta }

func (l *ledger) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (func(error) error, error) {
	for _, t := range d.Trashed {
		b.Queue("UPDATE cleanupd.trash SET rows_trashed = rows_trashed + $2 WHERE id = $1", t.Entry, t.Rows)
	}
	return func(err error) error { l.batches = append(l.batches, d); return err }, nil
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
	return db
}

// sweep deletes the rows of a table that match a condition, by batches of up to limit rows, with a trash.
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

// Rows of three levels go to the trash in the statement that deletes the first, each once, and the entries count them.
func TestCascades(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE orders (id int PRIMARY KEY, old bool);
CREATE TABLE bill (id int PRIMARY KEY, orders int REFERENCES orders ON DELETE CASCADE);
CREATE TABLE line (id int PRIMARY KEY, orders int REFERENCES orders ON DELETE CASCADE, bill int REFERENCES bill ON DELETE CASCADE);
CREATE TABLE note (id int PRIMARY KEY, line int REFERENCES line ON DELETE CASCADE, word text);
CREATE INDEX ON bill (orders); CREATE INDEX ON line (orders); CREATE INDEX ON line (bill); CREATE INDEX ON note (line);
INSERT INTO orders SELECT i, i % 2 = 0 FROM generate_series(1, 2000) i;
INSERT INTO bill SELECT i, i FROM generate_series(1, 2000) i;
INSERT INTO line SELECT i, 1 + i % 2000, 1 + (i * 7) % 2000 FROM generate_series(1, 6000) i;
INSERT INTO note SELECT i, 1 + i % 6000, md5(i::text) FROM generate_series(1, 9000) i;
CREATE TABLE before AS SELECT 'orders' AS t, orders::text AS r FROM orders UNION ALL SELECT 'bill', bill::text FROM bill
	UNION ALL SELECT 'line', line::text FROM line UNION ALL SELECT 'note', note::text FROM note`)
	tables := []string{`"public"."orders"`, `"public"."bill"`, `"public"."line"`, `"public"."note"`}
	can := &trash.Can{Pool: db.Pool, Run: uuid.New()}
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
	for _, e := range db.Strings("SELECT concat_ws(' ', name, replace(split_part(root, '.', 2), '\"', '')) FROM cleanupd.trash") {
		var name, table string
		name, table = e[:slices.Index([]byte(e), ' ')], e[slices.Index([]byte(e), ' ')+1:]
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
}
