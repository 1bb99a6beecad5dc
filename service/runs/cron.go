package runs

import (
	"errors"
	"strings"
	"time"
	_ "time/tzdata" // time zones where the system has none

	"github.com/robfig/cron/v3"
)

// recurring is the times of a cron expression in a time zone.
type recurring struct {
	*cron.SpecSchedule
	zone *time.Location
}

var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

func parseCron(expression string, zone *time.Location) (*recurring, error) {
	if strings.Contains(expression, "=") { // the library would read a time zone there
		return nil, errors.New("has five fields: minute, hour, day of the month, month, day of the week")
	}
	parsed, err := fiveFields.Parse(expression)
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("never comes")
	}
	// The library goes by a clock that is never changed: across changes of a zone's it may look for ever.
	spec.Location = time.UTC
	if spec.Next(time.Now()).IsZero() {
		return nil, errors.New("never comes")
	}
	return &recurring{spec, zone}, nil
}

// star is how the library marks a field that is an asterisk.
const star = 1 << 63

// next is the first time after a moment. What a clock shows twice in autumn is met once, and what it leaves out in
// spring is met right after the change, unless every hour is asked for: then hours are counted as they pass.
func (r *recurring) next(after time.Time) time.Time {
	at := after.In(r.zone)
	if r.Hour&star != 0 {
		return r.nextHour(at)
	}
	for wall := shown(at); ; {
		if wall = r.Next(wall); wall.IsZero() {
			return wall
		}
		if when := moment(wall, r.zone); when.After(after) {
			return when
		}
	}
}

// nextHour is the first time after a moment that a clock shows, from one of its changes to the next.
func (r *recurring) nextHour(at time.Time) time.Time {
	for wall := shown(at); ; {
		next := r.Next(wall)
		if next.IsZero() {
			return next
		}
		when := at.Add(next.Sub(shown(at)))
		_, change := at.ZoneBounds()
		if change.IsZero() || when.Before(change) {
			return when
		}
		at, wall = change, shown(change).Add(-time.Second)
	}
}

// shown is what a clock on the wall shows at a moment, as though there were no changes.
func shown(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.Add(time.Duration(offset) * time.Second).UTC()
}

// moment is when a clock of the zone shows this for the first time, or would have.
func moment(wall time.Time, zone *time.Location) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, zone)
	from, to := at.ZoneBounds()
	switch got := shown(at); {
	case got.Before(wall): // left out, and taken for a time before the change
		return to
	case got.After(wall):
		return from
	case from.IsZero():
		return at
	}
	// Shown twice? By the offset of before the change.
	_, before := from.Add(-time.Nanosecond).Zone()
	if first := wall.Add(-time.Duration(before) * time.Second); first.Before(from) {
		return first.In(zone)
	}
	return at
}
