package purge_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// rows creates a table t of n narrow rows, every second one obsolete.
func rows(t *testing.T, n int) *pgtest.DB {
	t.Helper()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE t (id int PRIMARY KEY, old bool NOT NULL)")
	db.Do("INSERT INTO t SELECT i, i % 2 = 0 FROM generate_series(1, $1::int) i", n)
	return db
}

var obsolete = purge.Sweep{
	Unit:     "1",
	Name:     "t",
	Relation: `"public"."t"`,
	Root:     `"public"."t"`,
	Where:    sqlexpr.SQL("old"),
	Limit:    500,
}

func TestSweepDeletesMatchingRowsInBoundedBatches(t *testing.T) {
	t.Parallel()
	db := rows(t, 100_000) // 226 rows a block: one window holds many times the limit
	e, a := engine(db)
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 50_000 || a.biggest() > 500 {
		t.Errorf("deleted %d rows, at most %d at once; want 50000, at most 500", a.deleted(), a.biggest())
	}
	if !slices.ContainsFunc(a.batches, func(d purge.Delta) bool { return d.Statements >= 4 && d.Deleted > 500 }) {
		t.Error("no batch had several statements")
	}
	if left := db.Int("SELECT count(*) FROM t"); left != 50_000 || db.Int("SELECT count(*) FROM t WHERE old") != 0 {
		t.Errorf("%d rows remain", left)
	}
	a.batches = nil
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil || a.deleted() != 0 {
		t.Errorf("a second sweep deleted %d rows (%v)", a.deleted(), err)
	}
}

// Batches commit as the settings say; a durable engine commits as the server does.
func TestSynchronousCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		setting string
		durable bool
		want    string
	}{{"", false, "off"}, {"off", false, "off"}, {"local", false, "local"}, {"on", false, "on"}, {"off", true, "on"}} {
		db := rows(t, 10)
		db.Do(`CREATE TABLE seen (setting text);
			CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
				INSERT INTO seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END';
			CREATE TRIGGER look AFTER DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION look()`)
		db.Do(`DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET synchronous_commit = on', ` +
			`current_database()); END $$`)
		db.Reset()
		e, _ := engine(db)
		e.SynchronousCommit, e.Durable = c.setting, c.durable
		if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
			t.Fatal(err)
		}
		if got := db.Strings("SELECT DISTINCT setting FROM seen"); !slices.Equal(got, []string{c.want}) {
			t.Errorf("with %q, durable %t, batches commit with %q, want %q", c.setting, c.durable, got, c.want)
		}
	}
}

func TestSweepVisitsEveryWindowOnce(t *testing.T) {
	t.Parallel()
	db := rows(t, 100_000)
	db.Do("UPDATE t SET old = id % 1000 = 0; CREATE INDEX ON t (old)") // few match: no window is repeated
	e, a := engine(db)
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil || a.deleted() != 100 {
		t.Fatalf("deleted %d rows (%v), want 100", a.deleted(), err)
	}
	const window = 32 // at least
	blocks := db.Int("SELECT pg_relation_size('t') / 8192")
	if limit := (blocks + window - 1) / window; int64(len(a.batches)) > limit {
		t.Errorf("%d batches for %d blocks, want at most %d", len(a.batches), blocks, limit)
	}
}

func TestSweepOfSingleRows(t *testing.T) {
	t.Parallel()
	db := rows(t, 100)
	e, a := engine(db)
	e.MaxRows = 1
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 50 || a.biggest() != 1 {
		t.Errorf("deleted %d rows, %d at once", a.deleted(), a.biggest())
	}
}

func TestSweepGoesOnFromItsCursor(t *testing.T) {
	t.Parallel()
	db := rows(t, 100_000)
	e, a := engine(db)
	stop := errors.New("stop")
	batches := 0
	a.before = func(*pgx.Batch) error {
		if batches++; batches > 10 {
			return stop
		}
		return nil
	}
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	if gone := 50_000 - db.Int("SELECT count(*) FROM t WHERE old"); gone != a.deleted() {
		t.Errorf("%d rows were deleted, %d are in the ledger", gone, a.deleted())
	}
	last := a.batches[len(a.batches)-1].Cursor
	if last.Place == 0 {
		t.Fatal("the cursor did not move")
	}
	// Blocks below the cursor are not read again.
	db.Do("UPDATE t SET old = true WHERE ctid < '(1,0)' AND NOT old")
	a.before = nil
	if _, err := e.Sweep(t.Context(), obsolete, last); err != nil {
		t.Fatal(err)
	}
	if db.Int("SELECT count(*) FROM t WHERE old AND ctid >= '(1,0)'") != 0 {
		t.Error("obsolete rows remain above the cursor")
	}
	// Another sweep's cursor is ignored.
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{Unit: "2", Place: 1_000}); err != nil {
		t.Fatal(err)
	}
	if db.Int("SELECT count(*) FROM t WHERE old") != 0 {
		t.Error("a sweep began in the middle with another sweep's cursor")
	}
}

