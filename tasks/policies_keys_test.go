package tasks_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var keySeeds = flag.Int("key-seeds", suite.Size(suite.Model, 4, 12), "how many random databases TestRandomKeys makes")

// keyTable is a table of keyedTables. Its rows have an id, a date and a column for each key.
type keyTable struct {
	name        string
	partitioned bool
	keys        []tableKey
	trigger     string // what happens instead of the deletion of every third row; empty if it has no trigger
	rows        map[int]keyRow
}

func (t *keyTable) suppresses(id int) bool { return t.trigger != "" && id%3 == 0 }

type keyRow struct {
	old  bool
	refs []int // by key; 0 for NULL
}

type tableKey struct {
	parent int
	action string // as in SQL; empty for NO ACTION
}

func (k tableKey) deletes() bool { return k.action == "CASCADE" }
func (k tableKey) clears() bool  { return strings.HasPrefix(k.action, "SET") }
func (k tableKey) refuses() bool { return !k.deletes() && !k.clears() }

type keyNode struct{ table, id int }

// keyedTables are random tables with foreign keys of all kinds, which may lead in circles, and their remaining rows.
type keyedTables []*keyTable

// newKeyedTables returns random tables. The key of the last one may only refuse: nothing deletes the rows of that
// table.
func newKeyedTables(rng *rand.Rand) keyedTables {
	tables := make(keyedTables, 2+rng.IntN(3))
	for i := range tables {
		t := &keyTable{name: fmt.Sprintf("t%d", i), partitioned: rng.IntN(4) == 0, rows: map[int]keyRow{}}
		for range rng.IntN(3) {
			t.keys = append(t.keys,
				tableKey{rng.IntN(len(tables)), choose(rng, []string{"CASCADE", "CASCADE", "SET NULL"})})
		}
		tables[i] = t
	}
	for i, t := range tables { // not where other keys delete, since PostgreSQL's result would depend on the order of keys
		cascaded := slices.ContainsFunc(t.keys, func(k tableKey) bool { return k.deletes() && k.parent != i })
		for _, parent := range []int{i, rng.IntN(len(tables))} {
			if !cascaded && rng.IntN(2) == 0 {
				t.keys = append(t.keys, tableKey{parent, choose(rng, []string{"", "RESTRICT"})})
			}
		}
	}
	for _, t := range tables { // not where keys delete, which would leave rows without a parent
		if slices.ContainsFunc(t.keys, func(k tableKey) bool { return !k.clears() }) || rng.IntN(2) == 0 {
			continue
		}
		// After a trigger has written, the sweep skips all rows written since it began, including those that keys have
		// changed.
		if t.trigger = "NULL;"; t.keys == nil && rng.IntN(2) == 0 {
			t.trigger = "UPDATE " + t.name + " SET at = at WHERE id = OLD.id;"
		}
	}
	if rng.IntN(3) == 0 {
		tables = append(tables, &keyTable{
			name: "refusing", keys: []tableKey{{parent: rng.IntN(len(tables))}}, rows: map[int]keyRow{},
		})
	}
	for i, t := range tables {
		for id := 1; id <= rng.IntN(60); id++ {
			row := keyRow{old: rng.IntN(4) > 0 && t.name != "refusing", refs: make([]int, len(t.keys))}
			for k, key := range t.keys {
				switch size := len(tables[key.parent].rows); {
				case key.parent > i || size == 0 || rng.IntN(3) == 0:
				default:
					row.refs[k] = 1 + rng.IntN(size)
				}
			}
			t.rows[id] = row
		}
	}
	for _, t := range tables { // circles
		for _, id := range slices.Sorted(maps.Keys(t.rows)) {
			row := t.rows[id]
			for k, key := range t.keys {
				if size := len(tables[key.parent].rows); row.refs[k] == 0 && size > 0 && rng.IntN(8) == 0 {
					row.refs[k] = 1 + rng.IntN(size)
				}
			}
			t.rows[id] = row
		}
	}
	return tables
}

