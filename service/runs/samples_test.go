package runs_test

import (
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/service/runs"
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