func TestSweepStartsOverAfterARewrite(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]int64{"shorter than the part done": 450, "longer": 300} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startOverAfterARewrite(t, place)
		})
	}
}

// startOverAfterARewrite continues a sweep at a position from before the table was rewritten.
func startOverAfterARewrite(t *testing.T, place int64) {
	t.Helper()
	db := rows(t, 100_000)
	e, a := engine(db)
	e.MaxRows = 10_000
	stop := errors.New("stop")
	a.before = func(*pgx.Batch) error {
		if a.deleted() > 0 {
			return stop
		}
		return nil
	}
	s := obsolete
	s.Limit = 100_000
	if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	cursor := a.batches[0].Cursor
	cursor.Place = place // the greater part is done
	db.Do("INSERT INTO t SELECT i, true FROM generate_series(200001, 200100) i")
	db.Do("CLUSTER t USING t_pkey")
	if blocks := db.Int("SELECT pg_relation_size('t') / 8192"); blocks <= 300 || blocks >= 450 {
		t.Fatalf("the table has %d blocks", blocks)
	}
	a.before = nil
	if _, err := e.Sweep(t.Context(), s, cursor); err != nil {
		t.Fatal(err)
	}
	if left := db.Int("SELECT count(*) FROM t WHERE old"); left != 0 {
		t.Errorf("%d obsolete rows remain", left)
	}
}

func TestSweepReadsTheEndOfTheTableAgain(t *testing.T) {
	t.Parallel()
	db := rows(t, 1_000)
	e, a := engine(db)
	a.before = func(*pgx.Batch) error { // the application inserts more
		if len(a.batches) == 0 {
			db.Do("INSERT INTO t SELECT i, true FROM generate_series(10001, 12000) i")
		}
		return nil
	}
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if left := db.Int("SELECT count(*) FROM t WHERE old"); left != 0 {
		t.Errorf("%d obsolete rows remain", left)
	}
}

func TestSweepLeavesLockedRowsAndCountsThem(t *testing.T) {
	t.Parallel()
	db := rows(t, 5_000)
	db.Hold("SELECT FROM t WHERE id IN (2, 4, 5) FOR UPDATE")
	e, a := engine(db)
	e.LockTimeout = 20 * time.Millisecond
	result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	if result.Locked != 2 || result.TableLocked || a.deleted() != 2_498 {
		t.Errorf("deleted %d, result %+v; want 2498 and 2 locked", a.deleted(), result)
	}
	if left := db.Strings("SELECT id::text FROM t WHERE old ORDER BY id"); !slices.Equal(left, []string{"2", "4"}) {
		t.Errorf("%v remain", left)
	}
}

// A role that may delete rows but not lock them also leaves those that another session has locked or is writing.
func TestSweepLeavesLockedRowsWithoutTheRightToLock(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{
		"SELECT FROM t WHERE id IN (2, 4, 5) FOR UPDATE", "SELECT FROM t WHERE id IN (2, 4, 5) FOR KEY SHARE",
		"UPDATE t SET old = old WHERE id IN (2, 4, 5)", "DELETE FROM t WHERE id IN (2, 4, 5)",
	} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			db := rows(t, 5_000)
			role := db.Role("cleaner")
			db.Do("GRANT SELECT, DELETE ON t TO " + role)
			db.Hold(lock)
			e, a := engine(db.For(role))
			e.LockTimeout = 20 * time.Millisecond
			result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{})
			if err != nil || result.Locked != 2 || result.TableLocked || a.deleted() != 2_498 {
				t.Errorf("deleted %d, result %+v, error %v; want 2498 and 2 locked", a.deleted(), result, err)
			}
		})
	}
}

func TestSweepSkipsALockedTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"SHARE", "ACCESS EXCLUSIVE"} { // which allows to read it, or not
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := rows(t, 100)
			db.Hold("LOCK TABLE t IN " + mode + " MODE")
			e, a := engine(db)
			e.LockTimeout = 20 * time.Millisecond
			result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{})
			if err != nil || !result.TableLocked || a.deleted() != 0 {
				t.Errorf("deleted %d, result %+v, error %v", a.deleted(), result, err)
			}
		})
	}
}

func TestSweepJudgesAChangedRowAgain(t *testing.T) {
	t.Parallel()
	db := rows(t, 1_000)
	tx := db.Hold("UPDATE t SET old = false WHERE id = 2")
	e, a := engine(db)
	e.MaxRows = 100 // the changed row is among the first hundred: the window has more than they
	done := make(chan error, 1)
	go func() { _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); done <- err }()
	waiting := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	db.Until(waiting)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 499 || db.Int("SELECT count(*) FROM t WHERE id = 2") != 1 ||
		db.Int("SELECT count(*) FROM t WHERE old") != 0 {
		t.Errorf("deleted %d rows, want 499: all but the one that became young", a.deleted())
	}
}

func TestSweepHalvesABatchThatTakesTooLong(t *testing.T) {
	t.Parallel()
	db := rows(t, 200)
	db.Do(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END';
		CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow()`)
	e, a := engine(db)
	e.StatementTimeout = 800 * time.Millisecond // a hundred rows take a second
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 100 || len(a.warned) == 0 || !strings.Contains(a.warned[0], "hit the statement timeout") {
		t.Errorf("deleted %d rows, warnings %q", a.deleted(), a.warned)
	}
}

// If a single row takes longer than the timeout, the error names a trigger, or the index that a foreign key lacks.
func TestSweepOfARowThatTakesTooLong(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const sleeps = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(10); RETURN " +
		"OLD; END'; "
	for name, c := range map[string]struct{ setup, where, hint string }{
		"a trigger": {
			sleeps + "CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow()",
			"",
			"look for a slow trigger:",
		},
		"a foreign key": {
			sleeps + "ALTER TABLE t ADD UNIQUE (id); CREATE TABLE child (parent int REFERENCES t (id) " +
				"ON DELETE CASCADE); INSERT INTO child SELECT id FROM t; CREATE TRIGGER slow BEFORE DELETE ON child " +
				"FOR " +
				"EACH ROW EXECUTE FUNCTION slow()",
			"",
			"an index on child (parent):",
		},
		"the condition": {"", " AND pg_sleep(10) IS NOT NULL", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := rows(t, 10)
			db.Do(c.setup)
			e, _ := engine(db)
			e.StatementTimeout = 500 * time.Millisecond // other statements of a sweep are faster
			s := obsolete
			s.Where = sqlexpr.Format("%s%s", s.Where, c.where)
			_, err := e.Sweep(t.Context(), s, purge.Cursor{})
			if !sqlstate.Is(err, pgerrcode.QueryCanceled) ||
				strings.Contains(err.Error(), "look for") != (c.hint != "") ||
				!strings.Contains(err.Error(), c.hint) {
				t.Errorf("the error is: %v", err)
			}
		})
	}
}

// The ledger and the latency to the server, which cost as much with few rows, do not make batches smaller.
func TestSweepWithinATarget(t *testing.T) {
	t.Parallel()
	const blocks = 512
	slow := func(b *pgx.Batch) error {
		b.Queue("SELECT pg_sleep(0.03)")
		return nil
	}
	for _, c := range []struct {
		name    string
		latency time.Duration
		before  func(b *pgx.Batch) error
	}{{"a slow ledger", 0, slow}, {"a server far away", 15 * time.Millisecond, nil}} {
		for _, triggers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, triggers=%t", c.name, triggers), func(t *testing.T) {
				t.Parallel()
				db := pgtest.Empty(t)
				fillBlocks(db, blocks)
				if triggers {
					db.Do(
						"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; CREATE " +
							"TRIGGER f BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()",
					)
				}
				network := badnet.New(t, db.URL(), c.latency)
				pool, err := pgxpool.New(t.Context(), network.URL(db.URL()))
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				e, a := engine(db)
				e.Pool, e.Target, a.before = pool, 20*time.Millisecond, c.before
				if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
					t.Fatal(err)
				}
				if a.deleted() != 2*blocks || len(a.batches) > blocks/8 {
					t.Errorf("deleted %d rows in %d batches", a.deleted(), len(a.batches))
				}
			})
		}
	}
}

// The fixed cost of a statement does not make batches smaller, even if it exceeds the target.
func TestSweepOfSlowStatements(t *testing.T) {
	t.Parallel()
	db := rows(t, 4_000)
	db.Do(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.06); RETURN NULL; END';
		CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	e, a := engine(db)
	e.Target = 20 * time.Millisecond
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 2_000 || len(a.batches) > 100 {
		t.Errorf("deleted %d rows in %d batches", a.deleted(), len(a.batches))
	}
}

func TestSweepEndsWhenATriggerSuppressesDeletions(t *testing.T) {
	t.Parallel()
	db := rows(t, 2_000)
	db.Do(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()`)
	e, a := engine(db)
	result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{})
	if err != nil || a.deleted() != 0 || result.Suppressed == 0 {
		t.Errorf("deleted %d rows, result %+v, error %v", a.deleted(), result, err)
	}
}

