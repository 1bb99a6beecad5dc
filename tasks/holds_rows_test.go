package tasks_test

import (
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

// heldRows returns holds of the rows of a table with given values. Each column is its name, its type and the value.
func heldRows(table string, columns ...[3]string) rules.Holds {
	rows := rules.HeldRows{Table: table}
	for _, c := range columns {
		rows.Columns = append(rows.Columns, rules.HeldColumn{Column: c[0], Type: "pg_catalog." + c[1], Value: c[2]})
	}
	return rules.Holds{Names: []string{"a hold"}, Rows: []rules.HeldRows{rows}}
}

// Rows are on hold by the values of one or several columns, of any type.
func TestHoldsByValuesOfRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	holds := rules.Holds{Names: []string{"a hold"}}
	var policies []policy.Policy
	kept := map[string][]string{} // logins
	for name, c := range map[string]struct {
		columns [][3]string
		kept    []string
	}{
		"a text":         {[][3]string{{"email", "text", "Customer 2"}}, []string{"12", "2"}},
		"a date":         {[][3]string{{"born", "date", "1990-01-03"}}, []string{"12", "2"}},
		"another":        {[][3]string{{"email", "text", "customer 2"}}, nil},
		"not SQL":        {[][3]string{{"email", "text", "' OR true --"}}, nil},
		"no such value":  {[][3]string{{"id", "int8", "77"}}, nil},
		"a uuid":         {[][3]string{{"code", "uuid", "00000000-0000-0000-0000-000000000002"}}, []string{"12", "2"}},
		"several":        {[][3]string{{"Region", "text", "EU"}, {"id", "int8", "2"}}, []string{"12", "2"}},
		"different rows": {[][3]string{{"Region", "text", "US"}, {"id", "int8", "2"}}, nil},
		"a timestamp":    {[][3]string{{"at", "timestamptz", "2021-06-07T10:09:10.123456+02"}}, []string{"12", "2"}},
	} {
		schema := inSchema(db, name, `CREATE TABLE customer (id bigint PRIMARY KEY, code uuid UNIQUE,
				email text COLLATE "C" UNIQUE, "Region" text, born date, at timestamptz DEFAULT '2020-01-01');
			CREATE TABLE login (id int PRIMARY KEY, email text REFERENCES customer (email),
				code uuid REFERENCES customer (code), at timestamptz DEFAULT '2020-01-01');
			INSERT INTO customer SELECT i, ('00000000-0000-0000-0000-00000000000' || i)::uuid, 'Customer ' || i,
				CASE WHEN i < 3 THEN 'EU' ELSE 'US' END, date '1990-01-01' + i::int FROM generate_series(1, 4) i;
			UPDATE customer SET at = '2021-06-07T08:09:10.123456Z' WHERE id = 2;
			INSERT INTO login SELECT id, email FROM customer; INSERT INTO login SELECT 10 + id, NULL, code FROM customer`)
		holds.Rows = append(holds.Rows, heldRows(schema+".customer", c.columns...).Rows...)
		p := policy.Policy{Name: schema, Table: schema + ".login", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}}
		policies, kept[schema] = append(policies, p), c.kept
	}
	j := keep(t, db, holds, policies, func(int64) {})
	for schema, want := range kept {
		checkRows(t, db, "SELECT id::text FROM "+schema+".login ORDER BY 1", want...)
		j.checkRetained(t, "policy/"+schema, purge.Retained{OnHold: int64(len(want))})
	}
}

