package capacity

import (
	"sync"
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
)

// Only tables that have changed since their last sample get a new one.
func TestSamplesOfChangedTables(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE busy (i int); CREATE TABLE idle (i int)")
	sample(t, db)
	all := db.Int("SELECT count(*) FROM cleanupd.table_sample")
	if n := db.Int("SELECT count(*) FROM cleanupd.sampled_table"); all != n || n < 50 {
		t.Errorf("the first sampling stored %d samples of %d tables", all, n)
	}
	count(db, "INSERT INTO busy SELECT generate_series(1, 10)", "busy", 10, 0)
	count(db, "DELETE FROM busy WHERE i <= 4", "busy", 10, 4)
	sample(t, db)
	db.Do("DROP TABLE idle")
	sample(t, db)
	changed := db.Strings(
		"SELECT format('%s %s %s %s', t.name, s.rows, s.inserted, s.deleted) FROM cleanupd.table_sample s " +
			"JOIN cleanupd.sampled_table t ON t.id = s.table_id WHERE s.time > (SELECT min(time) FROM cleanupd.table_sampling)",
	)
	if len(changed) != 1 || changed[0] != "public.busy 6 10 4" {
		t.Errorf("changed: %v", changed)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.table_sampling"); n != 3 {
		t.Errorf("%d samplings", n)
	}
	if dropped := db.Strings(
		"SELECT name FROM cleanupd.sampled_table WHERE drop_time IS NOT NULL",
	); len(dropped) != 1 ||
		dropped[0] != "public.idle" {
		t.Errorf("dropped: %v", dropped)
	}
	db.Do("CREATE TABLE idle (i int)")
	sample(t, db)
	if n := db.Int("SELECT count(*) FROM cleanupd.sampled_table WHERE drop_time IS NOT NULL"); n != 0 {
		t.Errorf("%d tables are still dropped", n)
	}
}

