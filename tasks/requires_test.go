package tasks_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// A task that requires a failed task is not run, under the same worker or another one. All other tasks are run.
func TestOnlyWhatNeedsAFailedTaskIsNotRun(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]map[string]bool{
		"it fails":                          nil,
		"it failed under a previous worker": {"email-error-stats": true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				`INSERT INTO NmsEmailErrorStat (iMXIP, tsDate) VALUES (1, '2000-01-01');
					INSERT INTO NmsEmailError (iMXIP, iPublicId) VALUES (9, 1);
					INSERT INTO NmsMxDomain (iMXIP, sDomain) VALUES (9, 'x');
				INSERT INTO XtkAudit (iAuditId, tsChanged)
					VALUES (1, '2000-01-01'); REVOKE DELETE ON NmsEmailErrorStat FROM neolane`,
			)
			names := []string{"email-error-stats", "email-errors", "mx-domains", "audit-trail"}
			if before != nil {
				names = names[1:]
			}
			j, err := run(t, db, func(c *cleanup.Config) { c.ContinueOnError, c.Failed = true, before }, names...)
			if (err == nil) != (before != nil) {
				t.Errorf("the run ended with %v", err)
			}
			for task, want := range map[string]cleanup.State{
				"email-errors": cleanup.NotRun,
				"mx-domains":   cleanup.NotRun,
				"audit-trail":  cleanup.Succeeded,
			} {
				if j.states[task] != want {
					t.Errorf("%s is %s, want %s", task, j.states[task], want)
				}
			}
			want := "it depends on the task email-error-stats, which did not succeed"
			if got := j.details["mx-domains"]; got != want {
				t.Errorf("the detail of mx-domains is %q, want %q", got, want)
			}
			checkCount(t, db, 1, "SELECT count(*) FROM NmsMxDomain")
		})
	}
}

// Tasks only require earlier tasks.
func TestWhatTasksNeedComesBefore(t *testing.T) {
	t.Parallel()
	var earlier []string
	for _, task := range tasks.Pipeline {
		for _, name := range task.Requires {
			if !slices.Contains(earlier, name) {
				t.Errorf("%s requires %s, which is not an earlier task", task.Name, name)
			}
		}
		earlier = append(earlier, task.Name)
	}
}
