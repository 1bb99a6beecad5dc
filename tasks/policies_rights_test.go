package tasks_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A policy that lacks a right fails alone: the others run, even those that come after it.
func TestPoliciesDoNotDependOnEachOther(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(family + "; GRANT SELECT, DELETE ON customer, line TO " + role + "; GRANT SELECT ON purchase TO " + role)
	db.Do("DELETE FROM purchase WHERE id > 200")
	j, err := runPolicies(t, db.For(role), false, oldCustomers, orphanPurchases, orphanLines)
	checkError(t, err, `task policy/b-purchases failed: `, `GRANT DELETE ON "public"."purchase" TO "`+role+`"`)
	j.checkState(t, oldCustomers.TaskName(), cleanup.Succeeded)
	j.checkState(t, orphanPurchases.TaskName(), cleanup.Failed)
	j.checkState(t, orphanLines.TaskName(), cleanup.Succeeded)
	j.checkDeleted(t, oldCustomers.TaskName(), 10)
	checkCount(t, db, 200, "SELECT count(*) FROM purchase")
	j.checkDeleted(t, orphanLines.TaskName(), 300)
}

// The share guard uses the planner's number of rows for a partition that the role may not count.
func TestShareBesideAPartitionWithoutRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(`CREATE TABLE event (id int, day timestamptz) PARTITION BY RANGE (day);
		CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
		CREATE TABLE event_new PARTITION OF event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
		INSERT INTO event SELECT i, '2024-06-01' FROM generate_series(1, 500) i;
		INSERT INTO event SELECT i, '2026-02-10' FROM generate_series(501, 2500) i;
		ANALYZE event_new; GRANT SELECT, DELETE ON event, event_old TO ` + role)
	p := policy.Policy{
		Name: "p", Table: "event", Enabled: true, OlderThan: &policy.OlderThan{Column: "day", Days: new(30)},
	}
	for _, c := range []struct {
		share   float64
		refused bool
	}{{10, true}, {30, false}} { // a fifth of the rows is old
		j := newJournal(db.For(role))
		j.history = &guard.History{
			Limits: guard.Limits{MinRows: 1, MaxSharePercent: c.share}, Proven: p.Basis(),
		}
		err := runWith(t, j, func(config *cleanup.Config) {
			config.NoCampaign, config.Pipeline, config.Todo = true, []rules.Task{p.Task()}, []rules.Task{p.Task()}
		})
		if refusal := (*failure.Refusal)(nil); errors.As(err, &refusal) != c.refused || (err != nil) != c.refused {
			t.Errorf("at most %v %%: %v", c.share, err)
		}
	}
	checkCount(t, db, 2_000, "SELECT count(*) FROM event")
}

// A missing right to a partition does not matter as long as no row in it can be obsolete.
func TestPartitionsWithoutRights(t *testing.T) {
	t.Parallel()
	const (
		byMonth = `CREATE TABLE event (id int, day timestamptz, state text) PARTITION BY RANGE (day);
			CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
			CREATE TABLE event_new PARTITION OF event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
			INSERT INTO event SELECT i, '2024-06-01', 'open' FROM generate_series(1, 5) i;`
		young = `INSERT INTO event SELECT i, '2026-02-10', 'open' FROM generate_series(6, 7) i;`
		byID  = `CREATE TABLE event (id int, day timestamptz, state text) PARTITION BY RANGE (id);
			CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO (6);
			CREATE TABLE event_new PARTITION OF event FOR VALUES FROM (6) TO (MAXVALUE);
			INSERT INTO event SELECT i, '2024-06-01', 'open' FROM generate_series(1, 5) i;`
		grants = "GRANT SELECT, DELETE ON event, event_old TO "
	)
	old := policy.Policy{Name: "old", Table: "event", OlderThan: &policy.OlderThan{Column: "day", Days: new(30)}}
	recent := policy.Policy{Name: "old", Table: "event", OlderThan: &policy.OlderThan{Column: "day", Days: new(10)}}
	open := policy.Policy{
		Name: "old", Table: "event", OlderThan: old.OlderThan,
		Filters: []policy.Filter{{Column: "state", Op: "EQUAL", Values: []string{"open"}}},
	}
	for what, c := range map[string]struct {
		setup   string
		policy  policy.Policy
		says    string // what the log says about the partition
		problem string // why the policy fails
	}{
		"empty":                     {setup: byMonth, policy: recent, says: "it is empty"},
		"empty, by id":              {setup: byID, policy: old, says: "it is empty"},
		"after the cutoff":          {setup: byMonth + young, policy: old, says: "it begins after the cutoff"},
		"after the cutoff, filters": {setup: byMonth + young, policy: open, says: "it begins after the cutoff"},
		"before the cutoff":         {setup: byMonth + young, policy: recent, problem: `ON "public"."event_new"`},
		"by id":                     {setup: byID + young, policy: old, problem: `ON "public"."event_new"`},
		"locked": {
			setup: byMonth, policy: recent, problem: `ON "public"."event_new"`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			suite.Except(t, suite.Long, "empty, by id", "after the cutoff, filters",
				"before the cutoff", "locked")
			t.Parallel()
			db := pgtest.Empty(t)
			role := db.Role("cleaner")
			db.Do(c.setup + grants + role)
			if what == "locked" { // whether it is empty is not known then
				db.Hold("LOCK TABLE event_new")
			}
			for _, isDry := range []bool{true, false} {
				j, err := runPolicies(t, db.For(role), isDry, c.policy)
				if c.problem != "" {
					checkError(t, err, "GRANT SELECT", c.problem)
					checkCount(t, db, 5, "SELECT count(*) FROM event_old")
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				j.checkDeleted(t, c.policy.TaskName(), 5)
				j.checkLog(t, "INFO", `"public"."event_new"`, c.says, "GRANT SELECT", role)
			}
			if c.problem == "" {
				checkCount(t, db, int64(strings.Count(c.setup, "(6, 7)")*2), "SELECT count(*) FROM event")
			}
		})
	}
}

