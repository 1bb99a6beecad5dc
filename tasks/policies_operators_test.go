package tasks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Values are compared in the order of their type, and keys as a foreign key compares them, even if the search path has
// another operator of that name, or none.
func TestOperatorsOffTheSearchPath(t *testing.T) {
	t.Parallel()
	filter := func(op string, values ...string) policy.Policy {
		return policy.Policy{Name: "p", Table: "login", Enabled: true, Filters: []policy.Filter{
			{Column: "state", Op: op, Values: values},
		}, OlderThan: &policy.OlderThan{Column: "at", Days: new(1)}}
	}
	orphans := func(table, column, parent, key string) policy.Policy {
		return policy.Policy{Name: "p", Table: table, Enabled: true, OrphanOf: &policy.OrphanOf{
			Column: column, ParentTable: parent, ParentColumn: key,
		}}
	}
	newest := policy.Policy{Name: "p", Table: "login", Enabled: true, KeepNewest: &policy.KeepNewest{
		Per: []string{"email"}, OrderBy: "at", Count: 1,
	}}
	for name, test := range map[string]struct {
		policy policy.Policy
		sql    string // in addition
		left   string // ids
	}{
		"equal":         {policy: filter("EQUAL", "ACTIVE"), left: "2,4"},
		"not equal":     {policy: filter("NOT_EQUAL", "ACTIVE"), left: "1,3"},
		"in":            {policy: filter("IN", "ACTIVE", "none"), left: "2,4"},
		"not in":        {policy: filter("NOT_IN", "ACTIVE", "none"), left: "1,3"},
		"less":          {policy: filter("LESS", "B"), left: "2,4"},
		"greater":       {policy: filter("GREATER", "B"), left: "1,3"},
		"newest, ranks": {policy: newest, left: "1,2"},
		"newest": {
			policy: newest, sql: "CREATE INDEX ON login (email, at)", left: "1,2",
		},
		"orphans": {policy: orphans("login", "email", "account", "email"), left: "1,2,3,4"},
		"orphans without a foreign key": {
			policy: orphans("login", "email", "account", "email"),
			sql: "ALTER TABLE login DROP CONSTRAINT login_email_fkey; ALTER TABLE account DROP CONSTRAINT account_pkey;" +
				"UPDATE login SET email = 'gone' WHERE id = 4",
			left: "1,2,3",
		},
		"texts that refer to char": {policy: orphans("part", "code", "codes", "code"), left: "1"},
		"texts that refer to char without an index": {
			policy: orphans("part", "code", "codes", "code"),
			sql: "ALTER TABLE part DROP CONSTRAINT part_code_fkey, ADD kind int DEFAULT 1;" +
				"ALTER TABLE codes DROP CONSTRAINT codes_pkey, ADD kind int DEFAULT 1, ADD PRIMARY KEY (kind, code);" +
				"ALTER TABLE part ADD FOREIGN KEY (kind, code) REFERENCES codes (kind, code)", left: "1",
		},
		"bigint that refers to numeric": {policy: orphans("part", "number", "numbers", "number"), left: "1"},
		"an enum type": {
			policy: orphans("login", "mood", "moods", "mood"), left: "1",
			sql: "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE moods (mood mood); INSERT INTO moods VALUES ('glad');" +
				"ALTER TABLE login ADD mood mood DEFAULT 'sad'; UPDATE login SET mood = 'glad' WHERE id = 1",
		},
		"a composite type": {
			policy: orphans("login", "pair", "pairs", "pair"), left: "1",
			sql: "CREATE TYPE pair AS (a int, b int); CREATE TABLE pairs (pair pair); INSERT INTO pairs VALUES ('(1,2)');" +
				"ALTER TABLE login ADD pair pair DEFAULT '(2,1)'; UPDATE login SET pair = '(1,2)' WHERE id = 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "not in", "orphans")
			t.Parallel()
			db := pgtest.Empty(t)
			db.Superuser("CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; GRANT USAGE ON SCHEMA ext TO PUBLIC")
			db.Do(`CREATE DOMAIN mail AS ext.citext;
				CREATE TABLE account (email ext.citext PRIMARY KEY); INSERT INTO account VALUES ('Ann'), ('Bob');
				CREATE TABLE login (id int PRIMARY KEY, email mail REFERENCES account, state ext.citext, at timestamptz);
				INSERT INTO login VALUES (1, 'ann', 'Active', '2020-01-05'),
					(2, 'BOB', 'closed', '2020-01-05'), (3, 'ANN', 'active', '2020-01-01'),
					(4, 'bob', 'Closed', '2020-01-01');
				CREATE TABLE codes (code char(8) PRIMARY KEY); INSERT INTO codes VALUES ('a');
				CREATE TABLE numbers (number numeric PRIMARY KEY); INSERT INTO numbers VALUES (7.0);
				CREATE TABLE part (id int, code text REFERENCES codes, number bigint REFERENCES numbers);
				INSERT INTO part VALUES (1, 'a  ', 7);` + test.sql)
			j, _ := runPolicies(t, db, false, test.policy)
			got := strings.Join(db.Strings("SELECT id::text FROM "+test.policy.Table+" ORDER BY id"), ",")
			if got != test.left {
				t.Errorf("rows %s are left, want %s; log %v", got, test.left, j.logs)
			}
		})
	}
}