func (ts keyedTables) create(db *pgtest.DB) {
	var sql []string
	for _, t := range ts {
		columns := []string{"id int PRIMARY KEY", "at timestamptz"}
		for k := range t.keys {
			columns = append(columns, fmt.Sprintf("ref%d int", k))
		}
		create := fmt.Sprintf("CREATE TABLE %s (%s)", t.name, strings.Join(columns, ", "))
		if t.partitioned {
			create += " PARTITION BY HASH (id)"
			for part := range 2 {
				create += fmt.Sprintf(
					"; CREATE TABLE %[1]s_%[2]d PARTITION OF %[1]s FOR VALUES WITH (MODULUS 2, REMAINDER %[2]d)",
					t.name, part)
			}
		}
		if t.trigger != "" {
			create += fmt.Sprintf(
				"; CREATE FUNCTION keep_%[1]s() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN %[2]s RETURN NULL; END';"+
					"CREATE TRIGGER keep BEFORE DELETE ON %[1]s FOR EACH ROW WHEN (OLD.id %% 3 = 0) EXECUTE FUNCTION keep_%[1]s()",
				t.name, t.trigger,
			)
		}
		sql = append(sql, create)
		for _, id := range slices.Sorted(maps.Keys(t.rows)) {
			row, days := t.rows[id], 0
			if row.old {
				days = 400
			}
			values := fmt.Sprintf("%d, timestamptz '2026-02-28' - interval '%d days %d minutes'", id, days, id)
			for _, ref := range row.refs {
				values += fmt.Sprintf(", nullif(%d, 0)", ref)
			}
			sql = append(sql, fmt.Sprintf("INSERT INTO %s VALUES (%s)", t.name, values))
		}
	}
	for _, t := range ts {
		for k, key := range t.keys {
			add := fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (ref%d) REFERENCES %s", t.name, k, ts[key.parent].name)
			if key.action != "" {
				add += " ON DELETE " + key.action
			}
			sql = append(sql, add)
			if len(ts[0].rows)%2 == 0 { // rows are found in one way with indexes, and in another without
				sql = append(sql, fmt.Sprintf("CREATE INDEX ON %s (ref%d)", t.name, k))
			}
		}
	}
	db.Do(strings.Join(sql, "; "))
}

func (ts keyedTables) contents() (all []string) {
	for _, t := range ts {
		for id, row := range t.rows {
			all = append(all, fmt.Sprint(t.name, id, row.refs))
		}
	}
	slices.Sort(all)
	return all
}

func (ts keyedTables) stored(db *pgtest.DB) (all []string) {
	for _, t := range ts {
		refs := "ARRAY[]::int[]"
		if len(t.keys) > 0 {
			refs = "ARRAY[COALESCE(ref0, 0)"
			for k := range t.keys[1:] {
				refs += fmt.Sprintf(", COALESCE(ref%d, 0)", k+1)
			}
			refs += "]"
		}
		all = append(all,
			db.Strings(fmt.Sprintf(
				"SELECT '%[1]s' || id || ' [' || array_to_string(%[2]s, ' ') || ']' FROM %[1]s", t.name, refs,
			))...)
	}
	slices.Sort(all)
	return all
}

// follow returns the rows that are reached from a row of a table by keys that delete, and by keys of that table that
// refuse.
func (ts keyedTables) follow(swept int, from keyNode) map[keyNode]bool {
	reached, next := map[keyNode]bool{from: true}, []keyNode{from}
	for len(next) > 0 {
		n := next[0]
		next = next[1:]
		for i, t := range ts {
			for k, key := range t.keys {
				if key.parent != n.table || (!key.deletes() && (i != swept || !key.refuses())) {
					continue
				}
				for id, row := range t.rows {
					if row.refs[k] == n.id && !reached[keyNode{i, id}] {
						reached[keyNode{i, id}] = true
						next = append(next, keyNode{i, id})
					}
				}
			}
		}
	}
	return reached
}

// keyedResult counts what a policy does: deleted rows of its table, rows of others that went with them, rows with a key
// that was cleared, and the rows retained because other rows refer to them or because a trigger suppresses their
// deletion. Of rows for which both is true, a run may meet either first.
type keyedResult struct{ deleted, cascaded, cleared, retained int64 }