// A DO INSTEAD rule suppresses the deletion, since its effect is unknown. Another rule does not.
func TestSweepWithADoInsteadRule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule                string
		set                 []purge.Assignment
		changed, suppressed int64
	}{
		"nothing instead": {"ON DELETE TO t DO INSTEAD NOTHING", nil, 0, 5},
		"an update instead, of some": {
			"ON DELETE TO t WHERE old.id > 4 DO INSTEAD UPDATE t SET old = false WHERE id = old.id", nil, 0, 5,
		},
		"a rule of updates": {"ON UPDATE TO t DO INSTEAD NOTHING", nil, 5, 0},
		"nothing instead of updates": {
			"ON UPDATE TO t DO INSTEAD NOTHING",
			[]purge.Assignment{{Column: "old", Value: sqlexpr.SQL("false")}},
			0,
			5,
		},
		"something else, of deletion": {"ON DELETE TO t DO ALSO NOTHING", nil, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := rows(t, 10)
			db.Do("CREATE RULE r AS " + test.rule)
			e, a := engine(db)
			s := obsolete
			s.Set = test.set
			result, err := e.Sweep(t.Context(), s, purge.Cursor{})
			if err != nil || result.Suppressed != test.suppressed ||
				int64(db.Int("SELECT count(*) FROM t WHERE old")) != 5-test.changed ||
				len(a.warned) > 0 {
				t.Errorf("result %+v, error %v, %d obsolete rows, warned %q", result, err,
					db.Int("SELECT count(*) FROM t WHERE old"), a.warned)
			}
		})
	}
}

func TestSweepRetriesADeadlock(t *testing.T) {
	t.Parallel()
	db := rows(t, 10)
	e, a := engine(db)
	failures := 0
	a.before = func(b *pgx.Batch) error {
		if failures++; failures <= 2 {
			b.Queue("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$")
		}
		return nil
	}
	if _, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil || a.deleted() != 5 {
		t.Errorf("deleted %d rows (%v)", a.deleted(), err)
	}
}

func TestPairedRowsAreDeletedWithTheirRows(t *testing.T) {
	t.Parallel()
	for _, locked := range []bool{false, true} {
		t.Run(fmt.Sprintf("locked=%t", locked), func(t *testing.T) {
			t.Parallel()
			db := rows(t, 1_000)
			db.Do("CREATE TABLE twin (id int PRIMARY KEY); INSERT INTO twin SELECT * FROM generate_series(0, 2000)")
			s := obsolete
			s.Paired = &purge.Paired{Relation: "twin", Key: "id", ID: "id"}
			if n := counted(t, db, s); n != 1_000 {
				t.Errorf("counted %d rows and paired rows, want 1000", n)
			}
			retained := int64(0)
			if locked {
				retained = 1
				db.Hold("SELECT FROM twin WHERE id = 2 FOR UPDATE")
			}
			e, a := engine(db)
			e.LockTimeout = 20 * time.Millisecond
			result, err := e.Sweep(t.Context(), s, purge.Cursor{})
			if err != nil || a.biggest() > 500 || result.Locked != retained {
				t.Errorf("result %+v, at most %d rows at once, error %v", result, a.biggest(), err)
			}
			if a.deleted() != 1_000-2*retained {
				t.Errorf("deleted %d rows, want %d", a.deleted(), 1_000-2*retained)
			}
			if n := db.Int("SELECT count(*) FROM twin"); n != 2_001-500+retained {
				t.Errorf("%d paired rows remain, want %d", n, 2_001-500+retained)
			}
		})
	}
}

