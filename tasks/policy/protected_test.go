package policy_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// No policy changes the configuration of the application, however it would reach the rows, even if the service does not
// know that the database is the application's.
func TestProtectedTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE TABLE nmsrecipient (irecipientid int PRIMARY KEY, tscreated timestamptz); CREATE SCHEMA other;
		CREATE TABLE other.nmsdelivery (id int, at timestamptz);
		CREATE TABLE "XtkOperator" (id int, at timestamptz); CREATE TABLE wkf1_2 (id int, at timestamptz);
		CREATE TABLE base (at timestamptz); CREATE TABLE xtkform (id int) INHERITS (base);
		CREATE TABLE child (at timestamptz) INHERITS (nmsrecipient);
		CREATE TABLE folder (id int PRIMARY KEY, note text, at timestamptz); CREATE TABLE sub (id int PRIMARY KEY, note
			text, at timestamptz,
			folder int REFERENCES folder ON DELETE CASCADE);
		ALTER TABLE nmsrecipient ADD extra int REFERENCES sub ON DELETE CASCADE;
		CREATE TABLE color (id int PRIMARY KEY, note text, at timestamptz);
		ALTER TABLE nmsrecipient ADD color int REFERENCES color ON DELETE SET NULL;
		CREATE TABLE mine (id int PRIMARY KEY, at timestamptz)`)
	for table, want := range map[string]string{
		"NmsRecipient":      "configuration: recipients",
		"other.nmsdelivery": "configuration: deliveries",
		`"XtkOperator"`:     "configuration: operators",
		"wkf1_2":            "work table",
		"base":              `"public"."xtkform" inherits from it`,
		"child":             "inherits from nmsrecipient",
		"folder":            `foreign keys delete or change rows of "public"."nmsrecipient"`,
		"sub":               `foreign keys delete or change rows of "public"."nmsrecipient"`,
		"color":             `foreign keys delete or change rows of "public"."nmsrecipient"`,
		"mine":              "",
	} {
		column := "at"
		if table == "NmsRecipient" {
			column = "tsCreated"
		}
		p := policy.Policy{Name: "p", Table: table, OlderThan: &policy.OlderThan{Column: column, Days: new(30)}}
		check := func(p policy.Policy, want string) {
			t.Helper()
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				return p.Check(t.Context(), tx, envOf(t, tx, p))
			})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, not %q", table, err, want)
			}
		}
		check(p, want)
		if strings.HasPrefix(want, "foreign keys") { // an update of other columns does not reach it
			p.Assign = []policy.Assign{{Column: "note"}}
			check(p, "")
		}
	}
}
