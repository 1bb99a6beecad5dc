package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// An accepted schedule has a next time: after now, within nine years (29 February, around 2100), when a clock of the
// zone shows what the expression asks for or right after a change, and no earlier one was possible.
func FuzzSchedule(f *testing.F) {
	for _, cron := range []string{
		"0 4 * * *", "30 2 * * *", "*/7 1-5/2 1,15 * 1-5", "0 4 29 2 *", "0 4 31 * 0", "* * * * *", "59 23 31 12 *",
		"30 2 29 3 *", "@daily", "TZ=UTC 0 4 * * *", "0 0 30 2 *", "0 4 * * 7", "0 4 * jan sun",
		"0-59/9223372036854775807 4 * * *", "? ? ? ? ?", "0 4 1-31 * *", "*/1 * * * 0", "-1 4 * * *", "0 4 * * * *",
	} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"} {
			f.Add(cron, zone, int64(1774742400)) // 2026-03-29
		}
	}
	for _, zone := range []string{
		"", "Local", "America/Havana", "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Apia", "Asia/Gaza",
		"Antarctica/Troll", "Europe/../UTC", "/etc/passwd", "europe/berlin", "\x00", "GMT+25", "localtime",
		"posix/Europe/Berlin", "Europe//Berlin", "<+05>-05",
	} {
		f.Add("0 0 * * *", zone, int64(1325203200)) // 2011-12-30, which Apia skipped
		f.Add("30 0-3 * * *", zone, int64(1793491200))
	}
	f.Add("0 * * * 0", "Pacific/Apia", int64(1325203200))
	f.Fuzz(func(t *testing.T, cron, zone string, seconds int64) {
		now := time.Unix(seconds, 0).UTC()
		if now.Year() < 2000 || now.Year() > 2090 {
			return
		}
		s := Schedule{Cron: cron, TimeZone: zone, Enabled: true}
		if err := s.Complete(now, "Etc/UTC", nil); err != nil {
			if wrong := failure.Violations(nil); !errors.As(err, &wrong) {
				t.Errorf("%q in %q: %v", cron, zone, err)
			}
			return
		}
		next := *s.NextRunTime
		if !next.After(now) || next.After(now.AddDate(9, 0, 0)) {
			t.Fatalf("%q in %q: after %s comes %s", cron, zone, now, next)
		}
		where, err := time.LoadLocation(s.TimeZone)
		if err != nil {
			t.Fatal(err)
		}
		times, err := parseCron(s.Cron, where)
		if err != nil {
			t.Fatal(err)
		}
		if start, _ := next.In(where).ZoneBounds(); !times.shows(next) && !start.Equal(next) {
			t.Errorf("%q in %q: after %s comes %s", cron, zone, now, next.In(where))
		}
		for at := now.Truncate(time.Minute).Add(time.Minute); at.Before(next) &&
			at.Before(now.Add(25*time.Hour)); at = at.Add(time.Minute) {
			if times.shows(at) && (times.Hour&star != 0 || instant(shown(at.In(where)), where).Equal(at)) {
				t.Fatalf("%q in %q: after %s comes %s, but %s is sooner", cron, zone, now, next.In(where), at.In(where))
			}
		}
		if again, err := s.Next(now); err != nil || !again.Equal(next) {
			t.Errorf("%q in %q: once stored, after %s comes %v, %v", cron, zone, now, again, err)
		}
	})
}

// A clock of the zone shows what the expression asks for.
func (r *recurring) shows(at time.Time) bool {
	at = at.In(r.zone)
	dom, dow := r.Dom&(1<<at.Day()) != 0, r.Dow&(1<<at.Weekday()) != 0
	day := dom && dow
	if r.Dom&star == 0 && r.Dow&star == 0 {
		day = dom || dow
	}
	return day && r.Minute&(1<<at.Minute()) != 0 && r.Hour&(1<<at.Hour()) != 0 && r.Month&(1<<at.Month()) != 0 &&
		at.Second() == 0
}
