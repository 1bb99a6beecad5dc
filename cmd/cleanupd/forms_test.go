package main

import (
	"strings"
	"testing"
)

// The error about a MySQL database that does not answer gives the reason, but not the password.
func TestMySQLThatIsAway(t *testing.T) {
	t.Parallel()
	const away = "mysql://forms:PLANTED@127.0.0.1:1/forms"
	code, _, errs := cleanupd(t, "migrate", "--forms-database-url", away)
	if code != 1 || !strings.Contains(errs, "the Forms database: cannot connect: dial tcp 127.0.0.1:1") ||
		strings.Contains(errs, "own tables") ||
		strings.Contains(errs, "PLANTED") {
		t.Errorf("%d %s", code, errs)
	}
}
