package purge_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

var poison = map[string]string{
	"a trigger": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.id IN (SELECT id
		FROM poison) THEN RAISE ''not % '', OLD.id; END IF; RETURN OLD; END';
		CREATE TRIGGER no BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION no()`,
	"a trigger afterwards": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.id IN (SELECT id
		FROM poison) THEN RAISE ''not % '', OLD.id; END IF; RETURN OLD; END';
		CREATE TRIGGER no AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION no()`,
	"a deferred trigger": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.id IN (SELECT id
		FROM poison) THEN RAISE ''not % '', OLD.id; END IF; RETURN OLD; END';
		CREATE CONSTRAINT TRIGGER no AFTER DELETE ON t DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION no()`,
	"a foreign key":          "ALTER TABLE poison ADD FOREIGN KEY (id) REFERENCES t",
	"a deferred foreign key": "ALTER TABLE poison ADD FOREIGN KEY (id) REFERENCES t DEFERRABLE INITIALLY DEFERRED",
	"a copy that is there": `CREATE TABLE copy AS SELECT id FROM poison; CREATE UNIQUE INDEX ON copy (id);
		CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO copy
			VALUES (OLD.id); RETURN OLD; END'; CREATE TRIGGER no BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION no()`,
	"an error of data": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / count(*)
		FROM (SELECT OLD.id EXCEPT SELECT id FROM poison) AS good; RETURN OLD; END';
		CREATE TRIGGER no BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION no()`,
}

const exactlyPoison = "SELECT count(*) FROM (SELECT id FROM t WHERE old) AS t FULL JOIN poison USING (id) WHERE t.id " +
	"IS NULL OR poison.id IS NULL"

// Exactly the failing rows are retained, with any cause, size of batches, scan method and companion; a second sweep
// counts them again, and deletes nothing.
func TestRowsThatRefuse(t *testing.T) {
	t.Parallel()
	for cause, sql := range poison {
		for method, change := range map[string]func(db *pgtest.DB, e *purge.Engine, s *purge.Sweep){
			"by block":        func(*pgtest.DB, *purge.Engine, *purge.Sweep) {},
			"by four workers": func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.Workers = 4 },
			"one at a time":   func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.MaxRows = 1 },
			"three at a time": func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.MaxRows = 3 },
			"with paired": func(db *pgtest.DB, _ *purge.Engine, s *purge.Sweep) {
				db.Do("CREATE TABLE twin AS SELECT id FROM t WHERE old")
				s.Paired = &purge.Paired{Relation: "twin", Key: "id", ID: "id"}
			},
			"with a rule": func(db *pgtest.DB, _ *purge.Engine, _ *purge.Sweep) {
				db.Do("CREATE TABLE noted (id int); CREATE RULE a AS ON DELETE TO t DO ALSO INSERT INTO noted VALUES " +
					"(old.id)")
			},
			"by key": func(_ *pgtest.DB, _ *purge.Engine, s *purge.Sweep) { s.NoTIDs, s.ByKey = true, "id" },
			"with a companion": func(db *pgtest.DB, _ *purge.Engine, s *purge.Sweep) {
				db.Do("CREATE TABLE noted (id int, by int)")
				s.Companion = &purge.Companion{
					Returning: "r.id AS what",
					SQL: sqlexpr.Format("INSERT INTO noted SELECT gone.what, %s FROM gone",
						sqlexpr.Arg(7, "int")),
				}
			},
		} {
			// companion statements may take ids that others have taken, which is a transient error
			if cause == "a copy that is there" && method == "with a companion" {
				continue
			}
			t.Run(cause+", "+method, func(t *testing.T) {
				if cause != "a trigger" && method != "by block" {
					suite.Only(t, suite.Long)
				}
				t.Parallel()
				db := rows(t, 2_000)
				db.Do(
					"CREATE TABLE poison (id int PRIMARY KEY); INSERT INTO poison VALUES (2), (4), (1000), (1002), " +
						"(1500), (2000)",
				)
				e, a := engine(db)
				s := obsolete
				s.Key = []string{"id"}
				change(db, e, &s)
				db.Do(sql)
				retained := purge.Retained{Failed: 6}
				if strings.Contains(cause, "foreign key") {
					retained.Kept = 6
				}
				want := int64(994)
				if s.Paired != nil {
					want *= 2
				}
				for range 2 {
					a.batches, a.warned = nil, nil
					result, err := e.Sweep(t.Context(), s, purge.Cursor{})
					if err != nil || result.Retained != retained || result.FirstError == nil || result.GaveUp ||
						a.deleted() != want ||
						db.Int(exactlyPoison) != 0 {
						t.Errorf("deleted %d rows, result %+v, error %v; %d rows are wrong", a.deleted(), result, err,
							db.Int(exactlyPoison))
					}
					want = 0
					if !slices.ContainsFunc(
						a.warned,
						func(w string) bool { return strings.HasPrefix(w, "t: row 1002 failed and is retained: ") },
					) ||
						len(a.warned) < 6 {
						t.Errorf("warned %q", a.warned)
					}
				}
			})
		}
	}
}

// A trigger that fails every statement ends the sweep soon.
func TestAllRowsRefuse(t *testing.T) {
	t.Parallel()
	for how, elsewhere := range map[string]bool{"by block": false, "by key": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := rows(t, 200_000)
			db.Do(
				`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not at all''; END';
					CREATE TRIGGER no BEFORE DELETE ON t EXECUTE FUNCTION no()`,
			)
			e, a := engine(db)
			s := obsolete
			s.NoTIDs, s.ByKey = elsewhere, "id"
			result, err := e.Sweep(t.Context(), s, purge.Cursor{Before: purge.Retained{Failed: 900}})
			if err != nil || !result.GaveUp || result.Retained != (purge.Retained{Failed: 101}) || a.deleted() != 0 {
				t.Errorf("deleted %d rows, result %+v, error %v", a.deleted(), result, err)
			}
			if len(a.warned) != purge.FailedRowsLogged ||
				!strings.Contains(a.warned[0], "not at all (SQLSTATE P0001)") {
				t.Errorf("warned %d times: %q", len(a.warned), a.warned[0])
			}
		})
	}
}

// Rows that others keep by a foreign key do not prevent the deletion of the rest, however many they are.
func TestRowsThatOthersKeep(t *testing.T) {
	t.Parallel()
	db := rows(t, 6_000)
	db.Do("CREATE TABLE keeping (id int PRIMARY KEY REFERENCES t); INSERT INTO keeping SELECT generate_series(1001, 3400)")
	e, a := engine(db)
	result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{})
	if err != nil || result.GaveUp || result.Failed != 1_200 || a.deleted() != 1_800 {
		t.Errorf("deleted %d rows, want 1800 of 3000; result %+v, error %v", a.deleted(), result, err)
	}
}

type counter struct{ statements, failed atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.statements.Add(1)
	return ctx
}

func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.statements.Add(1)
	if data.Err != nil {
		c.failed.Add(1)
	}
}

func (*counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func traced(t *testing.T, db *pgtest.DB, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// The number of statements for a failing row grows with the logarithm of its distance to the next one, and it is not
// tried again in the same sweep.
func TestFailingRowsAreFoundQuickly(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for how, scattered := range map[string]bool{"scattered": true, "side by side": false} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			const n, failing = 40_000, 200
			db := rows(t, n)
			db.Do(
				"CREATE TABLE poison AS SELECT id FROM t WHERE old AND CASE WHEN $1::bool THEN hashint4(id) ELSE id "+
					"END IS NOT NULL ORDER BY CASE WHEN $1::bool THEN hashint4(id) ELSE id END LIMIT $2",
				scattered,
				failing,
			)
			db.Do("CREATE UNIQUE INDEX ON poison (id); " + poison["a trigger"])
			e, a := engine(db)
			count := &counter{}
			e.Pool = traced(t, db, count)
			s := obsolete
			s.Limit = 5_000
			result, err := e.Sweep(t.Context(), s, purge.Cursor{})
			if err != nil || result.Retained != (purge.Retained{Failed: failing}) || result.GaveUp ||
				a.deleted() != n/2-failing ||
				db.Int(exactlyPoison) != 0 {
				t.Errorf("deleted %d rows, result %+v, error %v", a.deleted(), result, err)
			}
			t.Logf("%d statements", count.statements.Load())
			if limit := int64(60 * failing); count.statements.Load() > limit {
				t.Errorf("more than %d statements", limit)
			}
		})
	}
}

// A condition finds the rows to which other tables refer, so the server logs no error for any of them.
func TestKeptRowsAreNotTried(t *testing.T) {
	t.Parallel()
	db := rows(t, 20_000)
	db.Do("CREATE TABLE keeping (id int PRIMARY KEY REFERENCES t); " +
		"INSERT INTO keeping SELECT id FROM t WHERE old AND id % 7 = 0")
	kept := db.Int("SELECT count(*) FROM keeping")
	e, a := engine(db)
	count := &counter{}
	e.Pool = traced(t, db, count)
	s := obsolete
	s.Key, s.Refused = []string{"id"}, sqlexpr.SQL("EXISTS (SELECT FROM keeping AS k WHERE k.id = r.id)")
	result, err := e.Sweep(t.Context(), s, purge.Cursor{})
	if err != nil || result.Retained != (purge.Retained{Dependent: kept}) || len(a.warned) > 0 ||
		db.Int("SELECT count(*) FROM t WHERE old") != kept {
		t.Errorf("result %+v, error %v, warnings %q; want that %d rows are kept", result, err, a.warned, kept)
	}
	if n := count.failed.Load(); n > 0 {
		t.Errorf("%d statements failed, want none", n)
	}
}

// Rows to which other tables refer are found by a condition, and not tried. Rows to which further tables refer, which
// the condition does not know, are tried. A second sweep counts the same.
func TestKeptRowsAreFoundTogether(t *testing.T) {
	t.Parallel()
	const byIndex = "by index"
	for name, workers := range map[string]int{"by block": 1, "by four workers": 4, byIndex: 1} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "by block")
			t.Parallel()
			db := rows(t, 20_000)
			db.Do("CREATE TABLE keeping AS SELECT id FROM t WHERE old AND id % 7 = 0; CREATE UNIQUE INDEX ON keeping (id); " +
				"ALTER TABLE keeping ADD FOREIGN KEY (id) REFERENCES t; CREATE TABLE further (id int REFERENCES t); " +
				"CREATE INDEX ON further (id); INSERT INTO further SELECT id FROM t WHERE old AND id % 700 IN (0, 1, 2)")
			if name == byIndex {
				db.Do("INSERT INTO t SELECT i, false FROM generate_series(20001, 400000) i; " +
					"CREATE INDEX ON t (id) WHERE old; ANALYZE t")
			}
			kept := purge.Retained{Dependent: db.Int("SELECT count(*) FROM keeping")}
			kept.Kept = db.Int("SELECT count(*) FROM (SELECT id FROM further EXCEPT SELECT id FROM keeping) AS tried")
			kept.Failed = kept.Kept
			deleted := db.Int("SELECT count(*) FROM t WHERE old") - kept.Rows()
			e, a := engine(db)
			count := &counter{}
			e.Pool, e.Workers = traced(t, db, count), workers
			s := obsolete
			s.Refused = sqlexpr.SQL("EXISTS (SELECT FROM keeping AS k WHERE k.id = r.id)")
			for range 2 {
				result, err := e.Sweep(t.Context(), s, purge.Cursor{})
				if err != nil || result.Retained != kept || a.deleted() != deleted {
					t.Errorf("deleted %d of %d rows, result %+v, error %v", a.deleted(), deleted, result, err)
				}
				if indexed := a.scan.Method == purge.IndexScan; indexed != (name == byIndex) {
					t.Errorf("the scan is %+v", a.scan)
				}
				a.batches, deleted = nil, 0
			}
			if limit := 5 * kept.Rows(); count.statements.Load() > limit {
				t.Errorf("more than %d statements", limit)
			}
		})
	}
}
