package purge_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// ranked is the query for the ids of the rows that are not among the three newest of their groups.
const ranked = `SELECT id FROM (SELECT id, kind, rank() OVER (PARTITION BY owner, device ORDER BY ts DESC) AS place
	FROM visit WHERE ts IS NOT NULL) AS v WHERE place > 3`

// visits creates a table of 3,000 rows in groups of very different sizes, with ties and NULLs.
func visits(t *testing.T, partitioned bool) *pgtest.DB {
	t.Helper()
	db := pgtest.Empty(t)
	table := "CREATE TABLE visit (id int NOT NULL, owner int NOT NULL, device text, ts timestamptz, kind text NOT NULL)"
	if partitioned {
		table += ` PARTITION BY HASH (id); CREATE TABLE visit_0 PARTITION OF visit FOR VALUES WITH (MODULUS 2, REMAINDER
			0); CREATE TABLE visit_1 PARTITION OF visit FOR VALUES WITH (MODULUS 2, REMAINDER 1)`
	}
	db.Do(table)
	db.Do(`INSERT INTO visit SELECT i, CASE WHEN i % 3 = 0 THEN 0 ELSE i % 100 END,
		CASE WHEN i % 5 > 0 THEN 'd' || i % 2 END,
		CASE WHEN i % 11 > 0 THEN timestamptz '2026-01-01' - (hashint4(i) % 200) * interval '1 hour' END,
		CASE WHEN i % 4 > 0 THEN 'some' ELSE 'other' END FROM generate_series(1, 3000) i`)
	db.Do("CREATE UNIQUE INDEX ON visit (id); CREATE INDEX ON visit (owner, device, ts); ANALYZE visit")
	return db
}

func lastVisit(owner, device string) string {
	const last = `(SELECT n.ts FROM visit AS n WHERE n.owner = %s AND n.device %s AND n.ts IS NOT NULL ORDER BY n.ts
		DESC OFFSET 2 LIMIT 1)`
	return "CASE WHEN " + device + " IS NULL THEN " + fmt.Sprintf(last, owner, "IS NULL") + " ELSE " +
		fmt.Sprintf(last, owner, "= "+device) + " END"
}

// notNewest returns the sweep of the rows of a relation that are not among the three newest of their groups.
func notNewest(relation string) purge.Sweep {
	s := purge.Sweep{
		Unit:        "1",
		Name:        "visit",
		Relation:    relation,
		Root:        relation,
		Key:         []string{"id"},
		Limit:       500,
		ReadsOthers: true,
	}
	s.Where = sqlexpr.SQL("r.ts < " + lastVisit("r.owner", "r.device"))
	s.Newest = &purge.Newest{
		Per:     []string{`"owner"`, `"device"`},
		OrderBy: `"ts"`,
		Older:   "<",
		Last:    sqlexpr.SQL(lastVisit("g.k1", "g.k2")),
		InGroup: []string{
			"g.k2 IS NULL AND r.owner = g.k1 AND r.device IS NULL",
			"g.k2 IS NOT NULL AND r.owner = g.k1 AND r.device = g.k2",
		},
		Rest: sqlexpr.SQL("true"),
	}
	return s
}

// suppressedBy creates a trigger that makes batches pick rows first, and suppresses the deletion of a row.
const suppressedBy = `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.id = %s THEN RETURN NULL;
	END IF; RETURN OLD; END'; CREATE TRIGGER no BEFORE DELETE ON visit FOR EACH ROW EXECUTE FUNCTION no()`

