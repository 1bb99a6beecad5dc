package tasks_test

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// A policy assigns only what columns can have: no NULL to a domain that excludes it, and no value that a constraint
// allows only once. A column that a unique index merely includes can be assigned.
func TestAssignableColumns(t *testing.T) {
	t.Parallel()
	one := "[1,2)"
	tests := map[string]struct {
		assign policy.Assign
		want   string // in the log; empty if the policy runs
	}{
		"a domain":                        {policy.Assign{Column: "email"}, "cannot be NULL"},
		"an exclusion constraint":         {policy.Assign{Column: "span", Value: &one}, "exclusion"},
		"a column that is INCLUDE":        {policy.Assign{Column: "note", Value: &one}, ""},
		"a unique value":                  {policy.Assign{Column: "login", Value: &one}, "unique index"},
		"a unique NULL":                   {policy.Assign{Column: "login"}, ""},
		"a NULL to exclude":               {policy.Assign{Column: "span"}, ""},
		"a NULL among several":            {policy.Assign{Column: "tenant"}, ""},
		"a NULL in an expression":         {policy.Assign{Column: "folded"}, "unique index"},
		"a NULL in a condition":           {policy.Assign{Column: "active"}, "unique index"},
		"a NULL in a generated column":    {policy.Assign{Column: "source"}, "unique index"},
		"a NULL that other rows refer to": {policy.Assign{Column: "code"}, "a foreign key refers to it"},
	}
	db := pgtest.Empty(t)
	db.Do("CREATE DOMAIN filled AS text NOT NULL; CREATE DOMAIN over AS filled")
	schemas, policies := map[string]string{}, []policy.Policy(nil)
	for name, test := range tests {
		schema := inSchema(db, name, `CREATE TABLE a (id int, email public.over, span int4range DEFAULT '[5,6)',
				note text DEFAULT 'n', at date, login text DEFAULT 'l' UNIQUE, tenant int DEFAULT 1, number int DEFAULT 1,
				UNIQUE (tenant, number), folded text DEFAULT 'f', active bool DEFAULT true, code text DEFAULT 'c' UNIQUE,
				source text DEFAULT 's', made text GENERATED ALWAYS AS (coalesce(source, '')) STORED UNIQUE,
				EXCLUDE USING gist (span WITH &&), UNIQUE (id) INCLUDE (note));
			CREATE UNIQUE INDEX ON a (lower(folded)); CREATE UNIQUE INDEX ON a (id) WHERE active;
			CREATE TABLE b (code text REFERENCES a (code) ON UPDATE CASCADE);
			INSERT INTO a (id, email, at) VALUES (1, 'x', '2020-01-01'); INSERT INTO b VALUES ('c')`)
		schemas[name] = schema
		policies = append(policies, policy.Policy{
			Name: schema, Table: schema + ".a", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
			Assign: []policy.Assign{test.assign},
		})
	}
	j, err := runPolicies(t, db, false, policies...)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		log := j.log("policy/" + schemas[name])
		changed := db.Int(`SELECT count(*) FROM `+schemas[name]+`.a WHERE note = '[1,2)'
			OR num_nulls(login, span, tenant, folded, active, source, code) = 1`) == 1
		if !strings.Contains(log, test.want) || changed != (test.want == "") {
			t.Errorf("%s: changed: %t, want the reason %q: %s", name, changed, test.want, log)
		}
	}
}

