package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// customers creates 40 old customers. Ten have an order, which keeps them; ten have a visit, which is deleted with
// them; and ten have a note, whose customer is set to NULL.
const customers = `CREATE TABLE customer (id int PRIMARY KEY, seen date);
	CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customer);
	CREATE TABLE visit (customer int REFERENCES customer ON DELETE CASCADE);
	CREATE TABLE note (customer int REFERENCES customer ON DELETE SET NULL);
	INSERT INTO customer SELECT i, '2020-01-01' FROM generate_series(1, 40) i;
	INSERT INTO orders SELECT i, i FROM generate_series(1, 10) i;
	INSERT INTO visit SELECT i FROM generate_series(11, 20) i;
	INSERT INTO note SELECT i FROM generate_series(21, 30) i;`

func goneCustomers(unreferenced bool) policy.Policy {
	return policy.Policy{
		Name: "gone", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
		Unreferenced: unreferenced,
	}
}

// With unreferenced, a row is deleted only if no row of another table refers to it, by a key of any kind. Nothing else
// changes.
func TestUnreferencedRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(customers)
	p := goneCustomers(true)
	for _, isDry := range []bool{true, false} {
		j, err := runPolicies(t, db, isDry, p)
		if err != nil {
			t.Fatal(err)
		}
		j.checkDeleted(t, p.TaskName(), 10)
		j.checkRetained(t, p.TaskName(), purge.Retained{})
		for _, shown := range j.previews[p.TaskName()] {
			if remarks := strings.Join(shown.Remarks, "; "); strings.Contains(remarks, "keep") ||
				strings.Contains(remarks, "deletes or changes") {
				t.Errorf("the preview says of rows to which none refers that others keep them, or go with them: %s", remarks)
			}
		}
		if j.cascaded[p.TaskName()] != 0 || j.updated[p.TaskName()] != 0 {
			t.Errorf("rows of others went, too: %v %v", j.cascaded, j.updated)
		}
	}
	checkCount(t, db, 30, "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM visit) + "+
		"(SELECT count(customer) FROM note)")
	checkCount(t, db, 30, "SELECT count(*) FROM customer")
}

// A row is kept if another one has just begun to refer to it, even if its key would delete that one.
func TestUnreferencedRowThatGetsAChild(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(customers + `CREATE FUNCTION visits() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO visit VALUES (OLD.id); RETURN OLD; END';
		CREATE TRIGGER visits BEFORE DELETE ON customer FOR EACH ROW WHEN (OLD.id = 35) EXECUTE FUNCTION visits()`)
	p := goneCustomers(true)
	j, err := runPolicies(t, db, false, p)
	if err != nil {
		t.Fatal(err)
	}
	j.checkDeleted(t, p.TaskName(), 9)
	j.checkRetained(t, p.TaskName(), purge.Retained{Failed: 1, Kept: 1})
	checkCount(t, db, 1, "SELECT count(*) FROM customer WHERE id = 35")
}

// A preview does not count rows that foreign keys keep. It says how many they are and which tables keep them, unless an
// earlier policy deletes the rows of these tables.
func TestRowsThatForeignKeysKeep(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(customers + "ALTER TABLE orders ADD placed date DEFAULT '2020-01-01'; UPDATE orders SET placed = '2026-02-28' " +
		"WHERE id > 7")
	gone := goneCustomers(false)
	orders := policy.Policy{
		Name: "orders", Table: "orders", OlderThan: &policy.OlderThan{Column: "placed", Days: new(365)},
	}
	j, err := runPolicies(t, db, true, gone)
	if err != nil {
		t.Fatal(err)
	}
	j.checkDeleted(t, gone.TaskName(), 30)
	j.checkRetained(t, gone.TaskName(), purge.Retained{Dependent: 10})
	const why = "customer: 10 obsolete rows are retained because rows of orders refer to them"
	j.checkLog(t, "WARNING", why)
	alone := pgtest.Empty(t)
	alone.Do(customers)
	if j, err = runPolicies(t, alone, false, gone); err != nil { // rows that are kept do not fail the task
		t.Fatal(err)
	}
	j.checkDeleted(t, gone.TaskName(), 30)
	j.checkRetained(t, gone.TaskName(), purge.Retained{Dependent: 10})
	j.checkLog(t, "WARNING", why)
	for _, isDry := range []bool{true, false} {
		if j, err = runPolicies(t, db, isDry, orders, gone); err != nil {
			t.Fatal(err)
		}
		j.checkState(t, gone.TaskName(), cleanup.Succeeded)
		j.checkDeleted(t, orders.TaskName(), 7)
		j.checkDeleted(t, gone.TaskName(), 37)
	}
	checkCount(t, db, 3, "SELECT count(*) FROM customer")
}