// Sweeping by group deletes exactly the rows that the condition matches in a single SELECT, whatever the sizes of
// batches and groups. Counts and estimates match.
func TestNewestByGroup(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(db *pgtest.DB, e *purge.Engine, s *purge.Sweep){
		"at once":         func(*pgtest.DB, *purge.Engine, *purge.Sweep) {},
		"one at a time":   func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.MaxRows = 1 },
		"seven at a time": func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.MaxRows = 7 },
		"by four workers": func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.MaxRows, e.Workers = 20, 4 },
		"found in parts":  func(_ *pgtest.DB, e *purge.Engine, _ *purge.Sweep) { e.FindAtOnce(100) },
		"picked first": func(db *pgtest.DB, e *purge.Engine, _ *purge.Sweep) {
			e.MaxRows = 30
			db.Do(fmt.Sprintf(suppressedBy, "0"))
		},
		"with a rule": func(db *pgtest.DB, _ *purge.Engine, _ *purge.Sweep) {
			db.Do("CREATE TABLE noted (id int); CREATE RULE a AS ON DELETE TO visit DO ALSO INSERT INTO noted VALUES (old.id)")
		},
		"some of them": func(_ *pgtest.DB, _ *purge.Engine, s *purge.Sweep) {
			*s = s.And(sqlexpr.Format("r.kind = %s", sqlexpr.Arg("other", "text")))
		},
		"all but some": func(_ *pgtest.DB, _ *purge.Engine, s *purge.Sweep) {
			*s = s.Without(sqlexpr.SQL("r.kind <> 'other'"), sqlexpr.SQL("NULL"))
		},
		"never analyzed": func(db *pgtest.DB, _ *purge.Engine, _ *purge.Sweep) {
			db.Do("CREATE TABLE v AS TABLE visit; TRUNCATE visit; INSERT INTO visit TABLE v")
		},
		"without an index": func(db *pgtest.DB, _ *purge.Engine, _ *purge.Sweep) {
			db.Do("DROP INDEX visit_owner_device_ts_idx")
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "by four workers", "with a rule")
			t.Parallel()
			db, s := visits(t, false), notNewest("visit")
			e, a := engine(db)
			change(db, e, &s)
			where, args := s.Where.Build()
			want := db.Strings("SELECT id::text FROM visit AS r WHERE ("+where+") IS NOT TRUE ORDER BY id", args...)
			obsolete := 3_000 - int64(len(want))
			if n := countedByGroup(t, e, s); n != obsolete || counted(t, db, s) != obsolete {
				t.Errorf("counted %d and %d rows, want %d", n, counted(t, db, s), obsolete)
			}
			if estimate, ok, err := e.Estimate(t.Context(), s); err != nil || !ok || estimate[0] != obsolete {
				t.Errorf("estimated %d rows, %v, %v; want %d", estimate, ok, err, obsolete)
			}
			result, err := e.Sweep(t.Context(), s, purge.Cursor{})
			if err != nil || !reflect.DeepEqual(result, purge.Result{}) || a.deleted() != obsolete || obsolete == 0 {
				t.Errorf("deleted %d of %d rows, result %+v, error %v", a.deleted(), obsolete, result, err)
			}
			if a.biggest() > int64(s.Limit) || (e.MaxRows > 0 && a.biggest() > int64(e.MaxRows)) {
				t.Errorf("a statement deleted %d rows", a.biggest())
			}
			if got := db.Strings("SELECT id::text FROM visit ORDER BY id"); strings.Join(got, " ") != strings.Join(
				want, " ",
			) {
				t.Errorf("%d rows remain, want %d", len(got), len(want))
			}
		})
	}
}

func countedByGroup(t *testing.T, e *purge.Engine, s purge.Sweep) int64 {
	t.Helper()
	var tally purge.Tally
	candidates := []purge.Candidates{{Where: s.Where, Newest: s.Newest, Date: "r.ts", Key: "id"}}
	err := e.CountCandidates(t.Context(), s.Name, s.Relation, candidates,
		func(_ context.Context, window []purge.Tally) error {
			tally.Add(window[0])
			return nil
		})
	if err != nil || len(tally.Keys) != purge.SampleSize || tally.Oldest == nil || tally.Newest.Before(*tally.Oldest) {
		t.Errorf("%+v, %v", tally, err)
	}
	return tally.Rows
}

// Rows of all partitions are in one ranking.
func TestNewestOfPartitions(t *testing.T) {
	t.Parallel()
	db := visits(t, true)
	want := db.Strings("SELECT id::text FROM visit WHERE id NOT IN (" + ranked + ") ORDER BY id")
	for _, leaf := range []string{"visit_0", "visit_1"} {
		e, _ := engine(db)
		if result, err := e.Sweep(t.Context(), notNewest(leaf), purge.Cursor{}); err != nil ||
			!reflect.DeepEqual(result, purge.Result{}) {
			t.Errorf("%+v, %v", result, err)
		}
	}
	if got := db.Strings("SELECT id::text FROM visit ORDER BY id"); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d rows remain, want %d", len(got), len(want))
	}
}

