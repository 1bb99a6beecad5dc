// Package timezone knows the IANA time zones, the same ones on every host.
package timezone

import (
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // time zones where the system has none
)

// Names of the IANA time zones. Some systems have further files (localtime, posix/…, right/… with leap seconds), which
// mean something else elsewhere, or nothing.
var form = regexp.MustCompile(`^[A-Z][\w+-]*(/[A-Z][\w+-]*)*$`)

// Load fails for names outside IANA's, and for "Local".
func Load(name string) (*time.Location, error) {
	if name == "Local" || !form.MatchString(name) {
		return nil, fmt.Errorf("%q is no IANA time zone", name)
	}
	return time.LoadLocation(name)
}

// Of returns the IANA time zone of a database's setting TimeZone, or UTC if it is something else, such as an offset.
func Of(setting string) string {
	if _, err := Load(setting); err != nil {
		return "UTC"
	}
	return setting
}