// Keys delete nothing in an empty partition, so no right to it is needed.
func TestEmptyPartitionOfAChildWithoutRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(customers + `CREATE TABLE event (customer int REFERENCES customer ON DELETE CASCADE, day date)
			PARTITION BY RANGE (day);
		CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
		CREATE TABLE event_next PARTITION OF event FOR VALUES FROM ('2026-04-01') TO ('2026-05-01');
		INSERT INTO event SELECT i, '2024-06-01' FROM generate_series(11, 40) i;
		GRANT SELECT, DELETE ON customer TO ` + role + `;
		GRANT SELECT ON orders, visit, note, event, event_old TO ` + role)
	for _, isDry := range []bool{true, false} {
		j, err := runPolicies(t, db.For(role), isDry, goneCustomers(false))
		if err != nil {
			t.Fatal(err)
		}
		if rows := j.cascaded["policy/gone"]; rows != 40 { // 10 visits and 30 events
			t.Errorf("foreign keys delete %d rows, want 40", rows)
		}
		j.checkLog(t, "INFO", `"public"."event_next"`, "it is empty", "GRANT SELECT", role)
	}
}

// A dry run and the explanation of a row need only SELECT, and name the rights that the run will lack.
func TestRightsThatOnlyARunNeeds(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("reader")
	db.Do(`CREATE TABLE cart (id int PRIMARY KEY, seen timestamptz); INSERT INTO cart VALUES (1, '2024-06-01'), (2, now());
		GRANT SELECT ON cart TO ` + role)
	carts := policy.Policy{
		Name: "carts", Table: "cart", OlderThan: &policy.OlderThan{Column: "seen", Days: new(30)}, Enabled: true,
	}
	j, err := runPolicies(t, db.For(role), true, carts)
	if err != nil {
		t.Fatal(err)
	}
	grant := `GRANT DELETE ON "public"."cart" TO "` + role + `"`
	j.checkDeleted(t, carts.TaskName(), 1)
	got := j.details[carts.TaskName()]
	if !strings.Contains(got, "rights that a run needs") || !strings.Contains(got, grant) {
		t.Errorf("the dry run says %q, want the GRANT", got)
	}
	e, err := insight.NewExplainer(t.Context(), cleanup.Config{
		Pool: db.For(role).Pool, NoCampaign: true, Pipeline: []rules.Task{carts.Task()},
	}, rules.Holds{}, "cart")
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]insight.Verdict{"1": insight.Unknown, "2": insight.DeletedLater} {
		x, err := e.Row(t.Context(), []insight.KeyColumn{{Value: id}}, anyKey)
		if err != nil || x.Verdict != want || strings.Contains(x.Why, grant) != (want == insight.Unknown) {
			t.Errorf("row %s: %v because %q, %v; want %v", id, x.Verdict, x.Why, err, want)
		}
	}
	_, err = runPolicies(t, db.For(role), false, carts)
	checkError(t, err, grant)
}