// An update changes the rows that a deletion would delete.
func TestNewestAreNotUpdated(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, s := visits(t, false), notNewest("visit")
	s = s.And(sqlexpr.SQL("r.kind <> 'done'"))
	s.Set = []purge.Assignment{{Column: "kind", Value: sqlexpr.SQL("'done'")}}
	obsolete := db.Int("SELECT count(*) FROM (" + ranked + ") AS v")
	e, a := engine(db)
	for range 2 {
		if result, err := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil ||
			!reflect.DeepEqual(result, purge.Result{}) {
			t.Errorf("%+v, %v", result, err)
		}
	}
	var updated int64
	for _, b := range a.batches {
		updated += b.Updated
	}
	if done := db.Int(
		"SELECT count(*) FROM visit WHERE kind = 'done' AND id IN (" + ranked + ")",
	); updated != obsolete ||
		done != obsolete {
		t.Errorf("updated %d rows, %d of them obsolete, want %d", updated, done, obsolete)
	}
}

// Failing, locked and suppressed rows are retained and counted, and no others.
func TestObsoleteRowsOfGroupsThatAreRetained(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for _, maxRows := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(maxRows), func(t *testing.T) {
			t.Parallel()
			db, s := visits(t, false), notNewest("visit")
			ids := db.Strings("SELECT id::text FROM (" + ranked + ") AS v ORDER BY hashint4(id) LIMIT 9")
			obsolete := db.Int("SELECT count(*) FROM (" + ranked + ") AS v")
			db.Do("CREATE TABLE child (id int REFERENCES visit (id)); CREATE INDEX ON child (id)")
			db.Do("INSERT INTO child SELECT unnest($1::text[])::int", ids[:6])
			db.Do(fmt.Sprintf(suppressedBy, ids[6]))
			db.Hold("SELECT FROM visit WHERE id = ANY ($1::text[]::int[]) FOR UPDATE", ids[7:])
			e, a := engine(db)
			e.LockTimeout, e.MaxRows = 50*time.Millisecond, maxRows
			for range 2 {
				result, err := e.Sweep(t.Context(), s, purge.Cursor{})
				if err != nil || result.Retained != (purge.Retained{Failed: 6, Kept: 6, Locked: 2, Suppressed: 1}) &&
					result.Retained != (purge.Retained{Failed: 6, Kept: 6, Locked: 3}) {
					t.Errorf("%+v, %v", result, err)
				}
			}
			if left := db.Int(
				"SELECT count(*) FROM ("+ranked+") AS v WHERE NOT id = ANY ($1::text[]::int[])", ids,
			); left != 0 ||
				a.deleted() != obsolete-9 {
				t.Errorf("deleted %d rows of %d, %d are left", a.deleted(), obsolete, left)
			}
		})
	}
}

// A row is kept if it is no longer obsolete when its batch begins, after an update or the deletion of newer rows.
func TestNewestAreJudgedAgain(t *testing.T) {
	t.Parallel()
	for _, picked := range []bool{false, true} {
		t.Run(fmt.Sprint(picked), func(t *testing.T) {
			t.Parallel()
			db, s := visits(t, false), notNewest("visit")
			db.Do(
				"INSERT INTO visit SELECT i, 1000 + i, 'd', timestamptz '2020-01-01' + i % 4 * interval '1 h', 'some' " +
					"FROM generate_series(10001, 10008) i",
			)
			db.Do("UPDATE visit SET owner = 20000 + id / 5 WHERE id > 10000")
			if picked {
				db.Do(fmt.Sprintf(suppressedBy, "0"))
			}
			oldest := db.Strings(
				"SELECT id::text FROM visit WHERE owner >= 20000 AND id IN (" + ranked + ") ORDER BY id")
			e, a := engine(db)
			e.MaxRows = 10
			changed := false
			a.before = func(*pgx.Batch) error {
				if !changed {
					changed = true
					db.Do("UPDATE visit SET ts = '2030-01-01' WHERE id = $1::text::int", oldest[0])
					db.Do(
						"DELETE FROM visit WHERE owner = (SELECT owner FROM visit WHERE id = $1::text::int) AND id <> $1::text::int",
						oldest[len(oldest)-1])
				}
				return nil
			}
			if result, err := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil ||
				!reflect.DeepEqual(result, purge.Result{}) {
				t.Errorf("%+v, %v", result, err)
			}
			if len(oldest) < 2 || db.Int(
				"SELECT count(*) FROM visit WHERE id::text IN ($1, $2)", oldest[0], oldest[len(oldest)-1],
			) != 2 || db.Int("SELECT count(*) FROM ("+ranked+") AS v") != 0 {
				t.Errorf("of %q remain %q", oldest, db.Strings("SELECT id::text FROM visit WHERE owner >= 20000"))
			}
		})
	}
}