// The companion statement reads exactly the deleted rows, even if others are locked, or retained by a trigger.
func TestCompanionRecordsDeletedRows(t *testing.T) {
	t.Parallel()
	db := rows(t, 10_000)
	db.Do(
		`CREATE TABLE noted (id int PRIMARY KEY, by int); CREATE FUNCTION keep() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN RETURN CASE WHEN OLD.id = 9996 THEN NULL ELSE OLD END; END';
		CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep(); CREATE TABLE before AS SELECT id
			FROM t`,
	)
	db.Hold("SELECT FROM t WHERE id = 2 FOR UPDATE")
	s := obsolete
	s.Companion = &purge.Companion{
		Returning: "r.id AS what",
		SQL: sqlexpr.Format("INSERT INTO noted SELECT gone.what, %s FROM gone WHERE gone.what %% 4 = 0",
			sqlexpr.Arg(7, "int")),
	}
	e, a := engine(db)
	e.LockTimeout, e.Workers = 20*time.Millisecond, 4
	result, err := e.Sweep(t.Context(), s, purge.Cursor{})
	var recorded int64
	for _, d := range a.batches {
		recorded += d.Recorded
	}
	if err != nil || !reflect.DeepEqual(result, purge.Result{Retained: purge.Retained{Locked: 1, Suppressed: 1}}) ||
		a.deleted() != 4_998 ||
		recorded != 2_499 ||
		a.biggest() > 500 {
		t.Errorf("result %+v, error %v, %d rows deleted, %d recorded", result, err, a.deleted(), recorded)
	}
	if n := db.Int(
		"SELECT count(*) FROM noted n FULL JOIN (SELECT id FROM before EXCEPT SELECT id FROM t) g USING (id) WHERE " +
			"by = 7 AND g.id IS NOT NULL OR n.id IS NULL AND g.id % 4 <> 0",
	); n != 4_998 {
		t.Errorf("%d rows were noted correctly", n)
	}
}

// The action of a DO ALSO rule runs with one block or many, and with locked rows. With paired rows nothing is deleted.
func TestSweepWithADoAlsoRule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rows, locked, paired int64
		updates              bool
	}{
		"one block":    {rows: 10},
		"many blocks":  {rows: 10_000},
		"a locked row": {rows: 10_000, locked: 1},
		"paired":       {rows: 10, paired: 5},
		"updates":      {rows: 10, updates: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := rows(t, int(test.rows))
			db.Do(
				`CREATE TABLE noted (id int); CREATE TABLE twin AS SELECT generate_series(1, 10) AS id;
					CREATE RULE a AS ON DELETE TO t DO ALSO INSERT INTO noted VALUES (old.id);
				CREATE RULE b AS ON UPDATE TO t WHERE new.old <> old.old DO ALSO INSERT INTO noted VALUES (old.id)`,
			)
			s := obsolete
			if test.locked > 0 {
				db.Hold("SELECT FROM t WHERE id = 2 FOR UPDATE")
			}
			if test.paired > 0 {
				s.Paired = &purge.Paired{Relation: "twin", Key: "id", ID: "id"}
			}
			if test.updates {
				s.Set = []purge.Assignment{{Column: "old", Value: sqlexpr.Arg(false, "bool")}}
			}
			e, _ := engine(db)
			e.LockTimeout = 20 * time.Millisecond
			result, err := e.Sweep(t.Context(), s, purge.Cursor{})
			gone := test.rows/2 - test.locked - test.paired
			if err != nil ||
				!reflect.DeepEqual(result,
					purge.Result{Retained: purge.Retained{Locked: test.locked, Suppressed: 2 * test.paired}}) ||
				db.Int("SELECT count(*) FROM noted") != gone ||
				db.Int("SELECT count(*) FROM t WHERE old") != test.rows/2-gone {
				t.Errorf("result %+v, error %v, %d rows noted, %d remain", result, err,
					db.Int("SELECT count(*) FROM noted"), db.Int("SELECT count(*) FROM t WHERE old"))
			}
		})
	}
}

