package timezone_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/timezone"
)

// A database's time zone is used if it is an IANA one, but not if only this host knows it, or if it has no name.
func TestOf(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"UTC":                            "UTC",
		"Etc/UTC":                        "Etc/UTC",
		"GMT":                            "GMT",
		"Europe/Berlin":                  "Europe/Berlin",
		"America/Argentina/Buenos_Aires": "America/Argentina/Buenos_Aires",
		"America/Port-au-Prince":         "America/Port-au-Prince",
		"Etc/GMT+5":                      "Etc/GMT+5", "EST5EDT": "EST5EDT", "W-SU": "W-SU",
		"Local":               "UTC",
		"localtime":           "UTC",
		"posixrules":          "UTC",
		"posix/Europe/Berlin": "UTC",
		"right/Europe/Berlin": "UTC",
		"<+05>-05":            "UTC",
		"<-03>+03":            "UTC",
		"FOO5BAR":             "UTC",
		"MSK":                 "UTC",
		"europe/berlin":       "UTC", "Europe": "UTC", "Europe//Berlin": "UTC", "Europe/../UTC": "UTC", "": "UTC",
	} {
		if got := timezone.Of(setting); got != want {
			t.Errorf("%q: %s, want %s", setting, got, want)
		}
	}
}