// With rows on hold stay those that refer to them by foreign keys of any kind, directly or through others, and rows
// whose deletion would delete or change one of these. All other rows are deleted.
func TestHoldsOfRows(t *testing.T) {
	t.Parallel()
	const shop = `CREATE SCHEMA shop; SET search_path = shop;
CREATE TABLE customer (id bigint PRIMARY KEY, code uuid UNIQUE, email text COLLATE "C" UNIQUE, "Region" text, born date,
	main int, at timestamptz DEFAULT '2020-01-01', UNIQUE (id, "Region"));
CREATE TABLE address (id int PRIMARY KEY, customer bigint REFERENCES customer, at timestamptz DEFAULT '2020-01-01');
ALTER TABLE customer ADD FOREIGN KEY (main) REFERENCES address ON DELETE SET NULL;
CREATE TABLE product (id int PRIMARY KEY, at timestamptz DEFAULT '2020-01-01');
CREATE TABLE bill (id int PRIMARY KEY, customer bigint REFERENCES customer ON DELETE CASCADE,
	at timestamptz DEFAULT '2020-01-01');
CREATE TABLE line (bill int REFERENCES bill ON DELETE CASCADE, number int,
	product int REFERENCES product ON DELETE CASCADE, at timestamptz DEFAULT '2020-01-01', PRIMARY KEY (bill, number));
CREATE TABLE remark (id int PRIMARY KEY, bill int, line int, reply int REFERENCES remark, at timestamptz
	DEFAULT '2020-01-01', FOREIGN KEY (bill, line) REFERENCES line);
CREATE TABLE login (id int PRIMARY KEY, email text REFERENCES customer (email), code uuid REFERENCES customer (code),
	at timestamptz DEFAULT '2020-01-01');
CREATE TABLE visit (id int, customer bigint, region text, at timestamptz DEFAULT '2020-01-01',
	FOREIGN KEY (customer, region) REFERENCES customer (id, "Region"));
INSERT INTO customer SELECT i, ('00000000-0000-0000-0000-00000000000' || i)::uuid, 'Customer ' || i,
	CASE WHEN i < 3 THEN 'EU' ELSE 'US' END, date '1990-01-01' + i::int FROM generate_series(1, 4) i;
INSERT INTO address SELECT i, i FROM generate_series(1, 4) i; UPDATE customer SET main = id;
INSERT INTO product SELECT i FROM generate_series(1, 5) i;
INSERT INTO bill SELECT i, i FROM generate_series(1, 4) i;
INSERT INTO line SELECT i, n, CASE n WHEN 1 THEN 5 ELSE i END FROM generate_series(1, 4) i, generate_series(1, 2) n;
INSERT INTO remark SELECT i, i, 1 FROM generate_series(1, 4) i;
INSERT INTO remark SELECT 10 * n + i, NULL, NULL, CASE n WHEN 1 THEN i ELSE 10 * (n - 1) + i END
	FROM generate_series(1, 5) n, generate_series(1, 4) i;
INSERT INTO login SELECT i, 'Customer ' || i FROM generate_series(1, 4) i;
INSERT INTO login SELECT 10 + i, NULL, ('00000000-0000-0000-0000-00000000000' || i)::uuid FROM generate_series(1, 4) i;
INSERT INTO visit SELECT i, i, CASE WHEN i < 3 THEN 'EU' ELSE 'US' END FROM generate_series(1, 4) i;
RESET search_path;`
	// the rows that stay with customer 2
	second := []string{
		"address 2", "bill 2", "customer 2", "line 1", "line 2", "login 12", "login 2", "product 2", "product 5",
		"remark 12", "remark 2", "remark 22", "remark 32", "remark 42", "remark 52", "visit 2",
	}
	tables := []string{"visit", "login", "remark", "line", "bill", "address", "customer", "product"}
	for name, c := range map[string]struct {
		setup string
		holds rules.Holds
		only  []string // the tables with a policy
		kept  []string
	}{
		"a bigint": {
			holds: heldRows("shop.customer", [3]string{"id", "int8", "2"}),
			only:  tables,
			kept:  second,
		},
		"rows that nothing refers to": {
			setup: "DROP TABLE shop.remark",
			holds: heldRows("shop.visit", [3]string{"customer", "int8", "3"}),
			kept:  []string{"visit 3"},
			only:  []string{"visit", "product"},
		},
		"by tables without a policy": {
			holds: heldRows("shop.customer", [3]string{"id", "int8", "2"}),
			only:  []string{"remark"},
			kept:  []string{"remark 12", "remark 2", "remark 22", "remark 32", "remark 42", "remark 52"},
		},
		"by a parent that is not on hold": {
			setup: "DROP TABLE shop.remark",
			holds: heldRows("shop.line", [3]string{"bill", "int4", "3"}, [3]string{"number", "int4", "2"}),
			only:  []string{"product"},
			kept:  []string{"product 3"},
		},
		"by a parent of rows that belong": {
			setup: "DROP TABLE shop.remark",
			holds: heldRows("shop.bill", [3]string{"id", "int4", "3"}),
			only:  []string{"product"},
			kept:  []string{"product 3", "product 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(shop + c.setup)
			var policies []policy.Policy
			for i, table := range tables {
				if slices.Contains(c.only, table) {
					policies = append(policies, policy.Policy{
						Name: fmt.Sprintf("p%d-%s", i, table), Table: "shop." + table,
						OlderThan: &policy.OlderThan{Column: "at", Days: new(365)},
					})
				}
			}
			keep(t, db, c.holds, policies, func(onHold int64) {
				var got []string
				for _, table := range c.only {
					id := map[string]string{"line": "number"}[table]
					if id == "" {
						id = "id"
					}
					got = append(got, db.Strings(fmt.Sprintf("SELECT '%[1]s ' || %[2]s FROM shop.%[1]s", table, id))...)
				}
				slices.Sort(got)
				if !slices.Equal(got, c.kept) || onHold != int64(len(got)) {
					t.Errorf("%d rows are on hold, and these remain: %q, want %q", onHold, got, c.kept)
				}
			})
		})
	}
}

