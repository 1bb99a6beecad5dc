package tasks_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func runPolicies(t *testing.T, db *pgtest.DB, dryRun bool, policies ...policy.Policy) (*journal, error) {
	t.Helper()
	j := newJournal(db)
	return j, runPoliciesWith(t, j, dryRun, policies...)
}

// previewAndRun returns what a dry run counts, and then what a run does.
func previewAndRun(t *testing.T, db *pgtest.DB, policies ...policy.Policy) (dry, done *journal) {
	t.Helper()
	dry, err := runPolicies(t, db, true, policies...)
	if err != nil {
		t.Fatal(err)
	}
	if done, err = runPolicies(t, db, false, policies...); err != nil {
		t.Fatal(err)
	}
	return dry, done
}

func runPoliciesWith(t *testing.T, j *journal, dryRun bool, policies ...policy.Policy) error {
	t.Helper()
	return runWith(t, j, func(c *cleanup.Config) {
		c.DryRun, c.NoCampaign, c.Pipeline, c.Todo = dryRun, true, nil, nil
		for _, p := range policies {
			p.Enabled = true
			c.Pipeline, c.Todo = append(c.Pipeline, p.Task()), append(c.Todo, p.Task())
		}
	})
}

// inSchema executes SQL in a schema of its own, for one of several cases that share a database and a run. It returns
// the name of the schema, which is also fit for a policy.
func inSchema(db *pgtest.DB, name, sql string) string {
	schema := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '_'
	}, name)
	db.Do("CREATE SCHEMA " + schema + "; SET search_path = " + schema + "; " + sql + "; RESET search_path")
	return schema
}

// family creates customers, every third of them old, with purchases and the lines of the purchases.
const family = `CREATE TABLE customer (id int PRIMARY KEY, seen timestamptz, state text);
	CREATE TABLE purchase (id int PRIMARY KEY, customer int, placed timestamptz);
	CREATE TABLE line (id int PRIMARY KEY, purchase int, price numeric(8,2));
	INSERT INTO customer SELECT i, CASE i % 3 WHEN 0 THEN timestamptz '2020-01-01' ELSE '2026-02-28' END, 'new'
		FROM generate_series(1, 30) i;
	INSERT INTO purchase SELECT i, 1 + i % 30, timestamptz '2026-01-01' + i * interval '1 hour'
		FROM generate_series(1, 300) i;
	INSERT INTO line SELECT i, 1 + i % 300, i FROM generate_series(1, 900) i`

// Policies of family. Each deletes the orphans that the one before it makes.
var (
	oldCustomers = policy.Policy{
		Name: "a-customers", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
	}
	orphanPurchases = policy.Policy{
		Name: "b-purchases", Table: "purchase",
		OrphanOf: &policy.OrphanOf{Column: "customer", ParentTable: "customer", ParentColumn: "id"},
	}
	orphanLines = policy.Policy{
		Name: "c-lines", Table: "line",
		OrphanOf: &policy.OrphanOf{Column: "purchase", ParentTable: "purchase", ParentColumn: "id"},
	}
)

