package schedule

import (
	"strings"
	"testing"
	"time"
)

// The next times after a time, across both changes of daylight saving, in zones on both sides of Greenwich and of the
// equator.
func TestCron(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cron, zone, after string
		want              []string
	}{
		// Daily: always at the same wall clock time.
		{"0 4 * * *", "UTC", "2026-03-28T03:59:59Z", []string{"2026-03-28T04:00:00Z", "2026-03-29T04:00:00Z"}},
		{"0 4 * * *", "UTC", "2026-03-28T04:00:00Z", []string{"2026-03-29T04:00:00Z"}},
		{
			"0 4 * * *",
			"Europe/Berlin",
			"2026-03-27T12:00:00Z",
			[]string{"2026-03-28T03:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T02:00:00Z"},
		},
		{
			"0 4 * * *",
			"Europe/Berlin",
			"2026-10-23T12:00:00Z",
			[]string{"2026-10-24T02:00:00Z", "2026-10-25T03:00:00Z", "2026-10-26T03:00:00Z"},
		},
		{
			"0 4 * * *",
			"America/New_York",
			"2026-03-07T00:00:00Z",
			[]string{"2026-03-07T09:00:00Z", "2026-03-08T08:00:00Z"},
		},
		{"0 4 * * *", "Asia/Tokyo", "2026-03-28T19:00:00Z", []string{"2026-03-29T19:00:00Z"}},
		// 02:30 is skipped on 29 March: it comes right after the change, at 03:00, and once.
		{
			"30 2 * * *",
			"Europe/Berlin",
			"2026-03-28T00:00:00Z",
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		{
			"30 2 * * *",
			"America/New_York",
			"2026-03-07T12:00:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"},
		},
		// 02:30 comes twice on 25 October: the first one counts.
		{
			"30 2 * * *",
			"Europe/Berlin",
			"2026-10-24T00:30:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", []string{"2026-10-26T01:30:00Z"}},
		{
			"30 1 * * *",
			"America/New_York",
			"2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"},
		},
		// half an hour
		{
			"15 2 * * *",
			"Australia/Lord_Howe",
			"2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"},
		},
		{
			"45 1 * * *",
			"Australia/Lord_Howe",
			"2026-04-04T00:00:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
		},
		// midnight is skipped
		{
			"30 0 * * *",
			"America/Havana",
			"2026-03-07T12:00:00Z",
			[]string{"2026-03-08T05:00:00Z", "2026-03-09T04:30:00Z"},
		},
		// Several times a day, weekly, monthly.
		{
			"0 4,16 * * *",
			"Europe/Berlin",
			"2026-03-29T00:00:00Z",
			[]string{"2026-03-29T02:00:00Z", "2026-03-29T14:00:00Z"},
		},
		{
			"30 1-3 * * *",
			"Europe/Berlin",
			"2026-03-28T23:00:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"},
		},
		{
			"0 4 * * 0",
			"Europe/Berlin",
			"2026-10-19T00:00:00Z",
			[]string{"2026-10-25T03:00:00Z", "2026-11-01T03:00:00Z"},
		},
		{"0 4 31 * *", "UTC", "2026-03-31T04:00:00Z", []string{"2026-05-31T04:00:00Z"}},
		{"0 4 29 2 *", "UTC", "2026-03-01T00:00:00Z", []string{"2028-02-29T04:00:00Z"}},
		// Every hour: no hour is skipped or repeated.
		{
			"0 * * * *",
			"Europe/Berlin",
			"2026-10-24T23:30:00Z",
			[]string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		},
		{
			"0 * * * *",
			"Europe/Berlin",
			"2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		times, err := parseCron(c.cron, zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			at = times.next(at)
			if got := at.UTC().Format(time.RFC3339); got != want {
				t.Errorf("%s in %s: %s, want %s", c.cron, c.zone, got, want)
			}
		}
	}
	for _, wrong := range []string{
		"", "nonsense", "0 4 * *", "0 0 4 * * *", "60 4 * * *", "0 24 * * *", "0 4 30 2 *", "@daily", "@every 1h",
		"TZ=UTC 0 4 * * *", "TZ=0", "CRON_TZ=", "0 4 * * 8", "0 4 * * 8-7", "0 4 * * 1-7/0", "0 4 * * 77", "7 24 * * *",
		"*/0 4 * * *", "5-1 4 * * *",
	} {
		if _, err := parseCron(wrong, time.UTC); err == nil {
			t.Errorf("%q is taken for a cron expression", wrong)
		}
	}
	for wrong, want := range map[string]string{
		"60 4 * * *":   `has "60" for the minute: write 0 to 59,`,
		"0 4,24 * * *": `has "4,24" for the hour: write 0 to 23,`,
		"0 4 0 * *":    `has "0" for the day of the month: write 1 to 31,`,
		"0 4 * foo *":  `has "foo" for the month: write 1 to 12, or JAN to DEC,`,
		"0 4 * * 8":    `has "8" for the day of the week: write 0 to 7, or SUN to SAT,`,
		"0 4 * *":      "has five fields: ",
	} {
		if _, err := parseCron(wrong, time.UTC); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// The times of several expressions are in order. A minute that several of them share comes once, also if a change to
// daylight saving moved one of them there.
func TestSeveralExpressions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		crons       []string
		zone, after string
		want        []string
	}{
		{
			[]string{"0 4 * * *", "30 12 * * *"},
			"UTC",
			"2026-03-01T00:00:00Z",
			[]string{"2026-03-01T04:00:00Z", "2026-03-01T12:30:00Z", "2026-03-02T04:00:00Z", "2026-03-02T12:30:00Z"},
		},
		{
			[]string{"30 12 * * *", "0 4 * * *", "30 12 * * *", "30 4,12 * * 0"},
			"UTC",
			"2026-02-28T12:00:00Z",
			[]string{
				"2026-02-28T12:30:00Z", "2026-03-01T04:00:00Z", "2026-03-01T04:30:00Z", "2026-03-01T12:30:00Z",
				"2026-03-02T04:00:00Z",
			},
		},
		{
			[]string{"30 2 * * *", "0 3 * * *"},
			"Europe/Berlin",
			"2026-03-28T01:00:00Z",
			[]string{"2026-03-28T01:30:00Z", "2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		{
			[]string{"30 2 * * *", "0 3 * * *"},
			"Europe/Berlin",
			"2026-10-25T00:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-26T01:30:00Z"},
		},
		{
			[]string{"30 2 * * *", "0 * * * 0"},
			"Europe/Berlin",
			"2026-10-25T00:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		},
	} {
		at, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		s := Schedule{Cron: c.crons[0], MoreCrons: c.crons[1:], TimeZone: c.zone}
		for _, want := range c.want {
			next, err := s.Next(at)
			if err != nil {
				t.Fatal(err)
			}
			if at = *next; at.UTC().Format(time.RFC3339) != want {
				t.Errorf("%v in %s: %s, want %s", c.crons, c.zone, at.UTC(), want)
			}
		}
	}
}

// Sunday is 7 as well as 0, alone, in lists, and as the end of ranges.
func TestSunday(t *testing.T) {
	t.Parallel()
	for days, want := range map[string]string{
		"7":     "0",
		"6,7":   "0,6",
		"0,7":   "0",
		"5-7":   "0,5,6",
		"0-7":   "0-6",
		"1-7":   "0-6",
		"7-7":   "0",
		"1-7/2": "0,1,3,5",
		"2-7/2": "2,4,6",
		"0-7/7": "0",
		"7/2":   "0", "1,4-7/3": "0,1,4", "sat,7": "0,6", "*/2": "0,2,4,6", "1/2": "1,3,5", "1-7/100": "1",
	} {
		got, err := parseCron("0 4 * * "+days, time.UTC)
		if err != nil {
			t.Errorf("%s: %v", days, err)
			continue
		}
		if equal, err := parseCron("0 4 * * "+want, time.UTC); err != nil || got.Dow != equal.Dow {
			t.Errorf("%s is %b, want %s (%v)", days, got.Dow, want, err)
		}
	}
}