// A day after the last sampling and at the end of a run that deletes, one of several replicas samples the tables. In
// between, and after a dry run, none does.
func TestOneReplicaSamples(t *testing.T) {
	t.Parallel()
	db := database(t)
	tick := func(want int64, when string) {
		t.Helper()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := newSampler(db, "").Tick(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := db.Int("SELECT count(*) FROM cleanupd.table_sampling"); n != want {
			t.Errorf("%s: %d samplings, want %d", when, n, want)
		}
	}
	tick(1, "at first")
	tick(1, "again at once")
	end := func(dryRun bool) {
		db.Do(
			`INSERT INTO cleanupd.run (id, state, dry_run, continue_on_error, requested_by, create_time, end_time, slot)
			SELECT gen_random_uuid(), 'SUCCEEDED', $1, false, 'test', clock_timestamp(), clock_timestamp(), 0`,
			dryRun,
		)
	}
	end(true)
	tick(1, "after a dry run")
	end(false)
	tick(2, "after a run")
	tick(2, "again after the run")
	age(db, 1)
	tick(3, "a day later")
	db.Do("UPDATE cleanupd.table_sampler SET last_time = clock_timestamp() + interval '1 hour'")
	tick(4, "after the clock was set back")
}

// If a replica dies while it samples, another one samples instead.
func TestSamplingIsRolledBack(t *testing.T) {
	t.Parallel()
	db := database(t)
	tx := db.Hold("SELECT FROM cleanupd.table_sampler FOR UPDATE")
	if err := newSampler(db, "").Tick(t.Context()); err != nil {
		t.Error(err)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.table_sampling"); n != 0 {
		t.Error("two replicas sample at the same time")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := newSampler(db, "").Tick(t.Context()); err != nil {
		t.Error(err)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.table_sampling"); n != 1 {
		t.Errorf("%d samplings", n)
	}
}

// A service that does not own the database stores nothing in it.
func TestSamplerOfAnotherInstance(t *testing.T) {
	t.Parallel()
	db := database(t)
	for _, name := range []string{"owner", "other"} {
		if err := newSampler(db, name).Tick(t.Context()); err != nil {
			t.Error(err)
		}
		age(db, 1)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.table_sampling"); n != 1 {
		t.Errorf("%d samplings", n)
	}
}

// After the server's statistics are reset, the rows since then are counted, and the sample says that there may be more.
func TestStatisticsReset(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE counted (i int)")
	count(db, "INSERT INTO counted SELECT generate_series(1, 5)", "counted", 5, 0)
	sample(t, db)
	db.Superuser("SELECT pg_stat_reset_single_table_counters('counted'::regclass)")
	count(db, "INSERT INTO counted SELECT generate_series(1, 3)", "counted", 3, 0)
	sample(t, db)
	db.Superuser("SELECT pg_stat_reset()")
	count(db, "INSERT INTO counted SELECT generate_series(1, 7)", "counted", 7, 0)
	sample(t, db)
	got := db.Strings(
		"SELECT format('%s %s', inserted, reset) FROM cleanupd.table_sample s JOIN cleanupd.sampled_table t " +
			"ON t.id = s.table_id WHERE t.name = 'public.counted' ORDER BY time",
	)
	if len(got) != 3 || got[0] != "0 f" || got[1] != "3 t" || got[2] != "7 t" {
		t.Errorf("%v", got)
	}
}

// Partitions that come and go count as rows of their table.
func TestCountersOfPartitions(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE events (i int) PARTITION BY RANGE (i); CREATE TABLE events_1 PARTITION OF events FOR VALUES " +
		"FROM (0) TO (100)")
	count(db, "INSERT INTO events SELECT generate_series(1, 5)", "events_1", 5, 0)
	sample(t, db)
	db.Do("CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (100) TO (200); DROP TABLE events_1")
	count(db, "INSERT INTO events SELECT generate_series(100, 102)", "events_2", 3, 0)
	sample(t, db)
	got := db.Strings("SELECT format('%s %s %s', rows, inserted, reset) FROM cleanupd.table_sample s " +
		"JOIN cleanupd.sampled_table t ON t.id = s.table_id WHERE t.name LIKE '%events%' ORDER BY time")
	if len(got) != 2 || got[0] != "5 0 f" || got[1] != "3 3 f" {
		t.Errorf("%v", got)
	}
	if n := db.Int(
		"SELECT count(*) FROM cleanupd.table_counter WHERE relation NOT IN (SELECT oid FROM pg_class)",
	); n != 0 {
		t.Errorf("%d counters of relations that are gone", n)
	}
}

// Samples are kept for 90 days, then one a week, and after 400 days only the last one of a table. Their counts are
// added up.
func TestOldSamplesAreThinned(t *testing.T) {
	t.Parallel()
	db := database(t)
	days := suite.Size(suite.Long, 500, 1000)
	db.Do(
		"INSERT INTO cleanupd.sampled_table (name, first_time, drop_time) VALUES ('public.nmsdelivery', now(), NULL), " +
			"('public.gone', now(), now() - interval '401 days'), ('public.xtkoption', now(), NULL)",
	)
	db.Do("INSERT INTO cleanupd.table_sampling SELECT now() - i * interval '1 day' FROM generate_series(1, $1::int) i",
		days)
	db.Do("INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes, inserted) SELECT t.id, "+
		"now() - i * interval '1 day', $1 - i, 8192, 0, 1 FROM generate_series(1, $1::int) i, cleanupd.sampled_table t "+
		"WHERE name <> 'public.xtkoption'", days)
	db.Do("INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes) SELECT id, now() - i * " +
		"interval '100 days', 1, 8192, 0 FROM cleanupd.sampled_table, generate_series(5, 6) i " +
		"WHERE name = 'public.xtkoption'")
	sample(t, db)
	age(db, 1)
	sample(t, db)
	const ofDelivery = " FROM cleanupd.table_sample s JOIN cleanupd.sampled_table t ON t.id = s.table_id " +
		"WHERE name = 'public.nmsdelivery' "
	if n := db.Int("SELECT count(*)" + ofDelivery + "AND time > now() - interval '90 days' AND inserted = 1"); n != 88 {
		t.Errorf("%d samples of the last 90 days", n)
	}
	weekly := db.Int(
		"SELECT count(*)" + ofDelivery + "AND time BETWEEN now() - interval '400 days' AND now() - interval '90 days'")
	if weekly < 44 || weekly > 47 {
		t.Errorf("%d samples of 310 days", weekly)
	}
	if n := db.Int("SELECT count(*)" + ofDelivery + "AND time < now() - interval '400 days'"); n != 1 {
		t.Errorf("%d samples older than 400 days", n)
	}
	if n := db.Int("SELECT sum(inserted)" + ofDelivery + "AND time > now() - interval '400 days'"); n < 395 || n > 406 {
		t.Errorf("%d rows were inserted in 400 days", n)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.sampled_table WHERE name = 'public.gone'"); n != 0 {
		t.Error("a table is remembered that was dropped long ago")
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.table_sample s JOIN cleanupd.sampled_table t ON t.id = s.table_id " +
		"WHERE name = 'public.xtkoption' AND time < now() - interval '400 days'"); n != 1 {
		t.Errorf("%d old samples of a table that rested", n)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.table_sampling WHERE time < now() - interval '401 days'"); n != 0 {
		t.Errorf("%d old samplings", n)
	}
}
