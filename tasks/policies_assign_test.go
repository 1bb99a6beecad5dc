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
		"a domain":                 {policy.Assign{Column: "email"}, "cannot be NULL"},
		"an exclusion constraint":  {policy.Assign{Column: "span", Value: &one}, "exclusion"},
		"a column that is INCLUDE": {policy.Assign{Column: "note", Value: &one}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Do(`CREATE DOMAIN filled AS text NOT NULL; CREATE DOMAIN over AS filled;
				CREATE TABLE a (id int, email over, span int4range, note text, at date,
					EXCLUDE USING gist (span WITH &&), UNIQUE (id) INCLUDE (note));
				INSERT INTO a VALUES (1, 'x', '[5,6)', 'n', '2020-01-01')`)
			j, _ := runPolicies(t, db, false, policy.Policy{
				Name:      "p",
				Table:     "a",
				OlderThan: &policy.OlderThan{Column: "at", Days: new(1)},
				Assign:    []policy.Assign{test.assign},
			})
			log := strings.Join(j.logs, "; ")
			changed := db.Int("SELECT count(*) FROM a WHERE note = '[1,2)'") == 1
			if !strings.Contains(log, test.want) || changed != (test.want == "") {
				t.Errorf("changed %t; %s", changed, log)
			}
		})
	}
}
