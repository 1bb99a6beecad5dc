package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

type recurring struct {
	*cron.SpecSchedule
	zone *time.Location
}

var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// fieldNames are the fields of an expression, each with its values.
var fieldNames = []struct{ name, values string }{
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day of the month", "1 to 31"},
	{"month", "1 to 12, or JAN to DEC"},
	{"day of the week", "0 to 7, or SUN to SAT"},
}

// parseCron returns an error that completes a sentence beginning with the name of a field.
func parseCron(expression string, zone *time.Location) (*recurring, error) {
	fields := strings.Fields(expression)
	if len(fields) != len(fieldNames) || strings.Contains(expression, "=") { // the library reads TZ=… as a time zone
		return nil, errors.New("has five fields: minute, hour, day of the month, month, day of the week")
	}
	fields[4] = sundayAsZero(fields[4])
	parsed, err := fiveFields.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, wrongField(fields, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("never comes")
	}
	// Give the library UTC, because its search may not end in a time zone in which clocks change.
	spec.Location = time.UTC
	if spec.Next(time.Now()).IsZero() {
		return nil, errors.New("never comes")
	}
	return &recurring{spec, zone}, nil
}

// wrongField names the first field that the library refuses, since its own error does not.
func wrongField(fields []string, err error) error {
	for i, field := range fields {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		if _, wrong := fiveFields.Parse(strings.Join(alone, " ")); wrong != nil {
			return fmt.Errorf("has %.64q for the %s: write %s, as one, a range 1-5, a list 1,3 or steps */2", field,
				fieldNames[i].name, fieldNames[i].values)
		}
	}
	return err
}

// toSeven matches 7, or a range that ends with 7, in a list of days of the week.
var toSeven = regexp.MustCompile(`^(?:([0-7])-)?7(?:/([1-9]\d{0,2}))?$`)

// sundayAsZero replaces 7 by 0, because the library accepts Sunday only as 0.
func sundayAsZero(days string) string {
	parts := strings.Split(days, ",")
	for i, part := range parts {
		bounds := toSeven.FindStringSubmatch(part)
		if bounds == nil {
			continue
		}
		first, err := strconv.Atoi(bounds[1])
		if err != nil { // it is 7 alone
			first = 7
		}
		step, err := strconv.Atoi(bounds[2])
		if err != nil { // it has no step
			step = 1
		}
		var list []string
		for day := first; day <= 7; day += step {
			list = append(list, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(list, ",")
	}
	return strings.Join(parts, ",")
}

// star is the bit with which the library marks a field that is an asterisk.
const star = 1 << 63

// next returns the next time. If the expression is for every hour, every hour that passes counts. Otherwise a time
// that clocks repeat in autumn comes once, and a time that they skip in spring comes right after the change.
func (r *recurring) next(after time.Time) time.Time {
	at := after.In(r.zone)
	if r.Hour&star != 0 {
		return r.nextHour(at)
	}
	for wall := shown(at); ; {
		if wall = r.Next(wall); wall.IsZero() {
			return wall
		}
		if when := instant(wall, r.zone); when.After(after) {
			return when
		}
	}
}

// nextHour searches from one clock change to the next.
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

// shown returns what a wall clock shows, as a time in UTC.
func shown(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.Add(time.Duration(offset) * time.Second).UTC()
}

// instant returns when a wall clock of the zone first shows a time. If the clock skips that time, it returns the
// time of the change.
func instant(wall time.Time, zone *time.Location) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, zone)
	from, to := at.ZoneBounds()
	switch got := shown(at); {
	case got.Before(wall): // the time is skipped, and was read as a time before the change
		return to
	case got.After(wall):
		return from
	case from.IsZero():
		return at
	}
	// If the time is repeated, the first one has the offset from before the change.
	_, before := from.Add(-time.Nanosecond).Zone()
	if first := wall.Add(-time.Duration(before) * time.Second); first.Before(from) {
		return first.In(zone)
	}
	return at
}
