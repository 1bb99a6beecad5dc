package tasks_test

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// If a table that is swept, or that the rule reads, changes during a task, the batch that finds it changed is rolled
// back, and the task begins again with the changed table.
func TestRelationsThatChangeDuringARun(t *testing.T) {
	t.Parallel()
	orphans := policy.Policy{
		Name: "p", Table: "child", OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		OrphanOf: &policy.OrphanOf{Column: "parent", ParentTable: "parent", ParentColumn: "id"},
	}
	aged := policy.Policy{Name: "p", Table: "child", OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}}
	for name, c := range map[string]struct {
		policy policy.Policy
		change string // made after the first batch, of 20 rows
		count  string // the rows that matter
		want   int64
		said   string
	}{
		"row security on the parent": {
			orphans,
			"ALTER TABLE parent ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY visible ON parent USING " +
				"(id = 1000)",
			"SELECT count(*) FROM child WHERE parent <= 500", 500, `"public"."parent" changed`,
		},
		"the parent emptied": {
			orphans, "TRUNCATE parent", "SELECT count(*) FROM child WHERE parent <= 500", 500,
			`"public"."parent" changed`,
		},
		"a partition of the parent detached": {
			policy.Policy{
				Name: "p", Table: "child", OlderThan: orphans.OlderThan,
				OrphanOf: &policy.OrphanOf{Column: "parent", ParentTable: "parts", ParentColumn: "id"},
			},
			"ALTER TABLE parts DETACH PARTITION part1", "SELECT count(*) FROM child", 500, `"public"."parts" changed`,
		},
		"a key from a table on hold": {
			aged, "ALTER TABLE evidence ADD FOREIGN KEY (child) REFERENCES child ON DELETE CASCADE NOT VALID",
			"SELECT count(*) FROM evidence WHERE child > 600", 400, `"public"."child" changed`,
		},
		"exchanged": {
			aged, "ALTER TABLE child RENAME TO old; ALTER TABLE evidence RENAME TO child; ALTER TABLE child ADD at " +
				"timestamptz DEFAULT '2020-01-01'",
			"SELECT count(*) FROM child", 1000, "were replaced",
		},
		"the parent exchanged": {
			orphans,
			"ALTER TABLE parent RENAME TO old; CREATE TABLE parent AS SELECT 1000 AS id; GRANT ALL ON parent TO PUBLIC",
			"SELECT count(*) FROM child WHERE parent <= 500", 500, "were replaced",
		},
		"rewritten": {
			aged, "ALTER TABLE child ADD more int; ALTER TABLE child ALTER more TYPE bigint",
			"SELECT count(*) FROM child", 0, `"public"."child" changed`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "row security on the parent", "a key from a table on hold",
				"exchanged", "rewritten")
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(`CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent SELECT generate_series(1, 500);
				CREATE TABLE parts (id int) PARTITION BY RANGE (id);
				CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (1) TO (501);
				CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (501) TO (1001);
				INSERT INTO parts SELECT generate_series(1, 1000);
				CREATE TABLE child (id int PRIMARY KEY, parent int, at timestamptz);
				INSERT INTO child SELECT i, i, '2020-01-01' FROM generate_series(501, 1000) i;
				INSERT INTO child SELECT i, i, '2020-01-01' FROM generate_series(1, 500) i;
				INSERT INTO child SELECT i, 1000 + i, '2020-01-01' FROM generate_series(2001, 2500) i;
				CREATE TABLE evidence (id int PRIMARY KEY, child int);
				INSERT INTO evidence SELECT i, i FROM generate_series(1, 1000) i; ANALYZE`)
			j := newJournal(db)
			j.holds = func() rules.Holds {
				return rules.Holds{Names: []string{"court"}, Tables: heldTable("evidence")}
			}
			changed := false
			j.committed = func() {
				if !changed {
					changed = true
					db.Superuser(c.change)
				}
			}
			c.policy.Enabled = true
			catalog, err := campaign.LoadCatalog(t.Context(), db.Pool, campaign.Scope{
				Named: c.policy.Task().Names, NoCampaign: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.policy = c.policy.Resolve(catalog)
			_ = runWith(t, j, func(config *cleanup.Config) {
				config.NoCampaign, config.ContinueOnError, config.Settings.MaxRows = true, true, 20
				config.Pipeline, config.Todo = []rules.Task{c.policy.Task()}, []rules.Task{c.policy.Task()}
			})
			if n := db.Int(c.count); n != c.want || !changed {
				t.Errorf("%d rows are left, want %d; log %q", n, c.want, j.logs)
			}
			if said := strings.Join(j.logs, "; ") + j.problems["policy/p"]; !strings.Contains(said, c.said) {
				t.Errorf("%s, want %q in it", said, c.said)
			}
		})
	}
}

// A run warns if the service's own tables are published.
func TestPublishedSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Superuser(
		"CREATE SCHEMA cleanupd; CREATE TABLE cleanupd.any (id int); CREATE PUBLICATION everything FOR ALL TABLES")
	db.Do("CREATE TABLE child (id int PRIMARY KEY, at timestamptz)")
	p := policy.Policy{Name: "p", Table: "child", OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}}
	j, err := runPolicies(t, db, true, p)
	if err != nil {
		t.Fatal(err)
	}
	j.checkLog(t, "the tables of the schema cleanupd are published by everything")
}