// Rows that foreign keys keep do not fail a task, whichever worker tried them.
func TestRowsThatWereKeptFromAnotherWorker(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner") // which does not see the orders
	db.Do(customers + `ALTER TABLE customer ADD pad char(1000) DEFAULT 'x'; CLUSTER customer USING customer_pkey;
		GRANT SELECT, DELETE ON customer TO ` + role + "; GRANT SELECT ON note, visit TO " + role)
	gone := goneCustomers(false)
	gone.Enabled, gone.Limit = true, 5
	change := func(c *cleanup.Config) {
		c.NoCampaign, c.Pipeline, c.Todo = true, []rules.Task{gone.Task()}, []rules.Task{gone.Task()}
	}
	j := newJournal(db.For(role))
	j.committed = func() {
		if j.cursor.Place > 2 {
			j.loseAt = 1
		}
	}
	if err := runWith(t, j, change); !errors.Is(err, cleanup.ErrLost) || j.cursor.Retained.Failed != 10 {
		t.Fatalf("the worker ends with %v at %+v", err, j.cursor)
	}
	j.loseAt, j.committed = 0, nil
	if err := runWith(t, j, func(c *cleanup.Config) { change(c); resume(c, j) }); err != nil {
		t.Fatal(err)
	}
	j.checkState(t, gone.TaskName(), cleanup.Succeeded)
	j.checkDeleted(t, gone.TaskName(), 30)
	j.checkRetained(t, gone.TaskName(), purge.Retained{Failed: 10, Kept: 10})
}

