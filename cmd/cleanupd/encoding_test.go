package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// Databases in any encoding are cleaned, with any characters in their names, in the texts of callers, and in the
// service's own messages.
func TestEncodings(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for encoding, c := range map[string]struct {
		letter string // an SQL expression for the character in the names of tables and of a delivery
		shown  string // how it is shown
	}{
		"LATIN1":        {"chr(233)", "é"},
		"LATIN9":        {"chr(164)", "€"},
		"WIN1251":       {"chr(191)", "ї"},
		"EUC_JP":        {"convert_from('\\xc6fc', 'EUC_JP')", "日"},
		"SQL_ASCII":     {"chr(233)", "\ufffd"},
		"MULE_INTERNAL": {"'e'", "e"},
		"UTF8":          {"chr(233)", "é"},
	} {
		t.Run(encoding, func(t *testing.T) {
			suite.Except(t, suite.Long, "LATIN1", "SQL_ASCII")
			t.Parallel()
			db := pgtest.Encoded(t, encoding)
			db.Do(`DO $$ BEGIN EXECUTE format('CREATE TABLE %I (i int)', 'wkf99000_' || ` + c.letter + `); END $$;
				INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (5, 11);
				INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')`)
			r := startServer(t, "--database-url", db.URL())
			db.Do(
				`INSERT INTO cleanupd.run (id, slot, dry_run, continue_on_error, state, requested_by, end_time)
					VALUES ('6f1c5d6e-0000-4000-8000-000000000000', 0, false, false, 'SUCCEEDED', '', now());
				INSERT INTO cleanupd.remote_delivery (account, remote_id, delivery_id, label, run_id)
					VALUES ('mid', 7, 7, ` + c.letter + `, '6f1c5d6e-0000-4000-8000-000000000000')`,
			)
			if code, out, errs := r.run(t, "mid-sourcing leftovers"); code != 0 ||
				!strings.Contains(out, c.shown) {
				t.Errorf("leftovers: %d %s %s", code, out, errs)
			}
			if code, out, errs := r.run(t, "holds create --reason", "é 日 ї …", "--deliveries", "5"); code != 0 ||
				!strings.Contains(out, "é 日 ї …") {
				t.Errorf("a hold: %d %s %s", code, out, errs)
			}
			if encoding != "SQL_ASCII" { // the name is not UTF-8 there, so it cannot be given
				db.Do(`DO $$ BEGIN EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, at timestamptz)', 'orders' || ` +
					c.letter + `); EXECUTE format('INSERT INTO %I VALUES (1, ''2000-01-01'')', 'orders' || ` + c.letter +
					`); END $$`)
				file := filepath.Join(t.TempDir(), "policy.yaml")
				rule := "name: old-orders\ntable: orders" + c.shown + "\nolderThan: {column: at, days: 30}\n" +
					"description: é 日 ї …\n"
				if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
					t.Fatal(err)
				}
				if code, out, errs := r.run(t, "policies set --file", file); code != 0 {
					t.Errorf("a policy: %d %s %s", code, out, errs)
				}
				code, out, errs := r.run(t, "run --dry-run --task policy/old-orders -o json")
				if code != 0 || !strings.Contains(out, `"rowsDeleted":"1"`) {
					t.Errorf("a dry run of the policy: %d %s %s", code, out, errs)
				}
				if _, out, _ := r.run(t, "policies list -o yaml"); !strings.Contains(out, "é 日 ї …") {
					t.Errorf("the policy is %s", out)
				}
			}
			for _, args := range [][]string{{"run", "--dry-run"}, {"run"}} {
				code, out, errs := cleanupd(t, append(args, "--server", r.grpc, "-o", "json")...)
				if code != 0 || (len(args) > 1 && !strings.Contains(out, "wkf99000_"+c.shown)) {
					t.Errorf("%v: %d %.500s %s", args, code, out, errs)
				}
			}
			if n := db.Int("SELECT count(*) FROM pg_class WHERE relname ^@ 'wkf99000_'"); n != 0 {
				t.Error("the table of a workflow that is gone is still there")
			}
		})
	}
}