// clean deletes the rows of a table that a policy matches, as one statement would if it left out the rows that must not
// go.
func (ts keyedTables) clean(swept int, matches func(id int) bool) (r keyedResult) {
	gone := map[keyNode]bool{}
	for id := range ts[swept].rows {
		if !matches(id) {
			continue
		}
		family := ts.follow(swept, keyNode{swept, id})
		bound, refused := false, false
		for n := range family {
			bound = bound || (n.table == swept && !matches(n.id))
			for i, t := range ts {
				for k, key := range t.keys {
					refused = refused || (key.refuses() && key.parent == n.table && i != swept &&
						slices.ContainsFunc(slices.Collect(maps.Values(t.rows)),
							func(row keyRow) bool { return row.refs[k] == n.id }))
				}
			}
		}
		switch {
		case bound, refused, ts[swept].suppresses(id):
			r.retained++
		default:
			maps.Copy(gone, family)
		}
	}
	for n := range gone {
		if n.table == swept {
			r.deleted++
		} else {
			r.cascaded++
		}
		delete(ts[n.table].rows, n.id)
	}
	for _, t := range ts {
		for id, row := range t.rows {
			cleared := false
			row.refs = slices.Clone(row.refs)
			for k, key := range t.keys {
				if key.clears() && gone[keyNode{key.parent, row.refs[k]}] {
					row.refs[k], cleared = 0, true
				}
			}
			if t.rows[id] = row; cleared {
				r.cleared++
			}
		}
	}
	return r
}

// With foreign keys of all kinds, a row is deleted only if the rule matches all rows of its table that would be deleted
// with it. A dry run predicts, and a run counts, everything that is deleted or changed.
func TestRandomKeys(t *testing.T) {
	t.Parallel()
	seeded(t, *firstPolicySeed, *keySeeds, 5, func(t *testing.T, rng *rand.Rand, _ uint64) {
		tables, db := newKeyedTables(rng), pgtest.Empty(t)
		tables.create(db)
		refusing := false
		for i, t := range tables {
			refusing = refusing || slices.ContainsFunc(t.keys, func(k tableKey) bool { return k.refuses() && k.parent != i })
		}
		limit := choose(rng, []int{1, 3, 0})
		for i := range min(len(tables), 2) {
			p := policy.Policy{Name: fmt.Sprintf("p%d", i), Table: tables[i].name}
			matches := func(id int) bool { return tables[i].rows[id].old }
			if ids := slices.Sorted(maps.Keys(tables[i].rows)); rng.IntN(3) == 0 && len(ids) > 0 {
				// Old rows are older than all others. Among rows of equal age, those with smaller ids are newer.
				byAge := slices.Clone(ids)
				slices.SortStableFunc(byAge, func(a, b int) int {
					return map[bool]int{true: 1}[tables[i].rows[a].old] - map[bool]int{true: 1}[tables[i].rows[b].old]
				})
				count := 1 + rng.IntN(len(ids))
				kept := byAge[:min(count, len(byAge))]
				p.KeepNewest = &policy.KeepNewest{OrderBy: "at", Count: count}
				matches = func(id int) bool { return !slices.Contains(kept, id) }
			} else {
				p.OlderThan = &policy.OlderThan{Column: "at", Days: new(365)}
			}
			runs := func(dryRun bool) *journal {
				j, err := run(t, db, func(c *cleanup.Config) {
					p.Enabled = true
					c.DryRun, c.NoCampaign, c.ContinueOnError, c.Settings.MaxRows = dryRun, true, true, limit
					c.Pipeline, c.Todo = append(c.Pipeline[:0:0], p.Task()), append(c.Todo[:0:0], p.Task())
				})
				if err != nil && !refusing {
					t.Errorf("%s: %v", p.Name, err)
				}
				return j
			}
			dry, before := runs(true), tables.contents()
			j := runs(false)
			want := tables.clean(i, matches)
			if got := tables.stored(db); !slices.Equal(got, tables.contents()) {
				t.Fatalf("%+v of\n%s\nleft\n%s\nwant\n%s", p, before, got, tables.contents())
			}
			name, of := p.TaskName(), j.retained[p.TaskName()]
			got := keyedResult{
				j.deleted[name],
				j.cascaded[name],
				j.updated[name],
				of.Dependent + of.Failed + of.Suppressed,
			}
			exactly := want
			want.cleared = max(want.cleared, got.cleared) // a row may be cleared by one batch and go with another
			if got != want {
				t.Errorf("%+v of %s: the run did %+v, want %+v; log %q", p, before, got, want, j.logs)
			}
			var cleared int64
			for _, shown := range dry.previews[name] {
				if shown.Action == cleanup.ActionUpdate {
					cleared += shown.Rows
				}
			}
			found := keyedResult{dry.deleted[name], dry.cascaded[name], cleared, dry.retained[name].Dependent}
			if tables[i].partitioned { // a row may be cleared because of rows of several partitions
				exactly.cleared = max(exactly.cleared, found.cleared)
			}
			if tables[i].trigger == "" && found != exactly {
				t.Errorf("%+v of %s: the dry run found %+v, want %+v; log %q", p, before, found, exactly, dry.logs)
			}
		}
	})
}

