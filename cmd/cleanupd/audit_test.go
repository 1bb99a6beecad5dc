package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/cleanupd/cleanupd/service/audit"
)

// Control characters in any column of the audit are escaped in tables, and unchanged once JSON is parsed.
func TestAuditIsPrintable(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	const bad = "\x1b[31m\x7f\u009b2J\u202e\U000e0001\n2026\tadmin"
	details, err := json.Marshal(audit.Details{bad: bad})
	if err != nil {
		t.Fatal(err)
	}
	db.Do(
		"INSERT INTO cleanupd.audit (subject, role, by, address, rpc, result, details) VALUES ($1, 'admin', 'token', "+
			"$1, $1, 'OK', $2)",
		bad,
		string(details),
	)
	code, table, errs := cleanupd(t, "audit", "--database-url", db.URL())
	if code != 0 || strings.Count(table, "\n") != 2 || strings.Count(table, `\x1b[31m\x7f\u009b2J`) != 5 {
		t.Errorf("%d %q %s", code, table, errs)
	}
	code, line, errs := cleanupd(t, "audit", "--database-url", db.URL(), "--json")
	var e audit.Entry
	if err := json.Unmarshal([]byte(line), &e); err != nil || code != 0 || e.Subject != bad ||
		e.Details[bad] != bad {
		t.Errorf("%d %q %s: %v", code, line, errs, err)
	}
	for _, r := range table + line {
		if !unicode.IsPrint(r) && r != '\n' {
			t.Errorf("%q is written as it is", r)
		}
	}
}