// A row that another session makes the newest of its group while a batch waits for it is kept.
func TestRowThatBecomesTheNewest(t *testing.T) {
	t.Parallel()
	for _, picked := range []bool{false, true} {
		t.Run(fmt.Sprint(picked), func(t *testing.T) {
			t.Parallel()
			db, s := visits(t, false), notNewest("visit")
			if picked {
				db.Do(fmt.Sprintf(suppressedBy, "0"))
			}
			id := db.Strings("SELECT id::text FROM (" + ranked + ") AS v ORDER BY id LIMIT 1")[0]
			other := db.Hold("UPDATE visit SET ts = '2030-01-01' WHERE id = $1::text::int", id)
			var committing sync.WaitGroup
			committing.Go(func() {
				db.Until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND " +
					"wait_event_type = 'Lock'")
				_ = other.Commit(context.Background())
			})
			e, _ := engine(db)
			e.LockTimeout = 20 * time.Second
			result, err := e.Sweep(t.Context(), s, purge.Cursor{})
			committing.Wait()
			if err != nil || !reflect.DeepEqual(result, purge.Result{}) {
				t.Errorf("%+v, %v", result, err)
			}
			if left := db.Int("SELECT count(*) FROM (" + ranked + ") AS v"); left != 0 ||
				db.Int("SELECT count(*) FROM visit WHERE id = $1::text::int", id) != 1 {
				t.Errorf("the row is gone, or %d obsolete ones are left", left)
			}
		})
	}
}

// A worker that takes over finds the remaining rows.
func TestNewestAfterAnotherWorker(t *testing.T) {
	t.Parallel()
	db, s := visits(t, false), notNewest("visit")
	obsolete := db.Int("SELECT count(*) FROM (" + ranked + ") AS v")
	e, a := engine(db)
	e.MaxRows = 50
	stop := errors.New("stop")
	a.before = func(*pgx.Batch) error {
		if a.deleted() > 300 {
			return stop
		}
		return nil
	}
	if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	a.before = nil
	if _, err := e.Sweep(t.Context(), s, a.batches[len(a.batches)-1].Cursor); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != obsolete || db.Int("SELECT count(*) FROM ("+ranked+") AS v") != 0 {
		t.Errorf("deleted %d of %d rows", a.deleted(), obsolete)
	}
}

// Rows of a large table are found by the index of the groups, and reported so; or by another index if a condition
// leaves few of them.
func TestScanByGroup(t *testing.T) {
	t.Parallel()
	db := visits(t, false)
	db.Do("INSERT INTO visit SELECT i, i % 6000, 'd', now(), repeat('x', 400) FROM generate_series(10001, 40000) i; " +
		"ANALYZE visit")
	few := notNewest("visit")
	few.Newest.Rest = sqlexpr.SQL("r.id < 100")
	few.Where = sqlexpr.Format("%s AND %s", few.Where, few.Newest.Rest)
	for index, s := range map[string]purge.Sweep{
		"visit_owner_device_ts_idx": notNewest("visit"), "visit_id_idx": few,
	} {
		e, a := engine(db)
		scan, err := e.Scan(t.Context(), s)
		if _, failed := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil || failed != nil || scan != a.scan ||
			scan != (purge.Scan{Method: purge.IndexScan, Index: index}) {
			t.Errorf("%v, %v, %v, %v", scan, a.scan, err, failed)
		}
	}
}
