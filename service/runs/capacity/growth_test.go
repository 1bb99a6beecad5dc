package capacity

import (
	"testing"
	"time"
)

// Growth is unknown until there are samples a day old; over 30 days, until there are samples older than a week.
func TestGrowthNeedsSamples(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE growing (i int)")
	if r := rates(t, db, "public.growing"); r != (Rates{}) {
		t.Errorf("without samples: %+v", r)
	}
	sample(t, db)
	if r := rates(t, db, "public.growing"); r.Week != nil || r.Month != nil || r.Inserted != nil {
		t.Errorf("at once: %+v", r)
	}
	db.Do("INSERT INTO growing SELECT generate_series(1, 100000)")
	db.Do("VACUUM ANALYZE growing")
	size := db.Int("SELECT relpages * 8192 FROM pg_class WHERE oid = 'growing'::regclass")
	for _, c := range []struct {
		days        int
		week, month bool
	}{{2, true, false}, {6, true, true}, {40, true, true}} {
		age(db, c.days)
		r := rates(t, db, "public.growing")
		if (r.Week != nil) != c.week || (r.Month != nil) != c.month {
			t.Errorf("%d days later: %+v", c.days, r)
		}
	}
	r := rates(t, db, "public.growing")
	if want := size / 48; *r.Week < want-2 || *r.Week > want+2 || *r.Month != *r.Week {
		t.Errorf("%d a day over a week, want %d", *r.Week, want)
	}
}

// Growth is measured from the last sample before the period, also if the table has not changed since, or did not exist
// then.
func TestGrowthOfRestingAndNewTables(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE resting AS SELECT generate_series(1, 10000) AS i")
	db.Do("VACUUM ANALYZE resting")
	sample(t, db)
	age(db, 100)
	sample(t, db)
	age(db, 20)
	sample(t, db)
	age(db, 6)
	db.Do("CREATE TABLE young AS SELECT generate_series(1, 70000) AS i")
	db.Do("VACUUM ANALYZE young")
	sample(t, db)
	age(db, 1)
	sample(t, db)
	if r := rates(t, db, "public.resting"); r.Week == nil || *r.Week != 0 || r.Month == nil || *r.Month != 0 {
		t.Errorf("the resting table: %+v", r)
	}
	size := db.Int("SELECT relpages * 8192 FROM pg_class WHERE oid = 'young'::regclass")
	if r := rates(t, db, "public.young"); r.Week == nil || *r.Week < size/7-2 || *r.Week > size/7 ||
		*r.Month < size/127-2 {
		t.Errorf("the new table of %d bytes: %+v", size, r)
	}
}

// Inserted and deleted rows are counted per day.
func TestRowsADay(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE counted (i int)")
	sample(t, db)
	age(db, 5)
	count(db, "INSERT INTO counted SELECT generate_series(1, 1000)", "counted", 1000, 0)
	sample(t, db)
	age(db, 5)
	count(db, "DELETE FROM counted WHERE i <= 500", "counted", 1000, 500)
	sample(t, db)
	r := rates(t, db, "public.counted")
	if r.Inserted == nil || *r.Inserted < 99 || *r.Inserted > 100 || *r.Deleted < 49 || *r.Deleted > 50 {
		t.Errorf("%d inserted, %d deleted a day", *r.Inserted, *r.Deleted)
	}
}

// The history has at most one point a day, and begins with the size at its start.
func TestHistory(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE growing (i int)")
	for _, days := range []int{60, 20, 0, 0, 10} {
		db.Do("INSERT INTO growing SELECT generate_series(1, 1000)")
		db.Do("VACUUM ANALYZE growing")
		sample(t, db)
		age(db, days)
	}
	history, err := readHistory(t.Context(), db, []string{"public.growing", "public.xtkoption"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	points := history["public.growing"]
	if len(points) != 2 && len(points) != 3 { // the three samples in a row may have been taken around midnight
		t.Fatalf("%+v", points)
	}
	var rows []int64
	for i, p := range points {
		rows = append(rows, p.Rows)
		if p.Bytes < 8192 || (i > 0 && !p.Time.After(points[i-1].Time)) {
			t.Errorf("%+v", points)
		}
	}
	if rows[0] != 2000 || rows[len(rows)-1] != 5000 {
		t.Errorf("%v", rows)
	}
}