// keep does a dry run and a run of policies with holds, and checks that both count the same rows on hold.
func keep(t *testing.T, db *pgtest.DB, holds rules.Holds, policies []policy.Policy, check func(onHold int64)) *journal {
	t.Helper()
	var counted [2]int64
	var j *journal
	for i := range holds.Rows {
		holds.Rows[i].OID = uint32(db.Int("SELECT COALESCE(to_regclass($1)::bigint, 0)", holds.Rows[i].Table))
	}
	for i, isDry := range []bool{true, false} {
		j = newJournal(db)
		j.holds = func() rules.Holds { return holds }
		err := runWith(t, j, func(c *cleanup.Config) {
			c.DryRun, c.NoCampaign, c.Pipeline, c.Todo = isDry, true, nil, nil
			for _, p := range policies {
				p.Enabled = true
				c.Pipeline, c.Todo = append(c.Pipeline, p.Task()), append(c.Todo, p.Task())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, retained := range j.retained {
			counted[i] += retained.OnHold
		}
	}
	if counted[0] != counted[1] {
		t.Errorf("the dry run counted %d rows on hold, the run %d", counted[0], counted[1])
	}
	check(counted[1])
	return j
}

// holdOpenClaims returns the journal of runs with a hold of the rows of the table claim whose state is open.
func holdOpenClaims(db *pgtest.DB) *journal {
	holds := heldRows("public.claim", [3]string{"state", "text", "open"})
	holds.Rows[0].OID = uint32(db.Int("SELECT 'claim'::regclass::bigint"))
	j := newJournal(db)
	j.holds = func() rules.Holds { return holds }
	return j
}

// A row stays if it comes on hold by rows of other tables after its task began: by those that go with it, with an index
// and without, and by those that it belongs to.
func TestRowsThatOthersPutOnHoldInMidRun(t *testing.T) {
	t.Parallel()
	const rows = 3000
	for name, c := range map[string]struct {
		sql, late string // what holds a row, and what holds another one later; %d is the row
	}{
		"a row that goes with it": {
			"CREATE TABLE claim (old int REFERENCES old ON DELETE CASCADE, state text); CREATE INDEX ON claim (old)",
			"INSERT INTO claim VALUES (%d, 'open')",
		},
		"one without an index": {
			"CREATE TABLE claim (old int REFERENCES old ON DELETE CASCADE, state text)",
			"INSERT INTO claim VALUES (%d, 'open')",
		},
		"one of many, so that it is looked up": {
			`CREATE TABLE claim (old int REFERENCES old ON DELETE CASCADE, state text); CREATE INDEX ON claim (old);
			INSERT INTO claim SELECT NULL, 'done' FROM generate_series(1, 300000)`,
			"INSERT INTO claim VALUES (%d, 'open')",
		},
		"one that is cleared, by two columns": {
			`ALTER TABLE old ADD UNIQUE (id, at);
			CREATE TABLE claim (old int, at timestamptz, state text, FOREIGN KEY (old, at) REFERENCES old (id, at)
				ON DELETE SET NULL)`,
			"INSERT INTO claim SELECT id, at, 'open' FROM old WHERE id = %d",
		},
		"one that goes with one that goes with it": {
			`CREATE TABLE part (id int PRIMARY KEY, old int REFERENCES old ON DELETE CASCADE);
			INSERT INTO part SELECT i, i FROM generate_series(1, 3000) i; CREATE INDEX ON part (old);
			CREATE TABLE claim (part int REFERENCES part ON DELETE CASCADE, state text)`,
			"INSERT INTO claim VALUES (%d, 'open')",
		},
		"the row that it belongs to": {
			`CREATE TABLE claim (id int PRIMARY KEY, state text); INSERT INTO claim SELECT i FROM generate_series(1, 3000) i;
			ALTER TABLE old ADD claim int REFERENCES claim; UPDATE old SET claim = id`,
			"UPDATE claim SET state = 'open' WHERE id = %d",
		},
		"one of many that it belongs to": {
			`CREATE TABLE claim (id int PRIMARY KEY, state text); INSERT INTO claim SELECT i FROM generate_series(1, 300000) i;
			ALTER TABLE old ADD claim int REFERENCES claim; UPDATE old SET claim = id`,
			"UPDATE claim SET state = 'open' WHERE id = %d",
		},
		"the one that this belongs to": {
			`CREATE TABLE claim (id int PRIMARY KEY, state text); INSERT INTO claim SELECT i FROM generate_series(1, 3000) i;
			CREATE TABLE part (id int PRIMARY KEY, claim int REFERENCES claim);
			INSERT INTO part SELECT i, i FROM generate_series(1, 3000) i;
			ALTER TABLE old ADD part int REFERENCES part; UPDATE old SET part = id`,
			"UPDATE claim SET state = 'open' WHERE id = %d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.Except(t, suite.Long, "a row that goes with it", "one without an index",
				"one that goes with one that goes with it", "the row that it belongs to", "the one that this belongs to")
			db := pgtest.Empty(t)
			db.Do(`CREATE TABLE old (id int PRIMARY KEY, at timestamptz DEFAULT '2020-01-01');
				INSERT INTO old SELECT i FROM generate_series(1, 3000) i; ` + c.sql)
			db.Do(fmt.Sprintf(c.late, rows-1))
			j := holdOpenClaims(db)
			j.committed = func() {
				j.committed = nil
				db.Do(fmt.Sprintf(c.late, rows))
			}
			p := policy.Policy{
				Name: "old", Table: "public.old", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}, Enabled: true,
			}
			err := runWith(t, j, func(c *cleanup.Config) {
				c.NoCampaign, c.Pipeline, c.Todo, c.Settings.MaxRows = true, []rules.Task{p.Task()}, []rules.Task{p.Task()}, 500
			})
			if err != nil {
				t.Fatal(err)
			}
			checkRows(t, db, "SELECT id::text FROM old ORDER BY id", fmt.Sprint(rows-1), fmt.Sprint(rows))
		})
	}
}

