package runs_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// A dry run that waits for its standby can be cancelled. While the standby is away, a dry run fails, but the replica
// stays ready, since real runs do without the standby.
func TestDryRunsOfAStandby(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	c := asynchronous(t)
	db, server, standby := c.DB, c.primary, c.standby
	there, err := pgxpool.New(t.Context(), standby.URL(campaigndb.Role, db.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(there.Close)
	sessions(db, 100)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Standby.Pool = there })
	work()
	run := func(dry bool, each func(e store.Event) error) *store.Run {
		t.Helper()
		run := start(t, m, runs.Request{Tasks: []string{"sessions"}, DryRun: dry})
		if _, err := m.Watch(t.Context(), run.ID, store.Place{}, each); err != nil {
			t.Fatal(err)
		}
		if run, err = m.Get(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
		return run
	}
	deleted := func(run *store.Run) (rows int64) {
		for _, r := range run.Results {
			rows += r.RowsDeleted
		}
		return rows
	}
	ignore := func(store.Event) error { return nil }
	if got := run(true, ignore); got.State != store.Succeeded || deleted(got) != 100 {
		t.Errorf("a dry run of the standby: %s %s, %d rows", got.State, got.Error, deleted(got))
	}
	if err := standby.FallBehind(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	if got := run(true, func(e store.Event) error {
		if e.Kind != store.LogLine || e.Level != message.Info ||
			!strings.Contains(e.Message, "waits for the standby") {
			return nil
		}
		_, err := m.Cancel(t.Context(), e.RunID)
		return err
	}); got.State != store.Cancelled {
		t.Errorf("a dry run that waits: %s %s, %d rows", got.State, got.Error, deleted(got))
	}
	standby.Stop()
	if got := run(true, ignore); got.State != store.Failed || !strings.Contains(got.Error, "--preview-database-url") {
		t.Errorf("a dry run without the standby: %s %s, %d rows", got.State, got.Error, deleted(got))
	}
	if err := m.Ready(t.Context()); err != nil {
		t.Errorf("the replica is not ready: %v", err)
	}
	if got := run(false, ignore); got.State != store.Succeeded || deleted(got) != 100 {
		t.Errorf("a run without the standby: %s %s, %d rows", got.State, got.Error, deleted(got))
	}
}
