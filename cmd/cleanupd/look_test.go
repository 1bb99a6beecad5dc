package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
)

// catalogOf returns a text that changes with anything that a preview could leave in the database: hashes of the
// catalogs in which objects, rights, statistics and settings are stored.
func catalogOf(db *pgtest.DB) string {
	text := ""
	for _, catalog := range []string{
		"pg_class", "pg_namespace", "pg_proc", "pg_type", "pg_attribute", "pg_depend", "pg_trigger", "pg_stats",
		"pg_default_acl", "pg_db_role_setting", "pg_description", "pg_index",
	} {
		text += catalog + db.Strings(fmt.Sprintf(
			"SELECT COALESCE(md5(string_agg(c::text, '|' ORDER BY c::text)), '') || ' ' || count(*) FROM %s c",
			catalog))[0] + "\n"
	}
	return text
}

const lookShop = `
CREATE TABLE customer (id int PRIMARY KEY, born date);
CREATE TABLE login (id int PRIMARY KEY, customer int REFERENCES customer, at timestamptz);
CREATE TABLE basket (id int PRIMARY KEY, created_at timestamptz);
CREATE TABLE item (id int PRIMARY KEY, basket int REFERENCES basket ON DELETE CASCADE);
INSERT INTO customer SELECT i, '1970-01-01' FROM generate_series(1, 10) i;
INSERT INTO login SELECT i, 1 + i %% 10, now() - i * interval '10 days' FROM generate_series(1, 100) i;
INSERT INTO basket SELECT i, now() - i * interval '10 days' FROM generate_series(1, 100) i;
INSERT INTO item SELECT i, 1 + i %% 100 FROM generate_series(1, 300) i;
ANALYZE;
CREATE SCHEMA secret; CREATE TABLE secret.log (at timestamptz); CREATE TABLE secret.access (at timestamptz);
CREATE SCHEMA shop; CREATE TABLE shop.visit (); GRANT USAGE ON SCHEMA shop TO %[1]s;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO %[1]s`