// Batches do not read a large table whole for its few rows on hold, although their plans do not take into account how
// rare the hold's value is.
func TestRareValuesOnHold(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	// The statistics have only the frequent value, whether or not the rare rows would be in their sample.
	db.Do(`CREATE TABLE claim (id int PRIMARY KEY, state text);
		INSERT INTO claim SELECT i, 'done' FROM generate_series(1, 600000) i;
		CREATE INDEX ON claim (state);
		CREATE TABLE old (id int PRIMARY KEY, at timestamptz DEFAULT '2020-01-01', claim int REFERENCES claim);
		INSERT INTO old (id, claim) SELECT i, i FROM generate_series(1, 3000) i; ANALYZE;
		UPDATE claim SET state = 'open' WHERE id <= 2`)
	j := holdOpenClaims(db)
	p := policy.Policy{
		Name: "old", Table: "public.old", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}, Enabled: true,
	}
	var sent statements
	err := runWith(t, j, func(c *cleanup.Config) {
		c.Pool = sent.trace(t, db)
		c.NoCampaign, c.Pipeline, c.Todo = true, []rules.Task{p.Task()}, []rules.Task{p.Task()}
	})
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, db, "SELECT id::text FROM old ORDER BY id", "1", "2")
	for sql := range sent.args {
		if changes.MatchString(sql) && strings.Contains(sql, "WITH RECURSIVE held") {
			t.Errorf("each batch reads the rows on hold: %s", sql)
		}
	}
}