// A row also stays if a key of another table keeps a row that would be deleted with it, however many keys lead there.
func TestRowsThatKeysKeepBelow(t *testing.T) {
	t.Parallel()
	old := func(table string) policy.Policy {
		return policy.Policy{Name: table, Table: table, OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}}
	}
	const trigger = `CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN RETURN COALESCE(NEW, OLD); END';`
	tests := map[string]struct {
		setUp    string
		policies []policy.Policy
		deleted  int64
		kept     int64
		waiting  int64 // rows that kept ones refer to
		by       string
	}{
		"one level": {
			`CREATE TABLE bill (visit int REFERENCES visit); INSERT INTO bill SELECT i FROM generate_series(11, 14) i`,
			nil, 26, 14, 0, "orders, bill",
		},
		"a trigger for updates": {
			trigger + `CREATE TRIGGER changed BEFORE UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION pass()`,
			nil, 30, 10, 0, "orders",
		},
		"a trigger for deletions": {
			trigger + `CREATE TRIGGER gone BEFORE DELETE ON customer FOR EACH ROW EXECUTE FUNCTION pass()`,
			nil, 30, 10, 0, "orders",
		},
		"a trigger and the table itself": {
			trigger + `CREATE TRIGGER gone AFTER DELETE ON customer FOR EACH ROW EXECUTE FUNCTION pass();
			ALTER TABLE customer ADD inviter int REFERENCES customer;
			UPDATE customer SET inviter = 31 WHERE id = 1`,
			nil, 29, 10, 1, "orders",
		},
		"two levels": {
			`CREATE TABLE stay (id int PRIMARY KEY, visit int REFERENCES visit ON DELETE CASCADE);
			CREATE SCHEMA other; CREATE TABLE other.bill (stay int REFERENCES stay);
			INSERT INTO stay SELECT i, i FROM generate_series(11, 20) i;
			INSERT INTO other.bill SELECT i FROM generate_series(11, 14) i`,
			nil, 26, 14, 0, "orders, other.bill",
		},
		"many rows": { // more than are tried
			`INSERT INTO customer SELECT i, '2020-01-01' FROM generate_series(41, 3040) i;
			INSERT INTO visit (customer, id) SELECT i, i FROM generate_series(41, 3040) i;
			CREATE TABLE bill (visit int REFERENCES visit); INSERT INTO bill SELECT 6 * i FROM generate_series(7, 506) i;
			CREATE INDEX ON visit (customer); CREATE INDEX ON visit (above); CREATE INDEX ON bill (visit)`,
			nil, 2530, 510, 0, "orders, bill",
		},
		"a tree below": { // the visits 11 to 13 belong to 12 to 14
			`UPDATE visit SET above = id + 1 WHERE id < 20;
			CREATE TABLE bill (visit int REFERENCES visit); INSERT INTO bill VALUES (11), (18)`,
			nil, 20, 20, 0, "orders, bill",
		},
		"a cycle": {
			`ALTER TABLE customer ADD visit int REFERENCES visit ON DELETE CASCADE; UPDATE customer SET visit = id + 1
				WHERE id BETWEEN 11 AND 15;
			CREATE TABLE bill (visit int REFERENCES visit); INSERT INTO bill VALUES (13)`,
			nil, 26, 14, 0, "orders, bill",
		},
		"the table itself": {
			`UPDATE visit SET above = id - 1 WHERE id > 11;
			CREATE TABLE bill (visit int REFERENCES visit); INSERT INTO bill VALUES (13)`,
			[]policy.Policy{old("visit")},
			7, 3, 0, "bill",
		},
		"a list whose last row is kept": {
			`CREATE TABLE step (id int PRIMARY KEY, at date DEFAULT '2020-01-01', before int REFERENCES step);
			INSERT INTO step (id, before) SELECT i, CASE WHEN i % 10 <> 1 THEN i - 1 END
				FROM generate_series(1, 30) i;
			CREATE TABLE bill (step int REFERENCES step); INSERT INTO bill VALUES (13)`,
			[]policy.Policy{old("step")},
			27, 1, 2, "bill",
		},
		"a table below that refers to itself": { // 12 follows 11, 14 follows the same customer's 24, and 25 follows 13
			`INSERT INTO visit (customer, id) SELECT i, 10 + i FROM generate_series(11, 20) i;
			ALTER TABLE visit ADD follows int REFERENCES visit;
			UPDATE visit SET follows = 11 WHERE id = 12; UPDATE visit SET follows = 24 WHERE id = 14;
			UPDATE visit SET follows = 13 WHERE id = 25`,
			nil, 28, 12, 0, "orders, visit",
		},
		"rows that an earlier policy deletes": {
			`CREATE TABLE bill (id int, visit int REFERENCES visit, at date);
			INSERT INTO bill SELECT i, i, '2020-01-01' FROM generate_series(11, 14) i;
			UPDATE bill SET at = now() WHERE id > 12`,
			[]policy.Policy{old("bill"), goneCustomers(false)},
			28, 12, 0, "orders, bill",
		},
	}
	db := pgtest.Empty(t)
	var policies []policy.Policy
	names := map[string]string{} // of tasks
	for name, test := range tests {
		if name == "many rows" && !suite.Long.Requested() {
			continue
		}
		schema := inSchema(db, name, customers+`ALTER TABLE visit ADD id int, ADD at date DEFAULT '2020-01-01';
			UPDATE visit SET id = customer; ALTER TABLE visit ADD PRIMARY KEY (id),
				ADD above int REFERENCES visit ON DELETE CASCADE;`+test.setUp+"; ANALYZE")
		if test.policies == nil {
			test.policies = []policy.Policy{goneCustomers(false)}
		}
		for _, p := range test.policies {
			p.Name, p.Table = schema+"-"+p.Name, schema+"."+p.Table
			policies, names[name] = append(policies, p), p.TaskName()
		}
	}
	dry, j := previewAndRun(t, db, policies...)
	for name, task := range names {
		test := tests[name]
		said := fmt.Sprintf(": %d obsolete ", test.kept)
		if log := dry.log(task); !strings.Contains(log, said) ||
			!strings.Contains(log, "because rows of "+test.by+" refer to") {
			t.Errorf("%s: the log is %q, want %d rows that rows of %s keep", name, log, test.kept, test.by)
		}
		for _, j := range []*journal{dry, j} {
			j.checkDeleted(t, task, test.deleted)
			j.checkRetained(t, task, purge.Retained{Dependent: test.kept + test.waiting})
		}
		if dry.cascaded[task] != j.cascaded[task] {
			t.Errorf("%s: %d rows go with others in the preview, %d in the run", name, dry.cascaded[task], j.cascaded[task])
		}
	}
}