// A preview without a server needs only the right to read, and leaves nothing behind. It counts what a run then
// deletes.
func TestPreviewLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	reader := db.Role("reader")
	db.Do(fmt.Sprintf(lookShop, reader))
	before := catalogOf(db)
	look := func(code int, args string, patterns ...string) string {
		t.Helper()
		got, out, errs := cleanupd(t, append(strings.Fields("preview "+args), "--database-url", db.As(reader))...)
		if got != code {
			t.Errorf("%s: status %d, not %d:\n%s%s", args, got, code, out, errs)
		}
		for _, pattern := range patterns {
			if !regexp.MustCompile(pattern).MatchString(out + errs) {
				t.Errorf("%s: %s is not in\n%s%s", args, pattern, out, errs)
			}
		}
		return out
	}
	look(0, "", `"?public"?\."?basket"? +delete +64 `, `"?public"?\."?login"? +delete +64 `, `"?public"?\."?item"?.* 192 `,
		"No policy is stored", "cleanupd run --older-than public.login.at=365d --database-url",
		`GRANT CREATE ON DATABASE `, `GRANT .*DELETE.* ON "?public"?\."?basket"?`, "Nothing was changed",
		"Tables that the role may not read are left out. .*:\nGRANT USAGE ON SCHEMA \"secret\" TO .*;\n"+
			"GRANT SELECT ON \"secret\"\\.\"access\" TO .*;\nGRANT SELECT ON \"secret\"\\.\"log\" TO .*;\n")
	if out := look(0, "--older-than login.at=900d", "Total: 11 rows would be deleted"); strings.Contains(out, "trash") {
		t.Errorf("a preview without undo says of the trash:\n%s", out)
	}
	look(0, "--undo 72h --older-than basket.created_at=300d", "The trash would need about [1-9]",
		"a run with undo would be refused: .* cannot create schema cleanupd_trash")
	look(2, "--older-than login.at=90", "in whole days or hours, such as 90d or 12h, not \"90\"")
	look(2, "--older-than login.nothing=90d", `policy login-nothing: olderThan\.column: `)
	look(2, "--older-than logn.at=90d", `there is no table "logn".* \(did you mean login\?\)`)
	look(2, "--older-than public.basked.at=90d", `\(did you mean public\.basket\?\)`)
	look(2, "--older-than visit.at=90d", `\(did you mean shop\.visit\?\)`)
	look(2, "--task nothing --older-than login.at=900d", `unknown task "nothing"`)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte("policies:\n- name: baskets\n  table: basket\n  enabled: true\n"+
		"  olderThan: {column: created_at, days: 500}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var found struct {
		Run struct {
			Results []struct{ Task, RowsDeleted, RowsCascaded string }
		}
		Grants []string
	}
	if err := json.Unmarshal([]byte(look(0, "-o json --policies "+file)), &found); err != nil {
		t.Fatal(err)
	}
	if r := found.Run.Results; len(r) != 1 || r[0].Task != "policy/baskets" || r[0].RowsDeleted != "51" ||
		len(found.Grants) == 0 {
		t.Errorf("got %+v", found)
	}
	if after := catalogOf(db); after != before {
		t.Errorf("the preview left something in the catalog:\n%s\nbefore:\n%s", after, before)
	}
	code, out, errs := cleanupd(t, "run", "--older-than", "login.at=900d", "--database-url", db.URL())
	if code != 2 || !strings.Contains(errs, "no terminal to ask on") || catalogOf(db) != before {
		t.Errorf("without a terminal it stores something: %d %s%s", code, out, errs)
	}
	code, out, errs = cleanupd(t, "run", "--older-than", "login.nothing=900d", "--yes", "--database-url", db.URL())
	if code != 2 || !strings.Contains(errs, "policy login-nothing: olderThan.column") || catalogOf(db) != before {
		t.Errorf("a mistake stores something: %d %s%s", code, out, errs)
	}
	stranger := db.Role("stranger")
	code, out, errs = cleanupd(t, "policies", "grants", file, "--database-url", db.As(stranger))
	if code != 0 || !strings.Contains(out, "GRANT CREATE ON DATABASE "+db.Name) || !strings.Contains(out, "DELETE") ||
		catalogOf(db) != before {
		t.Errorf("who has no rights is not told which are needed: %d %s%s", code, out, errs)
	}
	grant := "GRANT CREATE ON DATABASE " + db.Name + " TO " + reader
	look(0, "", grant+";")
	code, out, errs = cleanupd(t, "run", "--dry-run", "--database-url", db.As(reader))
	if code != 1 || !strings.Contains(errs, grant+"\n") || strings.Contains(errs, "migrate") || catalogOf(db) != before {
		t.Errorf("run advises something else than preview, %q: %d %s%s", grant, code, out, errs)
	}
	code, out, errs = cleanupd(t, "tables", "--suggest", "--database-url", db.As(reader))
	if code != 0 || !strings.Contains(out, "name: basket") || catalogOf(db) != before {
		t.Errorf("suggestions need more than the right to read: %d %s%s", code, out, errs)
	}
	code, out, errs = cleanupd(t, "run", "--older-than", "login.at=900d", "--yes", "--database-url", db.URL())
	if left := db.Int("SELECT count(*) FROM login"); code != 0 || left != 89 {
		t.Errorf("%d, %d rows left: %s%s", code, left, out, errs)
	}
	code, _, errs = cleanupd(t, "run", "--older-than", "login.at=800d", "--yes", "--database-url", db.URL())
	if code != 0 || !strings.Contains(errs, "Changed the age of the policy login-at") ||
		db.Int("SELECT count(*) FROM login") != 79 {
		t.Errorf("%d %s", code, errs)
	}
	// the role cannot read what a server has stored, and the preview says so
	look(0, "--older-than login.at=700d", "cannot read schema cleanupd", "Total: 10 rows would be deleted")
	if out := look(0, "", "Stored policies are not shown, since the role may not read the schema cleanupd",
		"suggested policies"); strings.Contains(out, "No policy is stored") {
		t.Errorf("policies are hidden, and said not to exist:\n%s", out)
	}
}

