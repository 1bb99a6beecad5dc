package main

import (
	"strings"
	"testing"
)

// A MySQL database that is not there is waited for, and told as what it is, without its password.
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