// Rows whose deletion a trigger suppresses do not hide others of their block, however small batches are.
func TestSuppressedRowsHideNoOthers(t *testing.T) {
	t.Parallel()
	for _, maxRows := range []int{1, 10, 100} {
		db := rows(t, 600)
		db.Do(
			`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN CASE
				WHEN OLD.id % 226 < 50 THEN NULL ELSE OLD END; END';
			CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()`,
		)
		suppressed := db.Int("SELECT count(*) FROM t WHERE old AND id % 226 < 50")
		e, a := engine(db)
		e.MaxRows = maxRows
		result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{})
		if err != nil || !reflect.DeepEqual(result, purge.Result{Retained: purge.Retained{Suppressed: suppressed}}) ||
			a.deleted() != 300-suppressed ||
			a.biggest() > int64(maxRows) {
			t.Errorf("at most %d at once: deleted %d rows of %d, result %+v, error %v", maxRows, a.deleted(),
				300-suppressed, result, err)
		}
	}
}

// A foreign key to the table without an index makes each deletion expensive. This is logged, and the key's action runs.
func TestForeignKeysWithoutAnIndex(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE "Parent" (id int PRIMARY KEY, other int UNIQUE);
		INSERT INTO "Parent" SELECT i, i FROM generate_series(1, 100) i;
		CREATE TABLE indexed (parent int REFERENCES "Parent" ON DELETE CASCADE); CREATE INDEX ON indexed (parent);
		CREATE TABLE "Not indexed" (x int, "by Parent" int REFERENCES "Parent" (other) ON DELETE SET NULL);
		CREATE TABLE partly (parent int REFERENCES "Parent"); CREATE INDEX ON partly (parent) WHERE parent > 5;
		INSERT INTO indexed VALUES (1), (99); INSERT INTO "Not indexed" VALUES (1, 1), (2, 99)`)
	e, a := engine(db)
	if _, err := e.Sweep(
		t.Context(),
		purge.Sweep{
			Unit:     "1",
			Name:     "Parent",
			Relation: `"Parent"`,
			Root:     `"Parent"`,
			Where:    sqlexpr.SQL("r.id <= 50"),
			Limit:    10,
		},
		purge.Cursor{},
	); err != nil {
		t.Fatal(err)
	}
	if len(a.warned) != 2 || !strings.Contains(a.warned[0], `"Not indexed" ("by Parent")`) ||
		!strings.Contains(a.warned[1], "partly (parent)") {
		t.Errorf("warned %q", a.warned)
	}
	if left := db.Strings(
		`SELECT concat((SELECT count(*) FROM "Parent"), ' ', (SELECT count(*)
			FROM indexed), ' ', (SELECT count("by Parent") FROM "Not indexed"))`,
	); left[0] != "50 1 1" ||
		a.deleted() != 50 {
		t.Errorf("%s rows remain", left[0])
	}
}

// A partition is named by its table, and so is one that refers to it, so that there is one warning for all of them.
func TestForeignKeysOfPartitionsWithoutAnIndex(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE child (parent int REFERENCES t, day int) PARTITION BY RANGE (day);
		CREATE TABLE child_1 PARTITION OF child FOR VALUES FROM (0) TO (1);
		CREATE TABLE child_2 PARTITION OF child FOR VALUES FROM (1) TO (2);
		CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
		CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
		INSERT INTO t SELECT i FROM generate_series(0, 19) i`)
	e, a := engine(db)
	for _, name := range []string{"t_1", "t_2"} {
		s := purge.Sweep{
			Unit: name, Name: name, Relation: name, Root: `"t"`, Partition: true, Where: sqlexpr.SQL("r.id <= 50"), Limit: 10,
		}
		if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(a.warned)
	if all := slices.Compact(a.warned); len(all) != 1 || !strings.HasPrefix(all[0], `"t": `) ||
		!strings.Contains(all[0], "the foreign key child (parent) has no index") {
		t.Errorf("warned %q, not once of the key of child", all)
	}
}

