package tasks_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A task that panics fails and is logged with its stack. The run then continues or ends as after any failed task.
func TestTaskThatPanics(t *testing.T) {
	t.Parallel()
	rejects := tasks.Pipeline[slices.IndexFunc(tasks.Pipeline,
		func(t rules.Task) bool { return t.Name == "import-rejects" })]
	inCommit := func(*pgx.Batch, purge.Delta) { panic("PLANTED") }
	for name, c := range map[string]struct {
		stumbling    func(rules.Task) rules.Task
		beforeCommit func(*pgx.Batch, purge.Delta)
	}{
		"its plan": {stumbling: func(task rules.Task) rules.Task {
			task.Steps = []rules.Step{{On: func(rules.Env, *rules.Plan) ([]*campaign.Table, error) { panic("PLANTED") }}}
			return task
		}},
		"its end": {stumbling: func(task rules.Task) rules.Task {
			task.Advances = campaign.LastCleanup
			return task
		}, beforeCommit: func(_ *pgx.Batch, d purge.Delta) {
			if d.Cursor.Unit == "" {
				panic("PLANTED")
			}
		}},
		"a worker's batch": {stumbling: func(task rules.Task) rules.Task { return task }, beforeCommit: inCommit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do("INSERT INTO XtkReject (iRejectId, tsLog) SELECT i, '2000-01-01' FROM generate_series(1, 20) i")
			for _, goesOn := range []bool{true, false} {
				var out bytes.Buffer
				j := newJournal(db)
				j.beforeCommit = func(b *pgx.Batch, d purge.Delta) {
					if c.beforeCommit != nil && j.task == rejects.Name {
						c.beforeCommit(b, d)
					}
				}
				err := runWith(t, j, func(config *cleanup.Config) {
					config.Todo = append([]rules.Task{c.stumbling(rejects)}, config.Todo...)
					config.ContinueOnError, config.Log = goesOn, slog.New(slog.NewTextHandler(&out, nil))
				}, "sessions")
				problem := j.problems[rejects.Name]
				j.checkState(t, rejects.Name, cleanup.Failed)
				checkError(t, err)
				j.checkProblem(t, rejects.Name, "internal error (panic)")
				if err != nil && strings.Contains(problem+err.Error(), "PLANTED") {
					t.Errorf("the value of the panic is shown: %s, %v", problem, err)
				}
				if _, ran := j.states["sessions"]; ran != goesOn {
					t.Errorf("the next task ran: %t, want %t", ran, goesOn)
				}
				log := out.String()
				for _, part := range []string{"task import-rejects", "panic_test.go"} {
					if !strings.Contains(log, part) {
						t.Errorf("the log is %q, want %q in it", log, part)
					}
				}
				if n := strings.Count(log, "\n"); n != 1 {
					t.Errorf("the log has %d lines, want 1: %q", n, log)
				}
				if acquired := db.Stat().AcquiredConns(); acquired != 0 {
					t.Errorf("%d connections were not released", acquired)
				}
			}
		})
	}
}