// A policy of --older-than is kept if the answer is yes. Otherwise nothing changes, not even the age of a policy.
func TestOlderThanAsks(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE login (id int PRIMARY KEY, at timestamptz);
		INSERT INTO login SELECT i, now() - i * interval '10 days' FROM generate_series(1, 100) i`)
	for _, c := range []struct {
		answer, age string
		code        int
		shown       string
		rows, days  int64 // rows left, and the age of the stored policy
	}{
		{"n", "900d", 1, "nothing was run, and no policy was stored or changed", 100, 0},
		{"n", "900d", 1, "Policy    login-at deletes rows of login with at older than 900 days\n", 100, 0},
		{"n", "900d", 1, ". Store the policy login-at for all runs from now on, and run this, and at most", 100, 0},
		{"n", "0", 1, "Policy    login-at deletes every row of login whose at is in the past\n", 100, 0},
		{"y", "900d", 0, "Stored the policy login-at.", 89, 900},
		{"n", "800d", 1, "nothing was run, and no policy was stored or changed", 89, 900},
		{
			"n", "800d", 1, "Policy    login-at deletes rows of login with at older than 800 days; so far rows of login with " +
				"at older than 900 days\n", 89, 900,
		},
		{"n", "800d", 1, ". Change the policy login-at for all runs from now on, and run this, and at most", 89, 900},
		{"y", "800d", 0, "Changed the age of the policy login-at.", 79, 800},
		{"n", "800d", 1, "nothing was run; the dry run can still be followed", 79, 800},
	} {
		code, shown := onTerminal(t, c.answer, "run", "--older-than", "login.at="+c.age, "--database-url", db.URL())
		rows := db.Int("SELECT count(*) FROM login")
		days := db.Int("SELECT COALESCE(max((rule->'older_than'->>'days')::int), 0) FROM cleanupd.policy")
		if code != c.code || !strings.Contains(shown, c.shown) || rows != c.rows || days != c.days {
			t.Errorf("%+v: %d, %d rows, %d days: %s", c, code, rows, days, shown)
		}
	}
}

// Suggested rules are previewed in the order of a run: payments, which keep orders, before these.
func TestPreviewOfSuggestionsInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE orders (id int PRIMARY KEY, created_at timestamptz);
		CREATE TABLE payments (id int PRIMARY KEY, paid int REFERENCES orders, created_at timestamptz);
		INSERT INTO orders SELECT i, now() - i * interval '10 days' FROM generate_series(1, 100) i;
		INSERT INTO payments SELECT i, i, now() - i * interval '10 days' FROM generate_series(1, 100) i;
		CREATE INDEX ON payments (paid); ANALYZE`)
	code, out, errs := cleanupd(t, "preview", "--database-url", db.URL())
	for _, pattern := range []string{
		`"orders" +delete +64 `, `"payments" +delete +64 `, "Total: 128 rows would be deleted",
	} {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("%s is not in\n%d %s%s", pattern, code, out, errs)
		}
	}
}

// counted is a run in the output of preview -o json and runs -o json.
type counted struct {
	Results []struct{ Task, RowsDeleted, RowsUpdated, TablesDropped string }
}

func (c counted) of() map[string]string {
	found := map[string]string{}
	for _, r := range c.Results {
		found[r.Task] = fmt.Sprintf("%s deleted, %s updated, %s dropped", r.RowsDeleted, r.RowsUpdated, r.TablesDropped)
	}
	return found
}

// A preview without a server of a Campaign database counts, task by task, what a run then does.
func TestPreviewOfCampaignIsTheRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// as of an hour ago, so that no row becomes obsolete between the preview and the run
	err = campaigndb.Fill(t.Context(), conn.Conn(), 4_000, 1, time.Now().Add(-time.Hour))
	conn.Release()
	if err != nil {
		t.Fatal(err)
	}
	var previewed struct{ Run counted }
	code, out, errs := cleanupd(t, "preview", "-o", "json", "--database-url", db.URL())
	if err := json.Unmarshal([]byte(out), &previewed); code != 0 || err != nil {
		t.Fatalf("%d %v %s", code, err, errs)
	}
	if code, _, errs := cleanupd(t, "run", "--database-url", db.URL()); code != 0 {
		t.Fatal(code, errs)
	}
	var listed struct{ Runs []counted }
	code, out, errs = cleanupd(t, "runs", "-o", "json", "--limit", "1", "--database-url", db.URL())
	if err := json.Unmarshal([]byte(out), &listed); code != 0 || err != nil || len(listed.Runs) != 1 {
		t.Fatalf("%d %v %s %s", code, err, out, errs)
	}
	run := listed.Runs[0].of()
	if len(run) != len(tasks.Pipeline) || strings.HasPrefix(run["deliveries"], "0 ") {
		t.Errorf("the run has done nothing: %v", run)
	}
	if diff := cmp.Diff(run, previewed.Run.of()); diff != "" {
		t.Errorf("the preview differs from the run (-run +preview):\n%s", diff)
	}
}

// A preview of a hot standby shows the same as one of its primary.
func TestPreviewOfAHotStandby(t *testing.T) {
	t.Parallel()
	db, primary, standby := pgtest.PrivateWithStandby(t)
	reader := db.Role("reader")
	db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() - '1 day'::interval FROM " +
		"generate_series(1, 50) i; GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + reader)
	if err := standby.FallBehind(t.Context(), primary); err != nil { // it stops at the state that primary has now
		t.Fatal(err)
	}
	totals := regexp.MustCompile(`(?m)^"public".*|^Total: .* would be deleted|^GRANT .*`)
	var texts [2][]string
	for i, url := range []string{db.As(reader), standby.URL(reader, db.Name)} {
		code, out, errs := cleanupd(t, "preview", "--database-url", url)
		if code != 0 {
			t.Fatalf("%s: %d %s%s", url, code, out, errs)
		}
		texts[i] = totals.FindAllString(out, -1)
	}
	if !slices.Contains(texts[0], "Total: 50 rows would be deleted") || !slices.Equal(texts[0], texts[1]) {
		t.Errorf("the primary shows\n%q\nand the standby\n%q", texts[0], texts[1])
	}
}