// Statements of batches, with their triggers, run as the table's owner if the role may become that role and they have
// the same effect then. The rest of the transaction never does.
func TestBatchesRunAsTheOwner(t *testing.T) {
	t.Parallel()
	const (
		member   = "GRANT neolane TO %[1]s"
		deferred = `CREATE CONSTRAINT TRIGGER who AFTER DELETE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			EXECUTE FUNCTION who()`
	)
	others := obsolete.And(sqlexpr.SQL("NOT EXISTS (SELECT FROM other WHERE other.id = r.id)"))
	update := obsolete
	update.Set = []purge.Assignment{{Column: "old", Value: sqlexpr.SQL("false")}}
	for _, c := range []struct {
		name, superuser, owner string // SQL
		sweep                  purge.Sweep
		asOwner                bool
		failed                 int64
	}{
		{"a member", member, "", obsolete, true, 0},
		{"no member", "", "", obsolete, false, 0},
		{"an update", member, "", update, true, 0},
		{"a deferred trigger", member, deferred, obsolete, true, 0},
		{"a row that fails", member, "INSERT INTO child VALUES (8)", obsolete, true, 1},
		{"no right to what the condition reads", member + "; ALTER TABLE other OWNER TO %[1]s", "", others, false, 0},
		{"a right to what the condition reads", member, "", others, true, 0},
		{"the service's schema in the search path", member + "; CREATE SCHEMA cleanupd AUTHORIZATION %[1]s; " +
			"ALTER ROLE %[1]s SET search_path = cleanupd, public", "", obsolete, true, 0},
		{"names that mean other things", member, "CREATE SCHEMA neolane", obsolete, false, 0},
		{
			"row security that hides rows from the owner", member + "; ALTER ROLE %[1]s BYPASSRLS",
			"ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", obsolete, false, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := rows(t, 100)
			role := db.Role("service")
			db.Do(`CREATE TABLE who (of text, name name); CREATE TABLE other (id int);
				CREATE TABLE child (id int REFERENCES t);
				CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS
					'BEGIN INSERT INTO who VALUES (''trigger'', current_user); RETURN coalesce(NEW, OLD); END';
				CREATE TRIGGER first BEFORE DELETE OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION who();
				GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ` + role)
			db.Superuser(fmt.Sprintf(c.superuser+" -- %[1]s", role))
			db.Do(c.owner)
			e, a := engine(db.For(role))
			a.before = func(b *pgx.Batch) error {
				b.Queue("INSERT INTO who VALUES ('ledger', current_user)")
				return nil
			}
			result, err := e.Sweep(t.Context(), c.sweep, purge.Cursor{})
			if err != nil || result.Failed != c.failed || db.Int("SELECT count(*) FROM t WHERE old") != c.failed {
				t.Fatalf("%v: %v", result, err)
			}
			want := []string{"ledger " + role, "trigger " + role}
			if c.asOwner {
				want[1] = "trigger neolane"
			}
			if got := db.Strings("SELECT DISTINCT of || ' ' || name FROM who ORDER BY 1"); !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// A batch is rolled back if row security now hides rows from the owner, even if not from the role.
func TestRowSecurityOfTheOwner(t *testing.T) {
	t.Parallel()
	db := rows(t, 20_000)
	db.Do("CREATE TABLE parent (id int); INSERT INTO parent SELECT generate_series(1, 20000)")
	role := db.Role("service")
	db.Do("GRANT SELECT, DELETE ON t, parent TO " + role)
	db.Superuser("GRANT neolane TO " + role + "; ALTER ROLE " + role + " BYPASSRLS")
	orphans := obsolete
	orphans.Where, orphans.Limit = sqlexpr.SQL("NOT EXISTS (SELECT FROM parent WHERE parent.id = r.id)"), 100
	service := db.For(role)
	facts := service.Strings("SELECT " + campaign.FactsSQL + " FROM pg_class c WHERE oid = 'parent'::regclass")
	orphans.Facts = []purge.Fact{{Relation: "public.parent", Facts: facts[0]}}
	db.Do("DELETE FROM parent WHERE id = 1")
	e, a := engine(service)
	a.after = func(purge.Delta) {
		db.Do("ALTER TABLE parent ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
	}
	_, err := e.Sweep(t.Context(), orphans, purge.Cursor{})
	changed := (*purge.ChangedError)(nil)
	if !errors.As(err, &changed) || db.Int("SELECT count(*) FROM t") != 19_999 {
		t.Errorf("%v: %d rows are left", err, db.Int("SELECT count(*) FROM t"))
	}
}
