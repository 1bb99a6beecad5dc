package tasks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// If the database has changed since a policy was set, its task fails, or skips the table with a message. Nothing is
// deleted.
func TestPolicyOfAChangedDatabase(t *testing.T) {
	t.Parallel()
	closed := "closed"
	old := oldCustomers
	old.Filters = []policy.Filter{{Column: "state", Op: "EQUAL", Values: []string{"new"}}}
	changing := oldCustomers
	changing.Assign = []policy.Assign{{Column: "state", Value: &closed}}
	newest := policy.Policy{
		Name: "newest", Table: "purchase",
		KeepNewest: &policy.KeepNewest{Per: []string{"customer"}, OrderBy: "placed", Count: 2},
	}
	const skipped, failed = cleanup.Skipped, cleanup.Failed
	for name, test := range map[string]struct {
		policy policy.Policy
		change string
		state  cleanup.State
		want   string // in the problem, or in the log
	}{
		"a dropped table": {old, "DROP TABLE customer", skipped, `no table "customer"`},
		"a renamed table": {old, "ALTER TABLE customer RENAME TO c", skipped, `no table "customer"`},
		"a table that has moved": {
			old, "CREATE SCHEMA archive; ALTER TABLE customer SET SCHEMA archive", skipped, `no table "customer"`,
		},
		"a view in place of it": {
			old, "ALTER TABLE customer RENAME TO c; CREATE VIEW customer AS SELECT * FROM c", skipped, "view",
		},
		"a dropped date":          {old, "ALTER TABLE customer DROP seen", skipped, `no column "seen"`},
		"a renamed date":          {old, "ALTER TABLE customer RENAME seen TO was", skipped, `no column "seen"`},
		"a renamed filter":        {old, "ALTER TABLE customer RENAME state TO status", skipped, `no column "state"`},
		"a date that is a text":   {old, "ALTER TABLE customer ALTER seen TYPE text", skipped, "is not a date"},
		"a date that is a number": {old, "ALTER TABLE customer ALTER seen TYPE int USING 1", skipped, "is not a date"},
		"a filter of another type": {
			old, "ALTER TABLE customer ALTER state TYPE int USING 1", failed, "invalid input syntax",
		},
		"a dropped assigned column": {changing, "ALTER TABLE customer DROP state", skipped, `no column "state"`},
		"an assigned value that does not fit": {
			changing, "ALTER TABLE customer ALTER state TYPE varchar(3) USING 'new'", failed, "value too long",
		},
		"an assigned column that is a key": {
			changing, "ALTER TABLE customer ALTER state TYPE text; UPDATE customer SET state = id; " +
				"CREATE UNIQUE INDEX ON customer (state)",
			skipped, "unique index",
		},
		"a dropped parent": {orphanPurchases, "DROP TABLE customer", skipped, `no table "customer"`},
		"a renamed key of the parent": {
			orphanPurchases, "ALTER TABLE customer RENAME id TO no", skipped, `no column "id"`,
		},
		"an empty parent": {orphanPurchases, "TRUNCATE customer", skipped, "empty"},
		"a parent whose rows are hidden": {
			orphanPurchases, "ALTER TABLE customer ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", skipped,
			"row security",
		},
		"a key of another type": {orphanPurchases, "ALTER TABLE customer ALTER id TYPE text", skipped, "operator"},
		"a group's column that is gone": {
			newest, "ALTER TABLE purchase DROP customer", skipped, `no column "customer"`,
		},
		"a group that cannot be compared": {
			newest, "ALTER TABLE purchase ALTER customer TYPE json USING 'null'", skipped, "operator",
		},
		"an order that is a text": {
			newest, "ALTER TABLE purchase ALTER placed TYPE text", skipped, "not a date or a number",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "a dropped table", "a renamed filter", "a filter of another type")
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(family + ";" + test.change)
			before := everything(db)
			for _, dryRun := range []bool{true, false} {
				j, _ := runPolicies(t, db, dryRun, test.policy)
				if dryRun && test.want == "value too long" { // as writing it shows
					continue
				}
				j.checkState(t, test.policy.TaskName(), test.state)
				said := j.problems[test.policy.TaskName()] + strings.Join(j.logs, "; ")
				if !strings.Contains(said, test.want) {
					t.Errorf("dry run %t: %q, want %q in it", dryRun, said, test.want)
				}
				if test.state == skipped && test.want != "empty" && j.retained[test.policy.TaskName()].Tables != 1 {
					t.Errorf("dry run %t: no table counts as retained", dryRun)
				}
				if after := everything(db); after != before {
					t.Errorf("dry run %t: rows have changed from %s to %s", dryRun, before, after)
				}
			}
			task := test.policy.Task()
			c := cleanup.Config{Pool: db.Pool, NoCampaign: true, Pipeline: []rules.Task{task}}
			f, err := insight.NewForecaster(t.Context(), c, rules.Holds{}, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			due, err := f.Task(t.Context(), task)
			if err != nil ||
				(!strings.Contains(due.Why, test.want) && test.want != "value too long" && test.want != "empty") {
				t.Errorf("the forecast says %q, %v; want %q in it", due.Why, err, test.want)
			}
		})
	}
}

func everything(db *pgtest.DB) (all string) {
	for _, table := range []string{"customer", "c", "purchase"} {
		exists := db.Int("SELECT count(*) FROM pg_class WHERE oid = to_regclass($1) AND relkind = 'r'", table) > 0
		if exists {
			digest := "SELECT concat(md5(string_agg(t::text, ',' ORDER BY t::text)), count(*)) FROM " + table + " AS t"
			all += table + " " + strings.Join(db.Strings(digest), "")
		}
	}
	return all
}

// A table's name without a schema may come to mean a table that no policy may change.
func TestPolicyOfANameThatMoves(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE SCHEMA later; CREATE TABLE later.xtkworkflow (iWorkflowId int, tsLastModified timestamptz);
		INSERT INTO later.xtkworkflow VALUES (1, '2000-01-01');
		INSERT INTO XtkWorkflow (iWorkflowId) VALUES (1)`)
	p := policy.Policy{
		Name:      "moved",
		Table:     "XtkWorkflow",
		Enabled:   true,
		OlderThan: &policy.OlderThan{Column: "tsLastModified", Days: new(1)},
	}
	j, err := run(t, db, func(c *cleanup.Config) {
		c.Pipeline, c.Todo = append(c.Pipeline, p.Task()), append(c.Todo[:0], p.Task())
	})
	if err != nil {
		t.Fatal(err)
	}
	j.checkState(t, "policy/moved", cleanup.Skipped)
	j.checkLog(t, "WARNING", "skipped policy: ", "workflows")
	checkCount(t, db, 2, "SELECT (SELECT count(*) FROM XtkWorkflow) + (SELECT count(*) FROM later.xtkworkflow)")
}
