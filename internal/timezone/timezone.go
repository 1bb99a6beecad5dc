// Package timezone has the IANA time zones, which are the same on every host.
package timezone

import (
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // time zones where the system has none
)

// form matches the names of IANA time zones. Some systems have further files (localtime, posix/…, right/… with leap
// seconds), which mean something else on other systems, or nothing.
var form = regexp.MustCompile(`^[A-Z][\w+-]*(/[A-Z][\w+-]*)*$`)

// Load fails for names that are not IANA's, and for "Local".
func Load(name string) (*time.Location, error) {
	if name == "Local" || !form.MatchString(name) {
		return nil, fmt.Errorf("%.64q is not an IANA time zone", name)
	}
	return time.LoadLocation(name)
}

// Of returns the IANA time zone of a database's setting TimeZone, or UTC if the setting is something else, such as
// an offset.
func Of(setting string) string {
	if _, err := Load(setting); err != nil {
		return "UTC"
	}
	return setting
}