// Setting, previewing and running a policy report the same missing rights, all at once. Setting it also names those to
// tables that only keep rows, as Grants does. Once they are granted, nothing is missing.
func TestMissingRightsAgree(t *testing.T) {
	t.Parallel()
	const setup = `
		CREATE TABLE customer (id int PRIMARY KEY, seen timestamptz);
		CREATE TABLE cart (id int PRIMARY KEY, customer int REFERENCES customer ON DELETE CASCADE);
		CREATE TABLE item (id int PRIMARY KEY, cart int REFERENCES cart ON DELETE CASCADE);
		CREATE TABLE visit (customer int REFERENCES customer ON DELETE CASCADE, day date) PARTITION BY RANGE (day);
		CREATE TABLE visit_all PARTITION OF visit DEFAULT;
		CREATE TABLE note (customer int REFERENCES customer ON DELETE SET NULL);
		CREATE TABLE invoice (id int PRIMARY KEY, customer int REFERENCES customer);
		CREATE TABLE copy (cart int REFERENCES cart);
		CREATE TABLE tree (id int PRIMARY KEY, seen timestamptz, parent int REFERENCES tree ON DELETE CASCADE);
		CREATE TABLE twig (id int PRIMARY KEY, tree int REFERENCES tree ON DELETE CASCADE);
		CREATE TABLE leaf (twig int REFERENCES twig ON DELETE CASCADE);
		INSERT INTO customer SELECT i, '2020-01-01' FROM generate_series(1, 5) i;
		INSERT INTO cart SELECT i, i FROM generate_series(1, 5) i; INSERT INTO item SELECT i, i FROM generate_series(1, 5) i;
		INSERT INTO visit SELECT i, '2020-01-01' FROM generate_series(1, 5) i;
		INSERT INTO note VALUES (1); INSERT INTO invoice VALUES (1, 2); INSERT INTO copy VALUES (3);
		INSERT INTO tree SELECT i, '2020-01-01', NULLIF(i - 1, 0) FROM generate_series(1, 5) i;
		INSERT INTO twig SELECT i, i FROM generate_series(1, 5) i; INSERT INTO leaf SELECT i FROM generate_series(1, 5) i;`
	old := policy.Policy{
		Name: "p", Table: "customer", Enabled: true, OlderThan: &policy.OlderThan{Column: "seen", Days: new(30)},
	}
	kept, trees, carts, items := old, old, old, old
	kept.Undo, trees.Table = new(time.Hour), "tree"
	carts.OrphanOf = &policy.OrphanOf{Column: "customer", ParentTable: "customer", ParentColumn: "id"}
	carts.Table, carts.OlderThan = "cart", nil
	items.Table, items.OlderThan = "item", nil
	items.OrphanOf = &policy.OrphanOf{Column: "cart", ParentTable: "cart", ParentColumn: "id"}
	all := []string{
		"SELECT, DELETE customer", "SELECT cart", "SELECT item", "SELECT visit", "SELECT visit_all", "SELECT note",
	}
	for name, c := range map[string]struct {
		policy policy.Policy
		setup  string
		want   []string // what is missing
		keep   string   // which tables only keep rows
	}{
		"cascades": {old, "", all, "invoice copy"},
		"half granted": {old, "GRANT SELECT ON customer, item, visit TO ?; GRANT DELETE ON customer TO ?", []string{
			"SELECT cart", "SELECT visit_all", "SELECT note",
		}, "invoice copy"},
		"circle":         {trees, "", []string{"SELECT, DELETE tree", "SELECT twig", "SELECT leaf"}, ""},
		"orphans":        {carts, "", []string{"SELECT, DELETE cart", "SELECT customer", "SELECT item"}, "copy"},
		"orphans, alone": {items, "", []string{"SELECT, DELETE item", "SELECT cart"}, ""},
		"undo": {kept, "DROP TABLE note", []string{
			"SELECT, DELETE customer", "SELECT, UPDATE cart", "SELECT, UPDATE item", "SELECT, UPDATE visit", "SELECT visit_all",
		}, "invoice copy"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "orphans", "cascades")
			t.Parallel()
			db := pgtest.Empty(t)
			role := db.Role("cleaner")
			db.Do(setup + strings.ReplaceAll(c.setup, "?", role))
			grants := func(err error) (list []string) {
				if err == nil {
					return nil
				}
				_, said, _ := strings.Cut(err.Error(), "have the tables' owner execute: ")
				for s := range strings.SplitSeq(said, "; ") {
					list = append(list, s)
				}
				slices.Sort(list)
				return list
			}
			var want []string
			for _, w := range c.want {
				i := strings.LastIndex(w, " ")
				want = append(want, fmt.Sprintf(`GRANT %s ON "public"."%s" TO "%s"`, w[:i], w[i+1:], role))
			}
			toSet := slices.Clone(want)
			for _, table := range strings.Fields(c.keep) {
				toSet = append(toSet, fmt.Sprintf(`GRANT SELECT ON "public"."%s" TO "%s"`, table, role))
			}
			slices.Sort(want)
			slices.Sort(toSet)
			inSet := checkPolicy(t, db.For(role), c.policy)
			if diff := cmp.Diff(toSet, grants(inSet)); diff != "" {
				t.Errorf("when it is set (-want +got):\n%s", diff)
			}
			execute := func(isDry bool) (*journal, error) {
				return run(t, db.For(role), func(config *cleanup.Config) {
					config.ID, config.DryRun, config.NoCampaign, config.TrashMaxBytes = uuid.NewString(), isDry, true, 1<<30
					config.Pipeline, config.Todo = []rules.Task{c.policy.Task()}, []rules.Task{c.policy.Task()}
				})
			}
			_, inDryRun := execute(true)
			_, inRun := execute(false)
			for where, err := range map[string]error{"previewed": inDryRun, "run": inRun} {
				if diff := cmp.Diff(want, grants(err)); diff != "" {
					t.Errorf("when it is %s (-want +got):\n%s", where, diff)
				}
			}
			for _, statement := range toSet {
				db.Do(statement)
			}
			if err := checkPolicy(t, db.For(role), c.policy); err != nil {
				t.Error(err)
			}
			db.Superuser("GRANT CREATE ON DATABASE " + db.Name + " TO " + role)
			migrate(t, db.For(role))
			preview, err := execute(true)
			if err != nil {
				t.Fatal(err)
			}
			run, err := execute(false)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(preview.deleted, run.deleted) || !maps.Equal(preview.cascaded, run.cascaded) ||
				!maps.Equal(preview.updated, run.updated) {
				t.Errorf("a preview of %v, %v and %v, and a run of %v, %v and %v", preview.deleted, preview.cascaded,
					preview.updated, run.deleted, run.cascaded, run.updated)
			}
		})
	}
}

