package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Windows open and close by the clocks of the zone, across midnight and both changes of the clock.
func TestPhase(t *testing.T) {
	t.Parallel()
	night := []Window{{Start: "22:00", End: "06:00", Pace: pace.Fast}}
	late, early := []Window{{Start: "02:30", End: "05:00"}}, []Window{{Start: "01:00", End: "02:30"}}
	const berlin = "Europe/Berlin"
	saturday := []Window{{Days: []string{"SAT"}, Start: "22:00", End: "06:00"}}
	sunday := []Window{{Days: []string{"SUN"}, Start: "00:00", End: "00:00"}}
	for name, test := range map[string]struct {
		zone    string
		windows []Window
		now     string
		open    bool
		pace    pace.Pace
		until   string
	}{
		"before":          {berlin, night, "2026-06-10T21:59:59+02:00", false, "", "2026-06-10T22:00:00+02:00"},
		"at the start":    {berlin, night, "2026-06-10T22:00:00+02:00", true, "FAST", "2026-06-11T06:00:00+02:00"},
		"after midnight":  {berlin, night, "2026-06-11T00:30:00+02:00", true, "FAST", "2026-06-11T06:00:00+02:00"},
		"at the end":      {berlin, night, "2026-06-11T06:00:00+02:00", false, "", "2026-06-11T22:00:00+02:00"},
		"spring, 7 hours": {berlin, night, "2027-03-27T22:00:00+01:00", true, "FAST", "2027-03-28T06:00:00+02:00"},
		"autumn, 9 hours": {berlin, night, "2026-10-24T22:00:00+02:00", true, "FAST", "2026-10-25T06:00:00+01:00"},
		"another zone": {
			"America/New_York", night, "2026-11-01T01:30:00-05:00", true, "FAST", "2026-11-01T06:00:00-05:00",
		},
		"a change of 30 min": {
			"Australia/Lord_Howe", night, "2026-10-03T23:00:00+10:30", true, "FAST", "2026-10-04T06:00:00+11:00",
		},
		"no changes": {
			"Asia/Kolkata", night, "2026-10-25T05:59:00+05:30", true, "FAST", "2026-10-25T06:00:00+05:30",
		},
		"the start is skipped":  {berlin, late, "2027-03-28T01:59:00+01:00", false, "", "2027-03-28T03:00:00+02:00"},
		"the end is skipped":    {berlin, early, "2027-03-28T01:30:00+01:00", true, "", "2027-03-28T03:00:00+02:00"},
		"the start is repeated": {berlin, late, "2026-10-25T02:10:00+02:00", false, "", "2026-10-25T02:30:00+02:00"},
		"open when it is 02:10 again": {
			berlin, late, "2026-10-25T02:10:00+01:00", true, "", "2026-10-25T05:00:00+01:00",
		},
		"the end is repeated": {berlin, early, "2026-10-25T02:10:00+02:00", true, "", "2026-10-25T02:30:00+02:00"},
		"on another day":      {berlin, saturday, "2026-11-27T23:00:00+01:00", false, "", "2026-11-28T22:00:00+01:00"},
		"on the day after":    {berlin, saturday, "2026-11-29T05:00:00+01:00", true, "", "2026-11-29T06:00:00+01:00"},
		"a whole day":         {"UTC", sunday, "2026-11-29T12:00:00Z", true, "", "2026-11-30T00:00:00Z"},
		"once a week":         {"UTC", sunday, "2026-11-30T00:00:00Z", false, "", "2026-12-06T00:00:00Z"},
		"the first of two": {
			"UTC",
			[]Window{{Start: "08:00", End: "20:00", Pace: pace.Gentle}, {Start: "18:00", End: "08:00", Pace: pace.Fast}},
			"2026-11-29T19:00:00Z", true, "GENTLE", "2026-11-29T20:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Schedule{TimeZone: test.zone, Windows: test.windows}
			got, err := s.Phase(parse(t, test.now))
			if err != nil {
				t.Fatal(err)
			}
			want := &Phase{Open: test.open, Pace: test.pace, Until: parse(t, test.until)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func parse(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A schedule without windows has no phases.
func TestPhaseWithoutWindows(t *testing.T) {
	t.Parallel()
	if p, err := (&Schedule{TimeZone: "UTC"}).Phase(time.Now()); p != nil || err != nil {
		t.Errorf("%v, %v", p, err)
	}
}
