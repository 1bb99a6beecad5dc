package flags

import (
	"errors"
	"strings"
	"testing"
)

// A URL that cannot be parsed is a usage error, which never shows the password.
func FuzzDatabaseURL(f *testing.F) {
	const secret = "hunter2x"
	for _, c := range [][3]string{
		{"", "", ""},
		{"", "", "/d"},
		{"", "/", ":x/d"},
		{"#", "", "/d"},
		{"?", "", "/d"},
		{"", "?", ":x"},
		{"%zz", "", "/d"},
		{" ", "", "/d"},
		{"", "", "/d?sslmode=x"},
		{"", "", "/d?timezone=UTC&TimeZone=x"},
		{"", "", "/d?pool_max_conns=x"},
		{"[", "]", "/d"},
		{"", ":", "[::1/d"},
		{"", "", ",h2:1,2/d"},
		{"\x7f", "", "/d"},
		{"", "'", "/d?connect_timeout=-1"},
		{"//", "", ""},
		{"/", " ", ""},
		{"0/", "\x1b", ":x"},
		{"`", "\n", ":0/d"},
	} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		if strings.Contains(before+after, "@") {
			return // where the password would end
		}
		config, err := DatabaseURL("--database-url", "postgres://u:"+before+secret+after+"@h"+rest)
		if err == nil {
			for name := range config.ConnConfig.RuntimeParams {
				if strings.EqualFold(name, "timezone") {
					t.Errorf("%q sets the session's time zone", rest)
				}
			}
			return
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the password %q: %v", before+secret+after, err)
		}
		if mistake := (*Error)(nil); !errors.As(err, &mistake) {
			t.Errorf("%q: %v", before+secret+after+"@h"+rest, err)
		}
	})
}