// A task of the application goes on if foreign keys delete rows that the role may not read, or may find only through
// such rows: a dry run leaves these out, and a run counts them.
func TestCascadesThroughHiddenTables(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string]string{"a table": "cart", "a partition": "cart_all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			role := db.Role("cleaner")
			db.Do(`CREATE TABLE customer (id int PRIMARY KEY, seen timestamptz);
				CREATE TABLE cart (id int PRIMARY KEY, customer int REFERENCES customer ON DELETE CASCADE) PARTITION BY RANGE (id);
				CREATE TABLE cart_all PARTITION OF cart DEFAULT;
				CREATE TABLE item (id int PRIMARY KEY, cart int REFERENCES cart ON DELETE CASCADE);
				INSERT INTO customer VALUES (1, '2020-01-01'); INSERT INTO cart VALUES (1, 1); INSERT INTO item VALUES (1, 1);
				GRANT SELECT, DELETE ON customer TO ` + role + "; GRANT SELECT ON item, cart, cart_all TO " + role +
				"; REVOKE SELECT ON " + hidden + " FROM " + role)
			task := rules.Task{Name: "customers", Names: []string{"customer"}, Steps: []rules.Step{{
				On: rules.Table("customer"), Rules: rules.Rules{{rules.Past("seen")}},
			}}}
			for _, isDry := range []bool{true, false} {
				j, err := run(t, db.For(role), func(c *cleanup.Config) {
					c.DryRun, c.NoCampaign, c.Pipeline, c.Todo = isDry, true, []rules.Task{task}, []rules.Task{task}
				})
				if err != nil {
					t.Fatal(err)
				}
				j.checkLog(t, "WARNING", `rows of "public"."cart"`, "cannot read completely")
				if want := map[bool]int64{false: 2}[isDry]; j.deleted["customers"] != 1 || j.cascaded["customers"] != want {
					t.Errorf("dry run %t: %d and %d rows", isDry, j.deleted["customers"], j.cascaded["customers"])
				}
			}
		})
	}
}

