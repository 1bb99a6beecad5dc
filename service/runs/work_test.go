package runs_test

import (
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// One of the replicas samples the tables when it starts and after each run, except dry runs.
func TestTablesAreSampledAfterRuns(t *testing.T) {
	t.Parallel()
	db := database(t)
	const samplings = "SELECT count(*) FROM cleanupd.table_sampling"
	sampling := func(c *runs.Config) { c.SampleEvery = 20 * time.Millisecond }
	m, work, _ := replica(t, db, "first", sampling)
	_, workToo, _ := replica(t, db, "second", sampling)
	work()
	workToo()
	db.Until("SELECT (count(*) = 1)::int FROM cleanupd.table_sampling")
	watch(t, m, start(t, m, runs.Request{DryRun: true, Tasks: []string{"sessions"}}).ID)
	if n := db.Int(samplings); n != 1 {
		t.Errorf("after a dry run there are %d samplings", n)
	}
	for want := range int64(2) {
		watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions"}}).ID)
		db.Until("SELECT (count(*) >= $1)::int FROM cleanupd.table_sampling", want+2)
	}
	db.Until("SELECT (last_time > (SELECT max(end_time) FROM cleanupd.run))::int FROM cleanupd.table_sampler")
	if n := db.Int(samplings); n != 3 {
		t.Errorf("after two runs there are %d samplings", n)
	}
}

// The details of a dry run are deleted once, and such dry runs are not read again.
func TestPruneDryRuns(t *testing.T) {
	t.Parallel()
	db := database(t)
	migrate(t, db)
	db.Do(`INSERT INTO cleanupd.run (id, slot, state, dry_run, continue_on_error, requested_by, create_time, end_time)
			SELECT gen_random_uuid(), 1, 'SUCCEEDED', true, false, 'x', now(), now() - i * interval '1 hour'
			FROM generate_series(1, 20) AS i;
		INSERT INTO cleanupd.task (run_id, position, name, kind, chosen, state, preview)
			SELECT id, 0, 'sessions', 'BUILT_IN', true, 'SUCCEEDED', '[]' FROM cleanupd.run`)
	const old = "SELECT count(*) FROM cleanupd.run r JOIN cleanupd.task t ON run_id = id WHERE pruned AND preview IS NULL"
	for _, step := range []struct {
		age  time.Duration
		want int64
	}{{10*time.Hour + time.Minute, 10}, {10*time.Hour + time.Minute, 10}, {30 * time.Minute, 20}} {
		if err := store.PruneDryRuns(t.Context(), db, step.age); err != nil {
			t.Fatal(err)
		}
		if got := db.Int(old); got != step.want {
			t.Errorf("%s: %d were pruned, not %d", step.age, got, step.want)
		}
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.task WHERE preview IS NOT NULL"); n != 0 {
		t.Errorf("%d previews are left", n)
	}
}