// A task whose rows all fail, since the assigned value has no parent, has failed.
func TestAssignedValueWithoutAParent(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE parent (id int PRIMARY KEY);
		CREATE TABLE child (id int PRIMARY KEY, at date, parent int REFERENCES parent);
		INSERT INTO child SELECT i, '2020-01-01' FROM generate_series(1, 3) i`)
	nine := "9"
	p := policy.Policy{
		Name: "p", Table: "child", OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
		Assign: []policy.Assign{{Column: "parent", Value: &nine}},
	}
	j, _ := runPolicies(t, db, false, p)
	j.checkState(t, p.TaskName(), cleanup.Failed)
	if r := j.retained[p.TaskName()]; r.Failed != 3 {
		t.Errorf("%d rows failed, want 3", r.Failed)
	}
}

// NULL is refused where PostgreSQL treats it as a value that must be unique.
func TestNullsThatAreNotDistinct(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	if db.Int("SELECT current_setting('server_version_num')::int") < 150_000 {
		t.Skip("PostgreSQL 15 introduced NULLS NOT DISTINCT")
	}
	db.Do(`CREATE TABLE a (login text, at date, UNIQUE NULLS NOT DISTINCT (login));
		INSERT INTO a VALUES ('x', '2020-01-01')`)
	j, _ := runPolicies(t, db, false, policy.Policy{
		Name:      "p",
		Table:     "a",
		OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
		Assign:    []policy.Assign{{Column: "login"}},
	})
	if log := strings.Join(j.logs, "; "); !strings.Contains(log, "unique index") {
		t.Errorf("no refusal: %s", log)
	}
}

// Texts made from keys can be assigned to a unique column of all rows at once, and are assigned only once.
func TestValuesFromKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE by_id (id bigint PRIMARY KEY, email varchar(30) NOT NULL UNIQUE, at date);
		CREATE UNIQUE INDEX ON by_id (lower(email));
		INSERT INTO by_id SELECT i, i || '@example.com', '2020-01-01' FROM generate_series(-2, 7) i;
		CREATE TABLE by_uuid (id uuid PRIMARY KEY, login text UNIQUE, at date);
		INSERT INTO by_uuid VALUES ('0fd2ee4b-5c5b-4dbe-8d67-0c6ff8d8b2b4', 'me', '2020-01-01')`)
	old := &policy.OlderThan{Column: "at", Days: new(1)}
	policies := []policy.Policy{
		{
			Name: "id", Table: "by_id", OlderThan: old,
			Assign: []policy.Assign{{Column: "email", ValueFromKey: "deleted-{key}"}},
		},
		{
			Name: "uuid", Table: "by_uuid", OlderThan: old,
			Assign: []policy.Assign{{Column: "login", ValueFromKey: "{hash} of it"}},
		},
	}
	for _, rows := range [][]int64{{10, 1}, {0, 0}} {
		for _, isDry := range []bool{true, false} {
			j, err := runPolicies(t, db, isDry, policies...)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range policies {
				j.checkUpdated(t, p.TaskName(), rows[i])
			}
		}
	}
	checkCount(t, db, 10, "SELECT count(*) FROM by_id WHERE email = 'deleted-' || id")
	checkCount(t, db, 1, "SELECT count(*) FROM by_uuid WHERE login = md5(id::text) || ' of it'")
}

func TestValuesFromKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE by_id (id bigint PRIMARY KEY, email varchar(27) UNIQUE, short varchar(26), n int, at date);
		CREATE TABLE by_two (a int, b int, email text UNIQUE, at date, PRIMARY KEY (a, b));
		CREATE TABLE by_text (login text PRIMARY KEY, email text UNIQUE, at date)`)
	value := "x"
	for name, c := range map[string]struct {
		table  string
		assign policy.Assign
		want   string
	}{
		"fits":            {"by_id", policy.Assign{Column: "email", ValueFromKey: "gone-{key}-"}, ""},
		"too long":        {"by_id", policy.Assign{Column: "short", ValueFromKey: "gone-{key}--"}, "up to 27 characters"},
		"a hash":          {"by_id", policy.Assign{Column: "email", ValueFromKey: "{hash}"}, "up to 32 characters"},
		"no text":         {"by_id", policy.Assign{Column: "n", ValueFromKey: "{key}"}, "is a text, and n is"},
		"the key":         {"by_text", policy.Assign{Column: "login", ValueFromKey: "{key}"}, "primary key"},
		"two keys":        {"by_two", policy.Assign{Column: "email", ValueFromKey: "{key}"}, "one integer or UUID"},
		"a text as a key": {"by_text", policy.Assign{Column: "email", ValueFromKey: "{key}"}, "one integer or UUID"},
		"nothing of it":   {"by_id", policy.Assign{Column: "email", ValueFromKey: "gone"}, "must have {key} or {hash}"},
		"and a value":     {"by_id", policy.Assign{Column: "email", Value: &value, ValueFromKey: "{key}"}, "combined"},
	} {
		p := policy.Policy{
			Name: "p", Table: c.table, OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
			Assign: []policy.Assign{c.assign},
		}
		err := p.Validate()
		if err == nil {
			err = checkPolicy(t, db, p)
		}
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