// Rows that foreign keys keep from one policy are still there for the next one.
func TestRowsThatAreKeptForTheNextPolicy(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(customers + `TRUNCATE visit, note; ALTER TABLE orders ADD placed date DEFAULT '2020-01-01';
		CREATE TABLE invoice (orders int REFERENCES orders); INSERT INTO invoice SELECT i FROM generate_series(1, 4) i`)
	orders := policy.Policy{
		Name: "a-orders", Table: "orders", OlderThan: &policy.OlderThan{Column: "placed", Days: new(365)},
	}
	gone := goneCustomers(true)
	for _, isDry := range []bool{true, false} {
		j, err := runPolicies(t, db, isDry, orders, gone)
		if err != nil {
			t.Fatal(err)
		}
		j.checkDeleted(t, orders.TaskName(), 6)
		j.checkDeleted(t, gone.TaskName(), 36)
	}
}

// If a preview cannot count the rows that foreign keys keep, it says so with the GRANT, which Policy.Grants returns as
// well.
func TestRowsThatHiddenTablesKeep(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(customers + "GRANT SELECT, DELETE ON customer TO " + role + "; GRANT SELECT ON note, visit TO " + role)
	j, err := runPolicies(t, db.For(role), true, goneCustomers(false))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"an estimate: rows of public.orders that refer to these by a foreign key keep them; how many is unknown: " +
			"GRANT SELECT ON public.orders TO " + role,
		"an estimate, as the number of rows of customer is",
		"an estimate, as the number of rows of customer is",
	}
	for i, p := range j.previews["policy/gone"] {
		if !slices.Contains(p.Remarks, want[i]) {
			t.Errorf("the remarks of %s are %q, not %q", p.Table, p.Remarks, want[i])
		}
	}
}

// Without a foreign key of another table, unreferenced would be true of every row: it is refused. If the last key is
// dropped later, nothing is deleted.
func TestUnreferencedWithoutKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE customer (id int PRIMARY KEY, seen date, by int REFERENCES customer);
		INSERT INTO customer SELECT i, '2020-01-01' FROM generate_series(1, 40) i`)
	p := goneCustomers(true)
	checkError(t, checkPolicy(t, db, p), "policy.unreferenced", "true of every row")
	j, err := runPolicies(t, db, false, p)
	if err != nil {
		t.Fatal(err)
	}
	j.checkRetained(t, p.TaskName(), purge.Retained{Tables: 1})
	checkCount(t, db, 40, "SELECT count(*) FROM customer")
}

// The rows of tables with foreign keys must be visible to the role.
func TestUnreferencedWithoutRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Do(customers + "GRANT SELECT, DELETE ON customer, orders, visit TO " + role)
	p := goneCustomers(true)
	checkError(t, checkPolicy(t, db.For(role), p), `GRANT SELECT ON "public"."note" TO "`+role+`"`)
	db.Do("GRANT SELECT ON note TO " + role + "; ALTER TABLE note ENABLE ROW LEVEL SECURITY")
	checkError(t, checkPolicy(t, db.For(role), p), "row security")
	j, err := runPolicies(t, db.For(role), false, p)
	if err != nil {
		t.Fatal(err)
	}
	j.checkRetained(t, p.TaskName(), purge.Retained{Tables: 1})
	checkCount(t, db, 40, "SELECT count(*) FROM customer")
}
