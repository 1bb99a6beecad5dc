package runs_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

// The run that the schedule starts now, as it ended.
func scheduled(t *testing.T, db *pgtest.DB, m *runs.Manager, plan string) *store.Run {
	t.Helper()
	setSchedule(t, m, schedule.Schedule{Enabled: true, ContinueOnError: true, NextPlan: plan})
	return fires(t, db, m)
}

// The schedule deletes nothing in a database in which no run by hand has succeeded: neither a dry run nor a run that
// failed is one.
func TestFirstNight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// What precedes the scheduled run; returns the plan that it follows, if any.
		prepare func(t *testing.T, db *pgtest.DB, m *runs.Manager) (plan string)
		refused bool
	}{
		"nothing before": {
			func(*testing.T, *pgtest.DB, *runs.Manager) string { return "" }, true,
		},
		"after a dry run": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				ended(t, m, runs.Request{DryRun: true})
				return ""
			}, true,
		},
		"after a run that failed": {
			func(t *testing.T, db *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				db.Do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$; " +
					"CREATE TRIGGER refuse BEFORE DELETE ON XtkSessionInfo EXECUTE FUNCTION refuse()")
				if run := ended(t, m, runs.Request{Tasks: []string{"sessions"}}); run.State != store.Failed {
					t.Fatalf("the run by hand is %s", run.State)
				}
				db.Do("DROP TRIGGER refuse ON XtkSessionInfo")
				return ""
			}, true,
		},
		"after a run by hand": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				ended(t, m, runs.Request{Tasks: []string{"sessions"}})
				return ""
			}, false,
		},
		"after a run by hand that was pruned": {
			func(t *testing.T, db *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				ended(t, m, runs.Request{Tasks: []string{"sessions"}})
				db.Do("DELETE FROM cleanupd.run")
				return ""
			}, false,
		},
		"after a scheduled run of a plan": {
			func(t *testing.T, db *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				plan := ended(t, m, runs.Request{DryRun: true}).ID
				if run := scheduled(t, db, m, plan); run.State != store.Succeeded {
					t.Fatalf("the run of the plan is %s: %s", run.State, run.Error)
				}
				return ""
			}, false,
		},
		"with a plan": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				return ended(t, m, runs.Request{DryRun: true}).ID
			}, false,
		},
		"with the guard switched off": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				setGuards(t, m, func(g *guard.Limits) { g.First = false })
				return ""
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			sessions(db, 3)
			m, work, _ := replica(t, db, "a", keeps)
			work()
			db.Until(stored)
			run := scheduled(t, db, m, c.prepare(t, db, m))
			if !c.refused {
				if run.State != store.Succeeded {
					t.Errorf("the scheduled run is %s: %s", run.State, run.Error)
				}
				return
			}
			if run.State != store.Failed || run.Reason() != failure.ReasonGuard || run.Results[0].RowsDeleted != 0 {
				t.Errorf("the scheduled run is %s: %s", run.State, run.Error)
			}
			if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 3 {
				t.Errorf("%d sessions are left, want 3", n)
			}
		})
	}
}
