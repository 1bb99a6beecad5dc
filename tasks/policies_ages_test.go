package tasks_test

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// An age is in days or hours. With an age of 0, rows from before the reference time are deleted, and rows at it are
// not.
func TestAgesOfPolicies(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	var policies []policy.Policy
	left, rules := map[string]string{}, map[string]string{}
	for name, test := range map[string]struct {
		age  policy.OlderThan
		left string // ids
		rule string
	}{
		"hours":    {policy.OlderThan{Hours: new(36)}, "2,3,4,5,6", "expires older than 36 hours (2026-02-28 00:00 UTC)"},
		"days":     {policy.OlderThan{Days: new(1)}, "3,4,5,6", "expires older than 1 day (2026-02-28 12:00 UTC)"},
		"no days":  {policy.OlderThan{Days: new(0)}, "4,5,6", "expires before 2026-03-01 12:00 UTC"},
		"no hours": {policy.OlderThan{Hours: new(0)}, "4,5,6", "expires before 2026-03-01 12:00 UTC"},
	} {
		schema := inSchema(db, name, `CREATE TABLE session (id int PRIMARY KEY, expires timestamptz);
			INSERT INTO session VALUES (1, '2026-02-27 23:59:59Z'), (2, '2026-02-28 00:00Z'), (3, '2026-03-01 11:59:59Z'),
				(4, '2026-03-01 12:00Z'), (5, 'infinity'), (6, NULL)`)
		test.age.Column = "expires"
		p := policy.Policy{Name: schema, Table: schema + ".session", OlderThan: &test.age}
		policies = append(policies, p)
		left[p.Table], rules[p.Table] = test.left, test.rule
	}
	dry, _ := previewAndRun(t, db, policies...)
	for _, p := range policies {
		if found := dry.previews[p.TaskName()]; len(found) != 1 || found[0].Rule != rules[p.Table] {
			t.Errorf("the preview of %s is %+v, want the rule %q", p.Table, found, rules[p.Table])
		}
		got := strings.Join(db.Strings("SELECT id::text FROM "+p.Table+" ORDER BY id"), ",")
		if got != left[p.Table] {
			t.Errorf("rows %s of %s are left, want %s", got, p.Table, left[p.Table])
		}
	}
}
