package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Window is a time of the week in which runs may work. It is stored as JSON.
type Window struct {
	Days  []string  `json:"days,omitempty"` // names of the days on which it opens; empty for every day
	Start string    `json:"start"`          // HH:MM
	End   string    `json:"end"`            // HH:MM; on the next day if it is not after Start
	Pace  pace.Pace `json:"pace,omitempty"` // "" for the pace of the schedule
}

// days has the order of time.Weekday.
var days = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

const maxWindows = 20

func (w Window) String() string {
	text := w.Start + "-" + w.End
	if len(w.Days) > 0 {
		text = strings.Join(w.Days, ",") + " " + text
	}
	if w.Pace != "" {
		text += " " + string(w.Pace)
	}
	return text
}

const clock = "15:04"

func (s *Schedule) invalidWindows() (wrong failure.Violations) {
	if len(s.Windows) > maxWindows {
		wrong.Addf("schedule.windows", "has %d windows: %d at most", len(s.Windows), maxWindows)
		return wrong
	}
	for i, w := range s.Windows {
		field := fmt.Sprintf("schedule.windows[%d].", i)
		if len(w.Days) > len(days) {
			wrong.Addf(field+"days", "has %d days: %d at most", len(w.Days), len(days))
			continue
		}
		for d, day := range w.Days {
			if !slices.Contains(days, day) {
				wrong.Addf(fmt.Sprintf("%sdays[%d]", field, d), "%.20q is not a day: %s", day, strings.Join(days, ", "))
			}
		}
		for name, text := range map[string]string{"start": w.Start, "end": w.End} {
			if _, err := time.Parse(clock, text); err != nil || len(text) != len(clock) {
				wrong.Addf(field+name, "%.20q is not a time of day, such as 22:00", text)
			}
		}
	}
	slices.SortStableFunc(wrong, func(a, b failure.Violation) int { return strings.Compare(a.Field, b.Field) })
	return wrong
}

// Phase is a period during which the same windows are open.
type Phase struct {
	Open  bool      // whether a window is open
	Pace  pace.Pace // of the first open window; "" for the pace of the schedule
	Until time.Time // when the next window opens or closes
}

// longest is the number of days within which every window opens or closes at least once.
const longest = 8

// Phase returns the phase at a time, or nil if there are no windows. The schedule must be complete.
func (s *Schedule) Phase(now time.Time) (*Phase, error) {
	if len(s.Windows) == 0 {
		return nil, nil
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return nil, err
	}
	p := &Phase{Until: now.AddDate(0, 0, longest)}
	today := shown(now.In(zone)).Truncate(24 * time.Hour)
	for _, w := range s.Windows {
		for day := -2; day <= longest; day++ {
			from, to, opens := w.on(today.AddDate(0, 0, day), zone)
			if !opens {
				continue
			}
			for _, at := range []time.Time{from, to} {
				if at.After(now) && at.Before(p.Until) {
					p.Until = at
				}
			}
			if !p.Open && !now.Before(from) && now.Before(to) {
				p.Open, p.Pace = true, w.Pace
			}
		}
	}
	return p, nil
}

// on returns when the window opens and closes if it opens on the given day.
func (w Window) on(day time.Time, zone *time.Location) (from, to time.Time, opens bool) {
	if len(w.Days) > 0 && !slices.Contains(w.Days, days[day.Weekday()]) {
		return from, to, false
	}
	at := func(text string) time.Time {
		t, _ := time.Parse(clock, text)
		return day.Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute)
	}
	start, end := at(w.Start), at(w.End)
	if !end.After(start) {
		end = end.AddDate(0, 0, 1)
	}
	return instant(start, zone), instant(end, zone), true
}
