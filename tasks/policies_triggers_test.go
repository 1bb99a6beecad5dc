package tasks_test

import (
	"fmt"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// If triggers keep, restore or rewrite rows that a policy deletes or updates, the run of a saved plan still ends.
// However it found the rows, it counts each changed row once, and as suppressed those that the rule still matches.
func TestPoliciesAndTriggers(t *testing.T) {
	t.Parallel()
	const rows = 4_000
	none := "n/a"
	anonymize := []policy.Assign{{Column: "email"}}
	normalize := []policy.Assign{{Column: "email", Value: &none}}
	type rule struct {
		index    string
		older    int // days
		newest   *policy.KeepNewest
		obsolete int64
	}
	found := map[string]rule{
		"by blocks": {older: 300, obsolete: 3700},
		"by index":  {index: "CREATE INDEX ON t (at);", older: 3900, obsolete: 100},
		"by group": {
			index: "CREATE INDEX ON t (grp, at);", obsolete: 3500,
			newest: &policy.KeepNewest{Per: []string{"grp"}, OrderBy: "at", Count: 10},
		},
	}
	for name, test := range map[string]struct {
		timing, body string
		assign       []policy.Assign
		some         bool // the trigger is for a row in ten
		changed      bool // rows are counted as changed although they match again
		keeps        bool // rows still match
	}{
		"soft deletion": {
			timing: "BEFORE DELETE", body: "UPDATE t SET gone = true WHERE id = OLD.id; RETURN NULL", keeps: true,
		},
		"soft deletion of some": {
			timing: "BEFORE DELETE", body: "UPDATE t SET gone = true WHERE id = OLD.id; RETURN NULL", keeps: true, some: true,
		},
		"soft deletion, with a subtransaction": {
			timing: "BEFORE DELETE", keeps: true,
			body: "BEGIN UPDATE t SET gone = true WHERE id = OLD.id; EXCEPTION WHEN others THEN NULL; END; RETURN NULL",
		},
		"deleted rows are inserted again": {
			timing: "AFTER DELETE", body: "INSERT INTO t SELECT OLD.*; RETURN NULL", changed: true, keeps: true,
		},
		"values are restored": {
			timing: "BEFORE UPDATE", body: "NEW.email = OLD.email; RETURN NEW", assign: anonymize, keeps: true,
		},
		"values of some are restored": {
			timing: "BEFORE UPDATE", body: "NEW.email = OLD.email; RETURN NEW", assign: anonymize, keeps: true, some: true,
		},
		"values are normalized": {
			timing: "BEFORE UPDATE", body: "NEW.email = upper(NEW.email); RETURN NEW", assign: normalize, keeps: true,
		},
		"values are restored afterwards": {
			timing: "AFTER UPDATE OF email", assign: anonymize, changed: true, keeps: true,
			body: "IF NEW.email IS NULL THEN UPDATE t SET email = OLD.email WHERE id = NEW.id; END IF; RETURN NULL",
		},
		"rows are touched": {timing: "BEFORE UPDATE", body: "NEW.touched = now(); RETURN NEW", assign: anonymize},
		"rows are touched afterwards": {
			timing: "AFTER UPDATE OF email", body: "UPDATE t SET touched = now() WHERE id = NEW.id; RETURN NULL",
			assign: anonymize,
		},
		"deletions are logged": {
			timing: "AFTER DELETE", body: "INSERT INTO log VALUES (OLD.id); RETURN NULL",
		},
	} {
		for how, rule := range found {
			if rule.newest != nil &&
				test.assign != nil { // refused, since triggers may change which rows are the newest
				continue
			}
			t.Run(name+", found "+how, func(t *testing.T) {
				suite.Except(t, suite.Long, "rows are touched, found by blocks", "values are normalized, found by index")
				t.Parallel()
				db := pgtest.Empty(t)
				when := ""
				if test.some {
					when = "WHEN (OLD.id % 10 = 0)"
				}
				db.Do(fmt.Sprintf(`CREATE TABLE log (id bigint);
					CREATE TABLE t (id bigint PRIMARY KEY, grp int NOT NULL, at timestamptz NOT NULL, email text,
						gone boolean, touched timestamptz);
					INSERT INTO t SELECT g, g %% 50, timestamptz '2026-03-01 12:00Z' - g * interval '1 day', 'u' || g
						FROM generate_series(1, %d) g;
					%s ANALYZE t; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s; END $$;
					CREATE TRIGGER f %s ON t FOR EACH ROW %s EXECUTE FUNCTION f()`,
					rows, rule.index, test.body, test.timing, when))
				p := policy.Policy{
					Name:       "p",
					Table:      "t",
					Enabled:    true,
					Assign:     test.assign,
					KeepNewest: rule.newest,
					Limit:      300,
				}
				if rule.older > 0 {
					p.OlderThan = &policy.OlderThan{Column: "at", Days: new(rule.older)}
				}
				saved, err := runPolicies(t, db, true, p)
				if err != nil {
					t.Fatal(err)
				}
				j, err := run(t, db, func(c *cleanup.Config) {
					c.NoCampaign, c.SavedPlan = true, saved.planned
					c.Pipeline, c.Todo = append(c.Pipeline[:0:0], p.Task()), append(c.Todo[:0:0], p.Task())
				})
				if err != nil {
					t.Fatal(err)
				}
				suppressed := int64(0)
				if test.keeps {
					suppressed = rule.obsolete
				}
				if test.some {
					suppressed = rule.obsolete / 10
				}
				changed := rule.obsolete - suppressed
				if test.changed {
					changed = rule.obsolete
				}
				if got := j.rows[p.TaskName()] + j.updated[p.TaskName()]; got != changed {
					t.Errorf("%d rows are counted, want %d", got, changed)
				}
				j.checkRetained(t, p.TaskName(), purge.Retained{Suppressed: suppressed})
				again, err := runPolicies(t, db, true, p)
				if still := again.deleted[p.TaskName()] + again.updated[p.TaskName()]; err != nil ||
					still != suppressed {
					t.Errorf("%d rows still match, %v; want %d", still, err, suppressed)
				}
			})
		}
	}
}

// A trigger on another server that restores the values of a foreign table's rows is also noticed.
func TestPolicyAndATriggerElsewhere(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`DELETE FROM XtkAudit;
		INSERT INTO XtkAudit (iAuditId, tsChanged, sEntity) SELECT g, timestamptz '2026-02-01', 'c' || g
			FROM generate_series(1, 40) g`)
	far := db.Far()
	db.MoveAway(far, "XtkAudit")
	far.Do(`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.sEntity = OLD.sEntity; RETURN NEW; END';
		CREATE TRIGGER f BEFORE UPDATE ON XtkAudit FOR EACH ROW WHEN (OLD.iAuditId % 4 = 0) EXECUTE FUNCTION f()`)
	removed := "removed"
	p := policy.Policy{
		Name: "p", Table: "XtkAudit", Enabled: true, OlderThan: &policy.OlderThan{Column: "tsChanged", Days: new(7)},
		Assign: []policy.Assign{{Column: "sEntity", Value: &removed}},
	}
	j, err := run(t, db, func(c *cleanup.Config) {
		c.Pipeline, c.Todo = append(c.Pipeline, p.Task()), append(c.Todo[:0], p.Task())
	})
	if err != nil {
		t.Fatal(err)
	}
	j.checkUpdated(t, p.TaskName(), 30)
	j.checkRetained(t, p.TaskName(), purge.Retained{Suppressed: 10})
}