// A dry run of several policies in a row finds what the run then deletes, with any foreign keys between their
// tables and with rows on hold, unless it remarks an estimate.
func TestRandomKeyChains(t *testing.T) {
	t.Parallel()
	seeded(t, *firstPolicySeed, *keySeeds, 6, func(t *testing.T, rng *rand.Rand, _ uint64) {
		tables, db := newKeyedTables(rng), pgtest.Empty(t)
		for _, t := range tables {
			t.trigger = "" // whose effect no dry run knows
		}
		tables.create(db)
		db.Do("CREATE TABLE loose AS SELECT 1 + i % 60 AS id FROM generate_series(1, 90) i")
		policies := []policy.Policy{{
			Name: "orphans", Table: "loose",
			OrphanOf: &policy.OrphanOf{Column: "id", ParentTable: choose(rng, tables).name, ParentColumn: "id"},
		}}
		for i, t := range append(slices.Clone(tables), choose(rng, tables)) { // two policies have the same table
			p := policy.Policy{Name: fmt.Sprintf("p%d", i), Table: t.name, Unreferenced: rng.IntN(4) == 0}
			if rng.IntN(4) == 0 {
				p.KeepNewest = &policy.KeepNewest{OrderBy: "at", Count: 1 + rng.IntN(20)}
			} else {
				p.OlderThan = &policy.OlderThan{Column: "at", Days: new(365)}
			}
			policies = append(policies, p)
		}
		rng.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		holds := rules.Holds{}
		if held := choose(rng, tables); rng.IntN(3) > 0 {
			holds = heldRows("public."+held.name, [3]string{"id", "int4", fmt.Sprint(1 + rng.IntN(60))})
			holds.Rows[0].OID = uint32(db.Int("SELECT $1::regclass::oid::bigint", held.name))
		}
		before := tables.contents()
		runs := func(dryRun bool) *journal {
			j := newJournal(db)
			j.holds = func() rules.Holds { return holds }
			_ = runPoliciesWith(t, j, dryRun, policies...) // it fails where many rows fail
			return j
		}
		dry, j := runs(true), runs(false)
		for _, p := range policies {
			name, remarks := p.TaskName(), ""
			for _, shown := range dry.previews[name] {
				remarks += strings.Join(shown.Remarks, "; ")
			}
			found, done := [2]int64{dry.deleted[name], dry.cascaded[name]}, [2]int64{j.deleted[name], j.cascaded[name]}
			if found != done && !strings.Contains(remarks, "an estimate") {
				t.Errorf("%+v: the dry run found %d rows, and %d that go with these, the run %d and %d; policies %+v, "+
					"rows on hold %+v, tables %s; log of the dry run %q, of the run %q",
					p, found[0], found[1], done[0], done[1], policies, holds.Rows, before, dry.logs, j.logs)
			}
		}
	})
}

// A row that fails is named by its primary key, whatever that is, unless the key has a text, which may be personal
// data.
func TestFailedRowsAreNamedByTheirKeys(t *testing.T) {
	t.Parallel()
	const id = "6f0f2a5e-8a4e-4a53-9a1c-0f6f3c7f1d11"
	db := pgtest.Empty(t)
	db.Do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'")
	tests := map[string]struct{ columns, row, want string }{
		"uuid":  {"id uuid PRIMARY KEY", "'" + id + "'", "row " + id + " failed"},
		"two":   {`"Shop" int, day date, PRIMARY KEY ("Shop", day)`, "7, '2020-02-03'", "row (7, 2020-02-03) failed"},
		"texts": {"email text PRIMARY KEY", "'me@example.com'", "row at TID (0,1) failed"},
		"none":  {"n int", "7", "row at TID (0,1) failed"},
	}
	var policies []policy.Policy
	for table, test := range tests {
		db.Do(fmt.Sprintf(`CREATE TABLE %[1]s (%[2]s); INSERT INTO %[1]s VALUES (%[3]s);
			ALTER TABLE %[1]s ADD at date DEFAULT '2020-01-01';
			CREATE TRIGGER refuse BEFORE DELETE ON %[1]s FOR EACH ROW EXECUTE FUNCTION refuse()`, table, test.columns, test.row))
		policies = append(policies,
			policy.Policy{Name: table, Table: table, OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}})
	}
	j, _ := runPolicies(t, db, false, policies...) // they fail, since all rows do
	for table, test := range tests {
		j.checkLog(t, "WARNING", table+": "+test.want)
	}
}