// A partition stays if one of its rows comes on hold after the task began.
func TestPartitionsThatComeOnHoldInMidRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE claim (id int PRIMARY KEY, state text); INSERT INTO claim SELECT i FROM generate_series(1, 2) i;
		CREATE TABLE old (id int, at timestamptz, claim int REFERENCES claim) PARTITION BY RANGE (at);
		CREATE TABLE old_1 PARTITION OF old FOR VALUES FROM ('2019-01-01') TO ('2020-01-01');
		CREATE TABLE old_2 PARTITION OF old FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		INSERT INTO old VALUES (1, '2019-06-01', 1), (2, '2020-06-01', 2), (3, '2020-06-01', NULL)`)
	j := holdOpenClaims(db)
	j.committed = func() {
		j.committed = nil
		db.Do("UPDATE claim SET state = 'open'")
	}
	p := policy.Policy{Name: "old", Table: "public.old", OlderThan: &policy.OlderThan{Column: "at", Days: new(365)}}
	if err := runPoliciesWith(t, j, false, p); err != nil {
		t.Fatal(err)
	}
	checkRows(t, db, "SELECT id::text FROM old", "2")
	checkRows(t, db, "SELECT inhrelid::regclass::text FROM pg_inherits", "old_2")
}

// A partition with a row on hold is neither dropped nor detached, unlike the others.
func TestHoldsOfRowsInPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	holds := rules.Holds{Names: []string{"a hold"}}
	var policies []policy.Policy
	want := map[string][2]int64{} // rows left in the partition with the row on hold, and whether another one is left
	for partitions, left := range map[purge.Partitions][2]int64{
		purge.DropPartitions: {1, 0}, purge.DeleteRows: {1, 1}, purge.DetachPartitions: {30, 0},
	} {
		schema := inSchema(db, string(partitions), months)
		p := oldEvents(partitions)
		p.Name, p.Table = schema, schema+".event"
		policies, want[schema] = append(policies, p), left
		holds.Rows = append(holds.Rows, heldRows(p.Table, [3]string{"id", "int4", "7"},
			[3]string{"at", "timestamptz", "2025-11-07T12:00:00Z"}).Rows...)
	}
	keep(t, db, holds, policies, func(int64) {})
	const isPartition = "SELECT count(*) FROM pg_inherits WHERE inhrelid = to_regclass($1)"
	for schema, left := range want {
		checkCount(t, db, left[0], "SELECT count(*) FROM "+schema+".event_2025_11")
		checkCount(t, db, 1, isPartition, schema+".event_2025_11")
		checkCount(t, db, left[1], isPartition, schema+".event_2025_10")
	}
}

// A row on hold, or one that belongs to it, is not overwritten. The rows to which it refers are: keys change no other
// rows with them.
func TestHoldsOfRowsThatAreOverwritten(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE learner (id int PRIMARY KEY, name text, by int REFERENCES learner ON DELETE SET NULL,
			at timestamptz DEFAULT '2020-01-01');
		INSERT INTO learner SELECT i, i::text, CASE WHEN i BETWEEN 2 AND 5 THEN i - 1 END FROM generate_series(1, 6) i`)
	none := "none"
	keep(t, db, heldRows("learner", [3]string{"id", "int4", "4"}), []policy.Policy{{
		Name: "mask", Table: "learner", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
		Assign: []policy.Assign{{Column: "name", Value: &none}},
	}}, func(onHold int64) {
		if onHold != 2 {
			t.Errorf("%d rows are on hold", onHold)
		}
	})
	checkRows(t, db, "SELECT name FROM learner ORDER BY id", "none", "none", "none", "4", "5", "none")
}