// A dry run accounts for the rows that earlier policies would delete, or remarks that its number is an estimate.
func TestDryRunOfPoliciesInARow(t *testing.T) {
	t.Parallel()
	state := "closed"
	newest := policy.Policy{
		Name: "d-newest", Table: "purchase",
		KeepNewest: &policy.KeepNewest{Per: []string{"customer"}, OrderBy: "placed", Count: 2},
	}
	oldPurchases := policy.Policy{
		Name: "a-purchases", Table: "purchase", OlderThan: &policy.OlderThan{Column: "placed", Days: new(50)},
	}
	const setUpKept = `ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer;
		UPDATE purchase SET placed = '2025-01-01' WHERE customer % 3 = 0`
	const chains = `; ALTER TABLE purchase ADD after int REFERENCES purchase;
		UPDATE purchase SET after = 2 WHERE id = 32; UPDATE purchase SET after = 32 WHERE id = 4;
		UPDATE purchase SET after = 35 WHERE id = 6; UPDATE purchase SET after = 38 WHERE id = 8`
	newestOfAll := policy.Policy{
		Name: "e-newest", Table: "purchase", KeepNewest: &policy.KeepNewest{OrderBy: "placed", Count: 150},
	}
	for name, test := range map[string]struct {
		setUp    string
		policies []policy.Policy
		// estimates are the tasks whose numbers are estimates. The others must be exact.
		estimates []string
		held      string // the customer whose purchases are on hold
	}{
		"parents and their orphans": {policies: []policy.Policy{oldCustomers, orphanPurchases}},
		"orphans of orphans": {
			policies:  []policy.Policy{oldCustomers, orphanPurchases, orphanLines},
			estimates: []string{"policy/c-lines"},
		},
		"the newest of the remaining ones": {policies: []policy.Policy{
			{Name: "a", Table: "purchase", OlderThan: &policy.OlderThan{
				Column: "placed", Days: new(50),
			}, Filters: []policy.Filter{
				{Column: "customer", Op: "LESS", Values: []string{"10"}},
			}},
			newest,
		}},
		"the newest of the remaining ones, by an index": {
			setUp: "CREATE INDEX ON purchase (customer, placed)",
			policies: []policy.Policy{
				{Name: "a", Table: "purchase", OlderThan: &policy.OlderThan{Column: "placed", Days: new(50)}}, newest,
			},
		},
		"the newest after orphans": {
			policies:  []policy.Policy{oldCustomers, orphanPurchases, newest},
			estimates: []string{"policy/d-newest"},
		},
		"a rule that reads what another one changes": {
			policies: []policy.Policy{
				{
					Name: "a", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
					Assign: []policy.Assign{{Column: "state", Value: &state}},
				},
				{
					Name: "b", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(400)},
					Filters: []policy.Filter{{Column: "state", Op: "EQUAL", Values: []string{state}}},
				},
			},
			estimates: []string{"policy/b"},
		},
		"rows that a foreign key deletes": {
			setUp: "ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE CASCADE",
			policies: []policy.Policy{
				oldCustomers,
				{Name: "b", Table: "purchase", OlderThan: &policy.OlderThan{Column: "placed", Days: new(50)}},
			},
		},
		"the newest after rows that a foreign key deletes": {
			setUp:    "ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE CASCADE",
			policies: []policy.Policy{oldCustomers, newestOfAll},
		},
		"the newest after rows that several foreign keys delete": {
			setUp: `ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE CASCADE;
				ALTER TABLE line ADD FOREIGN KEY (purchase) REFERENCES purchase ON DELETE CASCADE, ADD kind int;
				UPDATE line SET kind = id % 70; CREATE INDEX ON line (kind, price);
				CREATE TABLE bill (customer int REFERENCES customer, line int REFERENCES line);
				INSERT INTO bill VALUES (3, NULL), (NULL, 205)`,
			policies: []policy.Policy{oldCustomers, {
				Name: "b", Table: "line", KeepNewest: &policy.KeepNewest{Per: []string{"kind"}, OrderBy: "price", Count: 5},
			}},
		},
		"the newest after rows that a foreign key deletes with orphans": {
			setUp: `ALTER TABLE line ADD FOREIGN KEY (purchase) REFERENCES purchase ON DELETE CASCADE`,
			policies: []policy.Policy{oldCustomers, orphanPurchases, {
				Name: "c", Table: "line", KeepNewest: &policy.KeepNewest{OrderBy: "price", Count: 500},
			}},
			estimates: []string{"policy/c"},
		},
		"the newest after rows to which none refers": {
			setUp: `DELETE FROM purchase WHERE customer % 2 = 0;
				ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE SET NULL`,
			policies: []policy.Policy{{
				Name: "a", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)}, Unreferenced: true,
			}, newest},
		},
		"the newest after rows to which others refer": {
			setUp:     "ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE SET NULL",
			policies:  []policy.Policy{oldCustomers, newest},
			estimates: []string{"policy/d-newest"},
		},
		"rows that foreign keys of two policies change": {
			setUp: `ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE SET NULL,
				ADD shop int REFERENCES customer ON DELETE SET NULL;
				UPDATE purchase SET shop = 2, customer = 3 WHERE id < 20;
				UPDATE customer SET state = 'old', seen = '2020-01-01' WHERE id = 2`,
			policies: []policy.Policy{
				{
					Name: "a", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
					Filters: []policy.Filter{{Column: "state", Op: "EQUAL", Values: []string{"old"}}},
				},
				oldCustomers,
			},
			estimates: []string{"policy/a", oldCustomers.TaskName()},
		},
		"rows that a foreign key and one of rows that it deletes change": {
			setUp: `ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE CASCADE;
				ALTER TABLE line ADD FOREIGN KEY (purchase) REFERENCES purchase ON DELETE SET NULL,
					ADD customer int REFERENCES customer ON DELETE SET NULL;
				UPDATE line SET customer = (SELECT customer FROM purchase WHERE id = purchase)`,
			policies:  []policy.Policy{oldCustomers},
			estimates: []string{oldCustomers.TaskName()},
		},
		"rows that foreign keys of one policy change": {
			setUp:    "ALTER TABLE purchase ADD FOREIGN KEY (customer) REFERENCES customer ON DELETE SET NULL",
			policies: []policy.Policy{oldCustomers},
		},
		"rows to which those on hold refer": {
			setUp: setUpKept, held: "3",
			policies: []policy.Policy{oldPurchases, oldCustomers},
		},
		"rows to which none on hold refers": {
			setUp: setUpKept, held: "999",
			policies: []policy.Policy{oldPurchases, oldCustomers},
		},
		"rows to which those on hold refer, and none else": {
			setUp: setUpKept, held: "3",
			policies: []policy.Policy{oldPurchases, {
				Name: "b", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)}, Unreferenced: true,
			}},
		},
		"rows to which dependent rows refer": {
			setUp: setUpKept + chains, policies: []policy.Policy{oldPurchases, oldCustomers},
		},
		"orphans of dependent rows": {setUp: setUpKept + chains, policies: []policy.Policy{oldPurchases, orphanLines}},
		"orphans of rows that would be deleted with dependent rows": {
			setUp:    setUpKept + strings.Replace(chains, "purchase;", "purchase ON DELETE CASCADE;", 1),
			policies: []policy.Policy{oldPurchases, orphanLines},
		},
		"rows to which dependent rows refer after another policy": {
			setUp: setUpKept + chains,
			policies: []policy.Policy{{
				Name: "a", Table: "purchase", OlderThan: &policy.OlderThan{Column: "placed", Days: new(50)},
				Filters: []policy.Filter{{Column: "customer", Op: "EQUAL", Values: []string{"5"}}},
			}, {
				Name: "b", Table: "purchase", OlderThan: &policy.OlderThan{Column: "placed", Days: new(50)},
				Filters: []policy.Filter{{Column: "customer", Op: "IN", Values: []string{"3", "6", "9"}}},
			}, oldCustomers},
			estimates: []string{"policy/b"},
		},
		"orphans of rows that other tables make dependent": {
			setUp: setUpKept + `; CREATE TABLE part (id int PRIMARY KEY, purchase int REFERENCES purchase ON DELETE CASCADE);
				INSERT INTO part VALUES (1, 2); ALTER TABLE purchase ADD part int REFERENCES part;
				UPDATE purchase SET part = 1 WHERE id = 4`,
			policies:  []policy.Policy{oldPurchases, orphanLines},
			estimates: []string{orphanLines.TaskName()},
		},
		"the newest after rows on hold": {held: "9", policies: []policy.Policy{oldPurchases, newest}},
		"rows to which the newest refer": {
			setUp:     setUpKept,
			policies:  []policy.Policy{newest, oldCustomers},
			estimates: []string{oldCustomers.TaskName()},
		},
		"orphans in a tree": {
			setUp: "UPDATE purchase SET customer = id - 1",
			policies: []policy.Policy{{
				Name: "a", Table: "purchase",
				OrphanOf: &policy.OrphanOf{Column: "customer", ParentTable: "purchase", ParentColumn: "id"},
			}},
			estimates: []string{"policy/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "rows that a foreign key deletes", "rows to which the newest refer",
				"orphans in a tree", "rows to which those on hold refer", "rows to which dependent rows refer")
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(family + ";" + test.setUp)
			do := func(dryRun bool) *journal {
				j := newJournal(db)
				if test.held != "" {
					holds := heldRows("public.purchase", [3]string{"customer", "int4", test.held})
					holds.Rows[0].OID = uint32(db.Int("SELECT 'purchase'::regclass::oid::bigint"))
					j.holds = func() rules.Holds { return holds }
				}
				if err := runPoliciesWith(t, j, dryRun, test.policies...); err != nil {
					t.Fatal(err)
				}
				return j
			}
			dryRun, j := do(true), do(false)
			for _, p := range test.policies {
				name := p.TaskName()
				remarks := ""
				for _, shown := range dryRun.previews[name] {
					remarks += strings.Join(shown.Remarks, "; ")
				}
				estimate := slices.Contains(test.estimates, name)
				if estimate != strings.Contains(remarks, "an estimate") {
					t.Errorf("the remarks of %s are %q", name, remarks)
				}
				found, done := dryRun.deleted[name]+dryRun.updated[name], j.deleted[name]+j.updated[name]
				if !estimate && (found != done || done == 0) {
					t.Errorf("%s: the dry run found %d rows, the run %d", name, found, done)
				}
			}
		})
	}
}
