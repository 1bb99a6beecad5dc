package tasks_test

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// A policy assigns only what columns can have: no NULL to a domain that excludes it, and no value that a constraint
// allows once. A column that a unique index merely includes can be assigned.
func TestAssignableColumns(t *testing.T) {
	t.Parallel()
	one := "[1,2)"
	for name, test := range map[string]struct {
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(`CREATE DOMAIN filled AS text NOT NULL; CREATE DOMAIN over AS filled;
				CREATE TABLE a (id int, email over, span int4range DEFAULT '[5,6)', note text DEFAULT 'n', at date,
					login text DEFAULT 'l' UNIQUE, tenant int DEFAULT 1, number int DEFAULT 1, UNIQUE (tenant, number),
					folded text DEFAULT 'f', active bool DEFAULT true, code text DEFAULT 'c' UNIQUE, source text DEFAULT 's',
					made text GENERATED ALWAYS AS (coalesce(source, '')) STORED UNIQUE,
					EXCLUDE USING gist (span WITH &&), UNIQUE (id) INCLUDE (note));
				CREATE UNIQUE INDEX ON a (lower(folded)); CREATE UNIQUE INDEX ON a (id) WHERE active;
				CREATE TABLE b (code text REFERENCES a (code) ON UPDATE CASCADE);
				INSERT INTO a (id, email, at) VALUES (1, 'x', '2020-01-01'); INSERT INTO b VALUES ('c')`)
			j, _ := runPolicies(t, db, false, policy.Policy{
				Name:      "p",
				Table:     "a",
				OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
				Assign:    []policy.Assign{test.assign},
			})
			log := strings.Join(j.logs, "; ")
			changed := db.Int(`SELECT count(*) FROM a WHERE note = '[1,2)'
				OR num_nulls(login, span, tenant, folded, active, source, code) = 1`) == 1
			if !strings.Contains(log, test.want) || changed != (test.want == "") {
				t.Errorf("changed %t; %s", changed, log)
			}
		})
	}
}

// NULL is refused where PostgreSQL takes it for a value that exists once.
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