// A row is deleted if that changes only rows that are not on hold, however many rows refer to these.
func TestHoldsOfRowsBehindClearedOnes(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE learner (id int PRIMARY KEY, by int REFERENCES learner ON DELETE SET NULL,
			at timestamptz DEFAULT '2020-01-01');
		INSERT INTO learner SELECT i, nullif(i - 1, 0) FROM generate_series(1, 6) i`)
	keep(t, db, heldRows("learner", [3]string{"id", "int4", "5"}), []policy.Policy{
		{Name: "old", Table: "learner", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)}},
	}, func(int64) {})
	checkRows(t, db, "SELECT id::text FROM learner ORDER BY id", "4", "5", "6")
}

// Rows of inheritance children belong to rows on hold by the children's own foreign keys, as do the rows that refer to
// them. If the table above lacks the column, all rows of the child are on hold.
func TestHoldsOfRowsOfChildren(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE customer (id int PRIMARY KEY); INSERT INTO customer VALUES (1), (2);
		CREATE TABLE bill (id int PRIMARY KEY, customer int, at timestamptz DEFAULT '2020-01-01');
		CREATE TABLE bill_eu (PRIMARY KEY (id), FOREIGN KEY (customer) REFERENCES customer) INHERITS (bill);
		CREATE TABLE bill_us (buyer int REFERENCES customer) INHERITS (bill); INSERT INTO bill_us (id, buyer) VALUES (6, 1);
		CREATE TABLE line (id int PRIMARY KEY, bill int REFERENCES bill_eu, at timestamptz DEFAULT '2020-01-01');
		INSERT INTO bill VALUES (1, 1), (2, 2); INSERT INTO bill_eu VALUES (3, 1), (4, 2), (5, 2);
		INSERT INTO line VALUES (1, 3), (2, 4)`)
	old := &policy.OlderThan{Column: "at", Days: new(1)}
	keep(t, db, heldRows("customer", [3]string{"id", "int4", "2"}), []policy.Policy{
		{Name: "lines", Table: "line", OlderThan: old}, {Name: "bills", Table: "bill", OlderThan: old},
	}, func(int64) {})
	checkRows(t, db, "SELECT id::text FROM bill ORDER BY id", "4", "5", "6")
	checkRows(t, db, "SELECT id::text FROM line", "2")
}

// If a table or column that a hold names was dropped, renamed or changed, every row that the hold might cover is
// retained, and the log says why.
func TestHoldsOfRowsThatAreLost(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(threads + `; ALTER TABLE note ADD at timestamptz DEFAULT '2020-01-01';
		UPDATE note SET topic = 8 WHERE topic = 7 AND id > 900`)
	for _, c := range []struct {
		change string
		left   int64
		why    string
	}{
		{"ALTER TABLE topic ALTER id TYPE bigint", 3_000, "its column id now has the type pg_catalog.int8"},
		{
			"ALTER TABLE topic ALTER id TYPE int; ALTER TABLE topic RENAME id TO number", 3_000,
			"its column id no longer exists",
		},
		{
			"ALTER TABLE topic RENAME number TO id; ALTER TABLE topic RENAME TO other", 3_000, "the table no longer exists",
		},
		{"ALTER TABLE other RENAME TO topic; ALTER TABLE topic ALTER at TYPE date", 6, ""},
		{"DROP TABLE topic CASCADE", 6, "the table no longer exists"},
		{"CREATE VIEW topic AS SELECT", 6, "the table no longer exists"},
	} {
		db.Do(c.change)
		j := keep(t, db, heldRows("topic", [3]string{"id", "int4", "7"}), []policy.Policy{
			{Name: "notes", Table: "note", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)}},
		}, func(onHold int64) {
			if onHold != c.left {
				t.Errorf("%s: %d rows are on hold, want %d", c.change, onHold, c.left)
			}
		})
		checkCount(t, db, c.left, "SELECT count(*) FROM note")
		if c.why != "" {
			j.checkLog(t, "WARNING", "while there is a hold on topic", c.why)
		}
	}
}

// Rows are retained if the role cannot see whether they belong to rows on hold.
func TestHoldsOfRowsOutOfSight(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Superuser("CREATE SCHEMA hidden; CREATE TABLE hidden.topic (id int PRIMARY KEY); " +
		"INSERT INTO hidden.topic VALUES (1), (2); " +
		"GRANT USAGE ON SCHEMA hidden TO PUBLIC; GRANT SELECT, REFERENCES ON hidden.topic TO PUBLIC")
	db.Do("CREATE TABLE note (topic int REFERENCES hidden.topic, at timestamptz); INSERT INTO note VALUES " +
		"(1, '2020-01-01'), (2, '2020-01-01')")
	for _, c := range [][2]string{
		{"ALTER TABLE hidden.topic ENABLE ROW LEVEL SECURITY", "BYPASSRLS"},
		{
			"ALTER TABLE hidden.topic DISABLE ROW LEVEL SECURITY; REVOKE SELECT ON hidden.topic FROM PUBLIC",
			`GRANT SELECT ON "hidden"."topic"`,
		},
	} {
		db.Superuser(c[0])
		j := keep(t, db, heldRows("hidden.topic", [3]string{"id", "int4", "2"}), []policy.Policy{
			{Name: "notes", Table: "note", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)}},
		}, func(int64) {})
		checkCount(t, db, 2, "SELECT count(*) FROM note")
		j.checkLog(t, "WARNING", c[1])
	}
}