// Once their grants are executed, a role that had no rights can do all that policies need, also in partitions that are
// created later. The grants do not depend on what is granted already.
func TestGrantsSuffice(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(`CREATE SCHEMA "Shop";
		CREATE TABLE "Shop".account (id serial PRIMARY KEY, seen timestamptz, name text);
		CREATE TABLE "Shop".visit (account int REFERENCES "Shop".account ON DELETE CASCADE);
		CREATE TABLE "Shop".event (id int, account int, day timestamptz) PARTITION BY RANGE (day);
		CREATE TABLE "Shop".event_old PARTITION OF "Shop".event FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
		INSERT INTO "Shop".account (seen, name) SELECT '2020-01-01', 'x' FROM generate_series(1, 10);
		INSERT INTO "Shop".visit SELECT 1 FROM generate_series(1, 5);
		INSERT INTO "Shop".event SELECT i, i, '2024-06-01' FROM generate_series(1, 20) i`)
	seen := &policy.OlderThan{Column: "seen", Days: new(365)}
	policies := []policy.Policy{
		{Name: "1-accounts", Table: `"Shop".account`, OlderThan: seen},
		{Name: "2-names", Table: `"Shop".account`, OlderThan: seen, Assign: []policy.Assign{{Column: "name"}}},
		{
			Name: "3-events", Table: `"Shop".event`,
			OrphanOf: &policy.OrphanOf{Column: "account", ParentTable: `"Shop".account`, ParentColumn: "id"},
		},
	}
	with := func(do func(tx pgx.Tx, p policy.Policy, env rules.Env) error) {
		for _, p := range policies {
			if err := pgx.BeginFunc(t.Context(), db.For(role).Pool, func(tx pgx.Tx) error {
				catalog, err := campaign.LoadCatalog(t.Context(), tx,
					campaign.Scope{Named: p.Task().Names, NoCampaign: true})
				if err != nil {
					return err
				}
				return do(tx, p, rules.Env{Catalog: catalog})
			}); err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
		}
	}
	grants := func() (all []string) {
		with(func(tx pgx.Tx, p policy.Policy, env rules.Env) error {
			statements, err := p.Grants(t.Context(), tx, env)
			all = append(all, statements...)
			return err
		})
		return all
	}
	before := grants()
	want := strings.ReplaceAll(`GRANT USAGE ON SCHEMA "Shop" TO "~"
GRANT SELECT, DELETE ON "Shop"."account" TO "~"
GRANT SELECT ON "Shop"."visit" TO "~"
GRANT SELECT ON SEQUENCE "Shop"."account_id_seq" TO "~"
GRANT USAGE ON SCHEMA "Shop" TO "~"
GRANT SELECT, UPDATE ON "Shop"."account" TO "~"
GRANT SELECT ON SEQUENCE "Shop"."account_id_seq" TO "~"
GRANT USAGE ON SCHEMA "Shop" TO "~"
GRANT SELECT, DELETE ON "Shop"."event" TO "~"
GRANT SELECT ON "Shop"."account" TO "~"
GRANT SELECT, DELETE ON "Shop"."event_old" TO "~"
`, "~", role)
	future := `ALTER DEFAULT PRIVILEGES FOR ROLE "neolane" IN SCHEMA "Shop" GRANT SELECT, DELETE ON TABLES TO "` +
		role + `"`
	if got := strings.Join(before, "\n"); got != want+future {
		t.Errorf("got the grants\n%s\nwant\n%s", got, want)
	}
	for _, statement := range before {
		db.Do(statement)
	}
	if after := strings.Join(grants(), "\n") + "\n"; after != want { // the default privileges are set
		t.Errorf("once they are granted, the grants are\n%s\nwant\n%s", after, want)
	}
	db.Do(`CREATE TABLE "Shop".event_new PARTITION OF "Shop".event FOR VALUES FROM ('2025-01-01') TO (MAXVALUE);
		INSERT INTO "Shop".event VALUES (21, 99, '2026-02-10')`)
	with(func(tx pgx.Tx, p policy.Policy, env rules.Env) error { return p.Check(t.Context(), tx, env) })
	j, err := runPolicies(t, db.For(role), false, policies...)
	if err != nil {
		t.Fatal(err)
	}
	for i, deleted := range []int64{10, 0, 0} {
		j.checkDeleted(t, policies[i].TaskName(), deleted)
	}
	// until now the table of parents was empty, which proves nothing
	db.Do(`INSERT INTO "Shop".account (id, seen, name) VALUES (100, now(), 'x')`)
	if j, err = runPolicies(t, db.For(role), false, policies[2]); err != nil {
		t.Fatal(err)
	}
	j.checkDeleted(t, policies[2].TaskName(), 21)
	db.For(role).Do(`SELECT last_value FROM "Shop".account_id_seq`)
}
