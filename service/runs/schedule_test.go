package runs_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

func keeps(c *runs.Config) { c.KeepSchedule = true }

const (
	someRun  = "SELECT count(*) FROM cleanupd.run"
	allEnded = "SELECT CASE WHEN count(*) > 0 AND count(*) = count(end_time) THEN count(*) ELSE 0 END FROM " +
		"cleanupd.run"
	stored    = "SELECT count(*) FROM cleanupd.schedule"
	isPending = "SELECT count(*) FROM cleanupd.schedule WHERE pending"
	// The next time is in the past, as if several had passed.
	due = "UPDATE cleanupd.schedule SET next_run_time = clock_timestamp() - interval '3 days'"
	// Without a run by hand a scheduled run is refused.
	cleanedByHand = "INSERT INTO cleanupd.first_run (run_id, end_time) VALUES (gen_random_uuid(), now())"
)

func replaceSchedule(t *testing.T, m *runs.Manager, s schedule.Schedule) (*schedule.Schedule, error) {
	t.Helper()
	replace := func(*schedule.Schedule) (schedule.Schedule, error) { return s, nil }
	return m.SetSchedule(t.Context(), "", replace)
}

func setSchedule(t *testing.T, m *runs.Manager, s schedule.Schedule) *schedule.Schedule {
	t.Helper()
	got, err := replaceSchedule(t, m, s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func inZone(db *pgtest.DB, zone string) {
	db.Superuser(fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'", db.Name, zone))
	db.Reset()
}

func readSchedule(t *testing.T, m *runs.Manager) *schedule.Schedule {
	t.Helper()
	s, err := m.Schedule(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The first replica that keeps the schedule stores it: daily at 04:00 in the database's time zone, or in UTC if that is
// not an IANA zone. Earlier times are not caught up.
func TestTheDefaultSchedule(t *testing.T) {
	t.Parallel()
	for setting, zone := range map[string]string{"asia/tokyo": "Asia/Tokyo", "Etc/UTC": "Etc/UTC", "<+05>-05": "UTC"} {
		t.Run(setting, func(t *testing.T) {
			suite.Except(t, suite.Long, "asia/tokyo")
			t.Parallel()
			db := database(t)
			inZone(db, setting)
			m, work, _ := replica(t, db, "a", keeps)
			if s := readSchedule(
				t, m,
			); s.Cron != "0 4 * * *" || s.TimeZone != zone || !s.Enabled || s.NextRunTime == nil ||
				db.Int(stored) != 0 {
				t.Errorf("before it was stored: %+v", s)
			}
			work()
			db.Until(stored)
			s := readSchedule(t, m)
			if s.Cron != "0 4 * * *" || s.TimeZone != zone || !s.Enabled || !s.ContinueOnError ||
				s.NextRunTime == nil ||
				s.LastRunID != "" {
				t.Fatalf("stored: %+v", s)
			}
			there, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			if next := s.NextRunTime.In(there); next.Format("15:04:05.000") != "04:00:00.000" || !next.After(
				time.Now(),
			) ||
				time.Until(next) > 24*time.Hour ||
				db.Int(someRun) != 0 {
				t.Errorf("next: %s", next)
			}
			inZone(db, "Europe/Rome")
			if s := readSchedule(t, m); s.TimeZone != zone {
				t.Errorf("the stored zone became %s", s.TimeZone)
			}
		})
	}
}

// Runs of the schedule continue after a failed task, or end there, as the schedule says.
func TestErrorsOfTheSchedule(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	sessions(db, 1)
	db.Do(
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$; CREATE TRIGGER " +
			"refuse BEFORE DELETE ON XtkSessionInfo EXECUTE FUNCTION refuse()",
	)
	db.Do(cleanedByHand)
	m, work, _ := replica(t, db, "a", keeps)
	work()
	for _, c := range []struct {
		s    schedule.Schedule
		want cleanup.State
	}{
		{schedule.Schedule{Enabled: true, ContinueOnError: true}, cleanup.Succeeded},
		{schedule.Schedule{Enabled: true}, cleanup.NotRun},
	} {
		db.Do("DELETE FROM cleanupd.run")
		if s := setSchedule(t, m, c.s); s.ContinueOnError != c.s.ContinueOnError {
			t.Errorf("stored: %+v", s)
		}
		db.Do(due)
		db.Until(allEnded)
		run, err := m.Get(t.Context(), readSchedule(t, m).LastRunID)
		if err != nil || run.State != store.Failed || run.Result("sessions").State != cleanup.Failed ||
			run.Result("expired-events").State != c.want {
			t.Errorf("%+v: %+v, %v", c.s, run, err)
		}
	}
}

// However many replicas keep the schedule, and however many times have passed, one run is started.
func TestTheScheduleFiresOnce(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	db.Do(cleanedByHand)
	var managers []*runs.Manager
	for _, name := range []string{"a", "b", "c"} {
		m, work, _ := replica(t, db, name, keeps)
		managers = append(managers, m)
		work()
	}
	db.Until(stored)
	for i, c := range []struct {
		name string
		s    schedule.Schedule
	}{
		{"several times a day", schedule.Schedule{Cron: "0 4,16 * * *", TimeZone: "Europe/Berlin"}},
		{"daily", schedule.Schedule{}},
		{"weekly", schedule.Schedule{Cron: "30 3 * * 0"}},
	} {
		if i > 0 && !suite.Long.Requested() {
			break
		}
		db.Do("DELETE FROM cleanupd.run")
		c.s.Enabled = true
		want := setSchedule(t, managers[0], c.s).NextRunTime
		db.Do(due)
		db.Until(allEnded)
		s := readSchedule(t, managers[1])
		if n := db.Int(someRun); n != 1 || s.NextRunTime == nil || !s.NextRunTime.Equal(*want) {
			t.Errorf("%s: %d runs; next %v, want %v", c.name, n, s.NextRunTime, want)
		}
		run, err := managers[2].Get(t.Context(), s.LastRunID)
		if err != nil || run.RequestedBy != "schedule" || run.State != store.Succeeded || run.DryRun ||
			run.Result("reactions").State == cleanup.NotRun {
			t.Errorf("%s: %+v, %v", c.name, run, err)
		}
	}
}

// With several expressions, each starts its own runs. All missed times together start one, also those that passed while
// no replica was running.
func TestSeveralTimesADay(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	now := db.Strings(
		"SELECT to_char(h, 'MI HH24 * * *') FROM generate_series(now() AT TIME ZONE 'UTC' + interval '2 h', now() AT " +
			"TIME ZONE 'UTC' + interval '6 h', '4 h') h",
	)
	s := schedule.Schedule{Cron: now[1], MoreCrons: []string{now[0], now[1], now[0]}, TimeZone: "UTC", Enabled: true}
	want := *setSchedule(t, m, s).NextRunTime
	if in := time.Until(want); in < time.Hour || in > 3*time.Hour {
		t.Errorf("the next time is in %s", in)
	}
	for i := range 2 {
		db.Do(due)
		if i == 0 {
			work()
		}
		db.Until("SELECT (count(end_time) = $1)::int FROM cleanupd.run", i+1)
		if got := readSchedule(t, m); !got.NextRunTime.Equal(want) || db.Int(someRun) != int64(i)+1 ||
			got.String() != s.String() {
			t.Errorf("%d runs; %v, want %v", db.Int(someRun), got, want)
		}
	}
}

func TestASingleTime(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	once := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	if s := setSchedule(t, m, schedule.Schedule{Once: &once, Enabled: true}); s.Cron != "" || !s.Once.Equal(once) ||
		!s.NextRunTime.Equal(once) {
		t.Errorf("stored: %+v", s)
	}
	db.Do(due) // while no replica was running
	work()
	db.Until(allEnded)
	s := readSchedule(t, m)
	if s.NextRunTime != nil || !s.Enabled || s.LastRunID == "" || db.Int(someRun) != 1 {
		t.Errorf("afterwards: %+v, %d runs", s, db.Int(someRun))
	}
}

// A time that passed on another timeline, before a failover or a restore, is not caught up; one that is still to come
// is kept.
func TestAMissedTimeOfAnotherTimeline(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	setSchedule(t, m, schedule.Schedule{Cron: "0 4 * * *", Enabled: true})
	want := readSchedule(t, m).NextRunTime
	db.Do("UPDATE cleanupd.schedule SET timeline = '0000AAAA'")
	work()
	db.Until("SELECT count(*) FROM cleanupd.schedule WHERE timeline <> '0000AAAA'")
	if s := readSchedule(t, m); !s.NextRunTime.Equal(*want) {
		t.Errorf("a time to come was set to %v", s.NextRunTime)
	}
	db.Do("UPDATE cleanupd.schedule SET timeline = '0000AAAA', next_run_time = clock_timestamp() - interval '3 days'")
	db.Until("SELECT count(*) FROM cleanupd.schedule WHERE timeline <> '0000AAAA'")
	if s := readSchedule(t, m); !s.NextRunTime.Equal(*want) || db.Int(someRun) != 0 {
		t.Errorf("%d runs, next %v", db.Int(someRun), s.NextRunTime)
	}
	db.Do(due)
	db.Until(allEnded)
	if db.Int(someRun) != 1 {
		t.Error("it is not kept any longer")
	}
}

// Times that pass while a run is active start one run right after it.
func TestTheScheduleNeverOverlaps(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	setSchedule(t, m, schedule.Schedule{Cron: "0 4 * * *", Enabled: true})
	first := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	// Apparently claimed by a replica, so that it remains active.
	db.Do(
		"UPDATE cleanupd.run SET state = 'RUNNING', replica = 'someone', lease_until = clock_timestamp() + interval " +
			"'1 hour'",
	)
	work()
	for range 2 {
		db.Do(due)
		db.Until("SELECT count(*) FROM cleanupd.schedule WHERE next_run_time > clock_timestamp()")
	}
	if db.Int(isPending) != 1 || db.Int(someRun) != 1 {
		t.Fatalf("pending: %d, runs: %d", db.Int(isPending), db.Int(someRun))
	}
	db.Do("UPDATE cleanupd.run SET lease_until = clock_timestamp()") // and now it continues
	watch(t, m, first.ID)
	second := readSchedule(t, m).LastRunID
	if second == "" || db.Int(isPending) != 0 {
		t.Fatalf("no run was started at the end of the first one")
	}
	watch(t, m, second)
	if n := db.Int(someRun); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// A pending run also starts after a run that ends without having been claimed. If the schedule is disabled meanwhile,
// nothing starts.
func TestAPendingRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, _, _ := replica(t, db, "a", keeps)
	for _, enabled := range []bool{true, false} {
		db.Do("DELETE FROM cleanupd.run")
		setSchedule(t, m, schedule.Schedule{Enabled: true})
		run := start(t, m, runs.Request{})
		db.Do("UPDATE cleanupd.schedule SET pending = true")
		setSchedule(t, m, schedule.Schedule{Cron: "0 5 * * *", Enabled: enabled})
		if _, err := m.Cancel(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
		want := int64(1)
		if enabled {
			want = 2
		}
		if n := db.Int(someRun); n != want || db.Int(isPending) != 0 {
			t.Errorf("enabled %t: %d runs", enabled, n)
		}
	}
}

// A replica that does not keep the schedule leaves a pending run to one that does.
func TestAPendingRunWithoutTheSchedule(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", nil)
	setSchedule(t, m, schedule.Schedule{Enabled: true})
	worked := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Do("UPDATE cleanupd.schedule SET pending = true")
	work()
	watch(t, m, worked.ID)
	stop()
	if _, err := m.Cancel(t.Context(), start(t, m, runs.Request{}).ID); err != nil {
		t.Fatal(err)
	}
	if db.Int(someRun) != 2 || db.Int(isPending) != 1 {
		t.Fatalf("pending: %d, runs: %d", db.Int(isPending), db.Int(someRun))
	}
	keeper, work, _ := replica(t, db, "b", keeps)
	work()
	db.Until("SELECT count(*) FROM cleanupd.schedule WHERE NOT pending")
	watch(t, keeper, readSchedule(t, keeper).LastRunID)
	if n := db.Int(someRun); n != 3 {
		t.Errorf("%d runs", n)
	}
}

// The next scheduled run deletes what a run leaves when its max_duration ends.
func TestMaxDurationOfTheSchedule(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	const n = 100
	sessions(db, n)
	db.Do(cleanedByHand)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) {
		c.KeepSchedule, c.MaxRows, c.Limits.RowsPerSecond = true, 1, n // they take a second
	})
	setSchedule(t, m, schedule.Schedule{MaxDuration: 300 * time.Millisecond, Enabled: true})
	db.Do("UPDATE cleanupd.schedule SET pending = false; " + due)
	work()
	db.Until(allEnded)
	cut, err := m.Get(t.Context(), readSchedule(t, m).LastRunID)
	if err != nil || cut.State != store.Cancelled || cut.Error != "max_duration reached" {
		t.Fatalf("%+v, %v", cut, err)
	}
	if s := setSchedule(t, m, schedule.Schedule{Enabled: true}); s.LastRunID != cut.ID || s.MaxDuration != 0 {
		t.Errorf("the schedule: %+v", s)
	}
	gone := n - db.Int("SELECT count(*) FROM XtkSessionInfo")
	db.Do(due)
	db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'SUCCEEDED'")
	next, err := m.Get(t.Context(), readSchedule(t, m).LastRunID)
	if err != nil || next.Result("sessions").RowsDeleted != n-gone ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
		t.Errorf("%d went before; %+v, %v", gone, next, err)
	}
}

func TestADisabledScheduleStartsNothing(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	past := time.Now().Add(-time.Hour)
	if s := setSchedule(t, m, schedule.Schedule{Once: &past}); s.NextRunTime != nil {
		t.Errorf("a disabled one: %+v", s)
	}
	var invalid failure.Violations
	if _, err := replaceSchedule(t, m, schedule.Schedule{Once: &past, Enabled: true}); !errors.As(err, &invalid) ||
		invalid[0].Field != "schedule.once" {
		t.Errorf("a time in the past: %v", err)
	}
	work()
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions"}}).ID)
	if n := db.Int(someRun); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// The details of a dry run are deleted after twice the age that a saved plan may have, with all events but the last,
// unless a run or the schedule still follows it. The dry run itself is kept, and can be watched.
func TestDetailsOfDryRuns(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, stop := replica(t, db, "a", nil)
	work()
	var ids []string
	for range 4 {
		id := start(t, m, runs.Request{Tasks: []string{"sessions"}, DryRun: true}).ID
		watch(t, m, id)
		ids = append(ids, id)
	}
	real := start(t, m, runs.Request{Tasks: []string{"workflow-logins"}}).ID
	watch(t, m, real)
	stop()
	old, young, planned, scheduled := ids[0], ids[1], ids[2], ids[3]
	last := db.Int("SELECT last_sequence FROM cleanupd.run WHERE id::text = $1", old)
	db.Do(
		"UPDATE cleanupd.run SET end_time = clock_timestamp() - interval '48 hours' + CASE WHEN id::text = $1 THEN "+
			"interval '1 hour' ELSE interval '-1 s' END",
		young,
	)
	setSchedule(t, m, schedule.Schedule{})
	db.Do("UPDATE cleanupd.schedule SET next_plan = $1::text::uuid", scheduled)
	db.Do(
		"UPDATE cleanupd.run SET plan = $1::text::uuid, state = 'RUNNING', lease_until = clock_timestamp() + "+
			"interval '1 hour' WHERE id::text = $2",
		planned,
		real,
	)
	m, work, _ = replica(t, db, "b", nil)
	work()
	db.Until("SELECT (count(*) = 1)::int FROM cleanupd.event WHERE run_id::text = $1", old)
	for _, id := range []string{young, planned, scheduled} {
		if n := db.Int(
			"SELECT count(*) FROM cleanupd.task WHERE run_id::text = $1 AND preview IS NOT NULL AND saved_plan IS NOT NULL",
			id,
		); n != 1 ||
			db.Int("SELECT count(*) FROM cleanupd.event WHERE run_id::text = $1", id) < 3 {
			t.Errorf("%s has lost its details", id)
		}
	}
	var events []store.Event
	if _, err := m.Watch(
		t.Context(), old, store.Place{}, func(e store.Event) error { events = append(events, e); return nil },
	); err != nil {
		t.Fatal(err)
	}
	if run := events[0].Run; len(events) != 1 || events[0].Sequence != last || run.State != store.Succeeded ||
		run.Result("sessions").RowsDeleted != 10 ||
		run.Result("sessions").Preview != nil {
		t.Errorf("the dry run is %+v", events)
	}
	if n := db.Int(
		"SELECT count(*) FROM cleanupd.task WHERE run_id::text = $1 AND (preview IS NOT NULL OR saved_plan IS NOT NULL)",
		old,
	); n != 0 {
		t.Error("what the dry run found is left")
	}
}

// Runs that ended before the retention period are deleted with their events. Later and active ones are not.
func TestHistory(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", nil)
	work()
	for range 3 {
		watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions"}}).ID)
	}
	stop()
	m, work, _ = replica(t, db, "b", nil)
	setSchedule(t, m, schedule.Schedule{})
	db.Do("UPDATE cleanupd.schedule SET last_run_id = (SELECT max(id::text)::uuid FROM cleanupd.run)")
	db.Do(
		"UPDATE cleanupd.run SET end_time = clock_timestamp() - interval '90 days' + CASE WHEN id::text = (SELECT " +
			"min(id::text) FROM cleanupd.run) THEN interval '1 hour' ELSE interval '-1 s' END",
	)
	active := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Do(
		"UPDATE cleanupd.run SET create_time = create_time - interval '1 year', start_time = create_time - interval " +
			"'1 year'",
	)
	work()
	watch(t, m, active.ID)
	db.Until("SELECT (count(*) = 2)::int FROM cleanupd.run")
	if n := db.Int("SELECT count(DISTINCT run_id) FROM cleanupd.event"); n != 2 {
		t.Errorf("events of %d runs are left", n)
	}
	if s := readSchedule(t, m); s.LastRunID != "" {
		t.Errorf("the schedule still knows %s", s.LastRunID)
	}
}

// A change that is based on the schedule before a replica has stored it also succeeds afterwards.
func TestScheduleBeforeItIsStored(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	before := readSchedule(t, m)
	if !before.Enabled {
		t.Error("it is disabled on the replica that keeps it")
	}
	work()
	db.Until(stored)
	if _, err := m.SetSchedule(
		t.Context(), before.Etag(), func(*schedule.Schedule) (schedule.Schedule, error) { return *before, nil },
	); err != nil {
		t.Error(err)
	}
}