// Types that cannot be compared, or only by casting one to the other, are refused.
func TestTypesThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE codes (code char(8) PRIMARY KEY, number real UNIQUE); INSERT INTO codes VALUES ('a', 1);
		CREATE TABLE part (id bigint PRIMARY KEY, code text, doc json, place point, points point[],
			at date DEFAULT '2020-01-01', folded text COLLATE nocase DEFAULT 'a');
		INSERT INTO part VALUES (1, 'a  ', '1', '(1,1)', '{}'), (2, 'b', '1', '(1,1)', '{}')`)
	tests := map[string]struct {
		policy policy.Policy
		want   string
	}{
		"json": {policy.Policy{Filters: []policy.Filter{{Column: "doc", Op: "EQUAL", Values: []string{
			"1",
		}}}}, "is json"},
		"array-of-points": {
			policy.Policy{Filters: []policy.Filter{{Column: "points", Op: "IN", Values: []string{"{}"}}}}, "is point[]",
		},
		"group-of-points": {
			policy.Policy{KeepNewest: &policy.KeepNewest{Per: []string{"place"}, OrderBy: "id", Count: 1}}, "is point",
		},
		"text-and-char": {
			policy.Policy{OrphanOf: &policy.OrphanOf{Column: "code", ParentTable: "codes", ParentColumn: "code"}}, "family",
		},
		"texts-equal-to-others": {
			policy.Policy{OlderThan: &policy.OlderThan{Column: "at", Days: new(1)}, Filters: []policy.Filter{
				{Column: "folded", Op: "STARTS_WITH", Values: []string{"a"}},
			}}, "nondeterministic",
		},
		"bigint-and-real": {
			policy.Policy{OrphanOf: &policy.OrphanOf{Column: "id", ParentTable: "codes", ParentColumn: "number"}}, "family",
		},
	}
	var policies []policy.Policy
	for name, test := range tests {
		test.policy.Name, test.policy.Table = name, "part"
		policies = append(policies, test.policy)
	}
	j, _ := runPolicies(t, db, false, policies...)
	for name, test := range tests {
		if log := j.log("policy/" + name); !strings.Contains(log, test.want) {
			t.Errorf("%s: the log is %q, want %q in it", name, log, test.want)
		}
	}
	checkCount(t, db, 2, "SELECT count(*) FROM part")
}

// A text can be equal to others that it does not begin with. An operator family can have types that PostgreSQL does not
// compare with each other; composite types it refuses only once there are rows.
func TestTypesThatPoliciesCompare(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Superuser("CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; GRANT USAGE ON SCHEMA ext TO PUBLIC")
	db.Do(`CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE DOMAIN mail AS ext.citext; CREATE DOMAIN short AS varchar(3); CREATE DOMAIN folded AS text COLLATE nocase;
		CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE state AS ENUM ('sad');
		CREATE TYPE pair AS (a int, b int); CREATE TYPE couple AS (a int, b int); CREATE DOMAIN pairs AS pair;
		CREATE DOMAIN years AS int4range; CREATE TABLE child (at timestamptz); CREATE TABLE parent (at timestamptz)`)
	old := policy.OlderThan{Column: "at", Days: new(30)}
	type check struct {
		policy policy.Policy
		want   string // empty if it is accepted
	}
	checks := map[string]check{}
	for of, want := range map[string]string{
		"text": "", "varchar(3)": "", "char(3)": "", "name": "", "short": "", `text COLLATE "C"`: "",
		"ext.citext": "nondeterministic", "mail": "nondeterministic", "text COLLATE nocase": "nondeterministic",
		"folded": "nondeterministic", "mood": "nondeterministic", "int": "nondeterministic", "text[]": "nondeterministic",
	} {
		column := "starts_with " + of
		db.Do("ALTER TABLE child ADD " + pgx.Identifier{column}.Sanitize() + " " + of)
		checks[column] = check{policy.Policy{OlderThan: &old, Filters: []policy.Filter{
			{Column: column, Op: "STARTS_WITH", Values: []string{"a"}},
		}}, want}
	}
	for types, want := range map[[2]string]string{
		{"mood", "mood"}: "", {"mood", "state"}: "family", {"mood[]", "mood[]"}: "", {"mood[]", "state[]"}: "family",
		{"int[]", "int[]"}: "", {"int[]", "bigint[]"}: "family", {"text[]", "varchar[]"}: "family",
		{"varchar", "text"}: "", {"int", "bigint"}: "", {"mail", "ext.citext"}: "", {"mail", "text"}: "family",
		{"int4range", "int4range"}: "", {"years", "int4range"}: "", {"int4range", "int8range"}: "family",
		{"int4multirange", "int4multirange"}: "", {"int4multirange", "int8multirange"}: "family",
		{"int4range", "int4multirange"}: "family",
		{"pair", "pair"}:                "", {"pairs", "pair"}: "", {"pair", "couple"}: "family",
	} {
		column := types[0] + " to " + types[1]
		name := pgx.Identifier{column}.Sanitize()
		db.Do("ALTER TABLE child ADD " + name + " " + types[0] + "; ALTER TABLE parent ADD " + name + " " + types[1])
		checks[column] = check{policy.Policy{OrphanOf: &policy.OrphanOf{
			Column: column, ParentTable: "parent", ParentColumn: column,
		}}, want}
	}
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		catalog, err := campaign.LoadCatalog(t.Context(), tx,
			campaign.Scope{Named: []string{"child", "parent"}, NoCampaign: true})
		if err != nil {
			return err
		}
		for name, c := range checks {
			c.policy.Name, c.policy.Table = "p", "child"
			switch err := c.policy.Check(t.Context(), tx, rules.Env{Catalog: catalog}); {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", name, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: got %v, want %s", name, err, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A key is compared with a column of another collation by the key's collation, as foreign keys do: for orphans,
// cascades, circles and holds.
func TestKeysOfOtherCollations(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
	old := &policy.OlderThan{Column: "at", Days: new(1)}
	type result struct {
		parents string // that are left
		ids     string // of children
	}
	want, holds, policies := map[string]result{}, rules.Holds{Names: []string{"a hold"}}, []policy.Policy(nil)
	for i, c := range []struct{ key, column, parentOfC string }{
		{`"C"`, `"POSIX"`, "c"}, {"public.nocase", `"C"`, "C"}, {"public.nocase", `"default"`, "C"},
	} {
		for name, left := range map[string]result{
			"orphans": {"a,b,c,z", "1,2,3"}, "cascades": {"b", "2,4"}, "a hold": {"a,b,c", "1,2,3,4"},
			"circles": {"a,b,c,z", "2,3"},
		} {
			schema := inSchema(db, fmt.Sprint(name, i), fmt.Sprintf(`CREATE TABLE parent (code text COLLATE %[1]s PRIMARY KEY,
					at date);
				INSERT INTO parent VALUES ('a', '2020-01-01'), ('b', NULL), ('%[3]s', '2020-01-01'), ('z', '2020-01-01');
				CREATE TABLE child (id int, code text COLLATE %[2]s REFERENCES parent ON DELETE CASCADE,
					own text COLLATE %[1]s UNIQUE, above text COLLATE %[2]s REFERENCES child (own) ON DELETE CASCADE, at date);
				INSERT INTO child VALUES (1, 'a', 'a', NULL, '2020-01-01'), (2, 'b', 'b', NULL, NULL),
					(3, 'c', '%[3]s', NULL, '2020-01-01'), (4, NULL, 'd', NULL, '2020-01-01')`, c.key, c.column, c.parentOfC))
			p := policy.Policy{Name: schema, Table: schema + ".parent", OlderThan: old}
			switch name {
			case "orphans":
				p.Table, p.OlderThan, p.OrphanOf = schema+".child", nil, &policy.OrphanOf{
					Column: "code", ParentTable: schema + ".parent", ParentColumn: "code",
				}
				db.Superuser("SET session_replication_role = replica; UPDATE " + p.Table + " SET code = 'gone' WHERE id = 4")
			case "circles": // row 2 goes with row 3
				p.Table = schema + ".child"
				db.Do("UPDATE " + p.Table + " SET above = 'c' WHERE id = 2")
			case "a hold":
				holds.Tables = append(holds.Tables, rules.HeldTable{Schema: schema, Name: "child"})
			}
			want[schema], policies = left, append(policies, p)
		}
	}
	j := newJournal(db)
	j.holds = func() rules.Holds { return holds }
	if err := runPoliciesWith(t, j, false, policies...); err != nil {
		t.Error(err)
	}
	for schema, left := range want {
		list := func(column, table string) string {
			return strings.Join(db.Strings("SELECT "+column+"::text FROM "+schema+"."+table+" ORDER BY 1"), ",")
		}
		if got := (result{strings.ToLower(list("code", "parent")), list("id", "child")}); got != left {
			t.Errorf("%s: %+v are left, want %+v; log %s", schema, got, left, j.log("policy/"+schema))
		}
	}
}
