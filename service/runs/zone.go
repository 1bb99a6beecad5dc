package runs

import (
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // time zones where the system has none
)

// zoneName is what the names of the IANA time zones look like. Some systems have further files (localtime, posix/…,
// right/… with leap seconds), which mean something else elsewhere, or nothing.
var zoneName = regexp.MustCompile(`^[A-Z][\w+-]*(/[A-Z][\w+-]*)*$`)

// loadZone returns an IANA time zone, the same one on every host.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" || !zoneName.MatchString(name) {
		return nil, fmt.Errorf("%q is no IANA time zone", name)
	}
	return time.LoadLocation(name)
}

// zoneOf is the IANA time zone of a database by its TimeZone setting; UTC where that is something else, such as an offset.
func zoneOf(setting string) string {
	if _, err := loadZone(setting); err != nil {
		return "UTC"
	}
	return setting
}
