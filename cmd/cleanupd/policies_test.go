package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A server of a database without Campaign's tables, and files with policies.
type policyFiles struct {
	*testing.T
	*replica
	db  *pgtest.DB
	dir string
}

func newPolicyFiles(t *testing.T) *policyFiles {
	t.Helper()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE customer (id int PRIMARY KEY, name text);
		CREATE TABLE orders (id int PRIMARY KEY, customer int, status text, note text, placed timestamptz);
		CREATE TABLE line (order_id int REFERENCES orders ON DELETE CASCADE);
		INSERT INTO orders SELECT i, i, 'closed', 'a', now() - i * interval '1 day' FROM generate_series(1, 100) i`)
	return &policyFiles{t, startServer(t, "--database-url", db.URL()), db, t.TempDir()}
}

func (f *policyFiles) do(args ...string) (int, string, string) {
	f.Helper()
	return f.run(f.T, "policies", args...)
}

func (f *policyFiles) file(text string) string {
	f.Helper()
	path := filepath.Join(f.dir, "policies.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	return path
}

const twoPolicies = `policies:
- name: old-orders
  table: orders
  enabled: true
  description: |-
    Closed orders
    after a month
  olderThan: {column: placed, days: 30}
  filters: [{column: status, op: EQUAL, values: [closed]}]
- name: orphans
  table: orders
  orphanOf: {column: customer, parentTable: customer, parentColumn: id}
  assign: [{column: note}]
`

// Apply shows what differs, changes it, and does nothing the second time. What export prints is what was applied. A dry
// run changes nothing, and its exit status says whether something differs.
func TestApplyPolicies(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	file := f.file(twoPolicies)
	code, out, errs := f.do("apply", file, "--dry-run")
	if code != 3 || !strings.HasPrefix(out, "old-orders is new\n  + table: orders\n") ||
		!strings.Contains(out, "\n2 new, 0 changed, 0 deleted, 0 unchanged\n") ||
		!strings.Contains(errs, "Warning: old-orders: deleting rows of") ||
		strings.Contains(errs, "Warning: orphans: deleting") || !strings.Contains(errs, "it was a dry run") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs = f.do("list"); code != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("after a dry run: %d %s %s", code, out, errs)
	}
	if code, out, errs = f.do("apply", file); code != 2 || out != "" || !strings.Contains(errs, "give --yes") {
		t.Errorf("without a terminal: %d %s %s", code, out, errs)
	}
	if code, out, errs = f.do("apply", file, "--yes"); code != 0 || !strings.HasSuffix(out, "unchanged\nApplied.\n") ||
		!strings.HasSuffix(errs, "Warning: orphans: rows of \"public\".\"orders\" are also deleted or updated by "+
			"policy/old-orders: both rules apply\n") ||
		strings.Count(errs, "makes foreign keys delete or change") != 1 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	for _, args := range [][]string{{"--dry-run"}, {"--yes"}, {}} {
		code, out, errs = f.do(append([]string{"apply", file}, args...)...)
		if len(args) > 0 && (code != 0 || out != "0 new, 0 changed, 0 deleted, 2 unchanged\n" ||
			!strings.Contains(errs, "Warning: old-orders: deleting rows of")) {
			t.Errorf("again %v: %d %s %s", args, code, out, errs)
		}
	}
	for _, command := range []string{"run --task old-orders", "explain old-orders"} {
		if code, _, errs = f.run(t, command); code == 0 || !strings.Contains(errs, "(did you mean policy/old-orders?)") {
			t.Errorf("%s: %d %s", command, code, errs)
		}
	}
	for _, command := range []string{"get", "delete", "export"} {
		if code, _, errs = f.do(command, "old-order"); code == 0 ||
			errs != "cleanupd: there is no policy \"old-order\" (did you mean old-orders?)\n" {
			t.Errorf("%s: %d %s", command, code, errs)
		}
	}
	code, exported, errs := f.do("export")
	if code != 0 || !strings.Contains(exported, "    description: |-\n      Closed orders\n      after a month\n") {
		t.Fatalf("%d %s %s", code, exported, errs)
	}
	if code, out, errs = f.do("apply", f.file(exported), "--dry-run"); code != 0 {
		t.Errorf("what was exported: %d %s %s", code, out, errs)
	}
	code, out, errs = f.do("apply", f.file(strings.Replace(exported, "days: 30", "days: 60", 1)), "--yes")
	if code != 0 ||
		!strings.HasPrefix(out, "old-orders changes\n  - olderThan.days: 30\n  + olderThan.days: 60\n0 new, "+
			"1 changed, 0 deleted, 1 unchanged\n") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, one, errs := f.do("export", "orphans")
	if code != 0 || strings.Contains(one, "old-orders") {
		t.Errorf("%d %s %s", code, one, errs)
	}
	if code, out, errs = f.do("apply", f.file(one), "--yes"); code != 0 || strings.Contains(out, "is deleted") {
		t.Errorf("without --prune: %d %s %s", code, out, errs)
	}
	code, out, errs = f.do("apply", f.file(one), "--prune", "--yes", "-o", "json")
	if code != 0 || out != "" || !strings.Contains(errs, "old-orders is deleted\n  - table: orders\n") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs = f.do("apply", f.file(twoPolicies), "--yes", "-o", "json")
	var stored struct{ Policy struct{ Name, Etag string } }
	if err := json.Unmarshal([]byte(out), &stored); err != nil || stored.Policy.Name != "old-orders" ||
		stored.Policy.Etag == "" {
		t.Errorf("%v %d %s %s", err, code, out, errs)
	}
}

// Nothing is applied if one policy is wrong. Each wrong field is an error with the place of the policy and its name.
func TestWrongPoliciesAreNotApplied(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	file := f.file(twoPolicies + `- name: wrong
  table: orders
  olderThan:
    column: plcaed
    days: 3000000000
  filters:
    - {column: status, op: IS_NULL}
    - column: status
      op: EQUAL
- name: missing
  table: ordrs
  olderThan: {column: placed, days: 1}
`)
	for _, how := range []string{"--yes", "--dry-run"} {
		code, out, errs := f.do("apply", file, how)
		for _, want := range []string{
			":18: policy wrong: olderThan.days: must be 0 to 24855",
			":21: policy wrong: filters[1].values: must be one for EQUAL",
			`:24: policy missing: table: there is no table "ordrs", or the role cannot use its schema (did you mean orders?)`,
		} {
			if code != 2 || out != "" || strings.Count(errs, "\n") != 3 || !strings.Contains(errs, file+want) {
				t.Errorf("%s: %d %s %s", how, code, out, errs)
			}
		}
	}
	for text, want := range map[string]string{
		"name: a\ntable: orders\nolderthan: {}\n":                              ":3: policy a: olderthan is not a field",
		"name: a\ntable: orders\n":                                             "policy a: needs olderThan",
		"name: b\ntable: cleanupd.run\nolderThan: {column: end_time, days: 1}": "policy b: table: ",
	} {
		path := f.file(text)
		for _, args := range [][]string{{"apply", path, "--yes"}, {"set", "--file", path}} {
			if code, out, errs := f.do(args...); code != 2 || out != "" || !strings.Contains(errs, want) ||
				strings.Count(errs, "\n") != 1 {
				t.Errorf("%v: %d %s %s", args, code, out, errs)
			}
		}
	}
	if code, out, _ := f.do("list", "-o", "json"); code != 0 || strings.Contains(out, `"name"`) {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range [][]string{
		{"apply", "nowhere.yaml", "--yes"},
		{"apply"},
		{"set"},
		{"set", "-f", f.file(twoPolicies)},
		{"get"},
		{"delete"},
		{"export", "nowhere"},
		{"apply", f.file(""), "--yes"},
	} {
		if code, out, errs := f.do(args...); code != 2 || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %d %s %s", args, code, out, errs)
		}
	}
	for _, args := range [][]string{{"get", "nowhere"}, {"delete", "nowhere"}} {
		if code, out, errs := f.do(args...); code != 1 || out != "" || !strings.Contains(errs, "there is no policy") {
			t.Errorf("%v: %d %s %s", args, code, out, errs)
		}
	}
}

// apply reports all rights that policies of a file lack, each once, together with other mistakes.
func TestApplyNamesAllMissingRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	role := db.Role("cleaner")
	db.Superuser("GRANT CREATE ON DATABASE " + db.Name + " TO " + role)
	db.Do(`CREATE SCHEMA lab; CREATE SCHEMA ward;
		CREATE TYPE lab.state AS ENUM ('open', 'closed');
		CREATE TABLE lab.result (id int PRIMARY KEY, state lab.state, patient int, at timestamptz);
		CREATE TABLE ward.patient (id int PRIMARY KEY, name text, seen timestamptz);
		CREATE TABLE ward.visit (id int PRIMARY KEY, patient int REFERENCES ward.patient ON DELETE CASCADE);
		CREATE TABLE ward.document (visit int REFERENCES ward.visit)`)
	f := &policyFiles{T: t, db: db, dir: t.TempDir()}
	const policies = `policies:
- {name: closed, table: lab.result, olderThan: {column: at, days: 30},
   filters: [{column: state, op: EQUAL, values: [closed]}]}
- {name: names, table: ward.patient, olderThan: {column: seen, days: 9}, assign: [{column: name, value: x}]}
- {name: newest, table: lab.result, keepNewest: {per: [patient], orderBy: at, count: 3}}
- {name: orphans, table: lab.result, orphanOf: {column: patient, parentTable: ward.patient, parentColumn: id}}
- {name: patients, table: ward.patient, olderThan: {column: seen, days: 30}}
`
	const wrong = "- {name: wrong, table: lab.result, olderThan: {column: tat, days: 30}}\n"
	want := strings.ReplaceAll("the role lacks rights; have the tables' owner execute: "+
		`GRANT USAGE ON SCHEMA "lab" TO "~"; GRANT SELECT, DELETE ON "lab"."result" TO "~"; `+
		`GRANT USAGE ON SCHEMA "ward" TO "~"; GRANT SELECT, UPDATE, DELETE ON "ward"."patient" TO "~"; `+
		`GRANT SELECT ON "ward"."visit" TO "~"`+"\n", "~", role)
	both := f.file(policies + wrong)
	check := func(server ...string) {
		t.Helper()
		code, out, errs := cleanupd(t, append([]string{"policies", "apply", both, "--yes"}, server...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 2 || !strings.HasSuffix(errs, want) ||
			!strings.Contains(errs, `policy wrong: olderThan.column: "lab"."result" has no column "tat"`) {
			t.Errorf("%v: %d %s%s, want %s", server, code, out, errs, want)
		}
	}
	url := []string{"--database-url", db.As(role)}
	check(url...)
	f.replica = startServer(t, url...)
	check("--server", f.grpc)
	file := f.file(policies)
	for _, server := range [][]string{url, {"--server", f.grpc}} {
		code, out, errs := cleanupd(t, append([]string{"policies", "apply", file, "--yes"}, server...)...)
		if code != 1 || out != "" || errs != "cleanupd: "+want {
			t.Errorf("%v: %d %s%s, want %s", server, code, out, errs, want)
		}
	}
	_, grants, _ := strings.Cut(want, "execute: ")
	db.Do(grants)
	if code, out, errs := f.do("apply", file, "--yes"); code != 0 {
		t.Errorf("once they are granted: %d %s %s", code, out, errs)
	}
}

// grants prints one script for all policies of a file, with each grant once, and nothing if a policy is wrong.
func TestGrantsOfAFile(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	f.db.Do(`CREATE TABLE event (day timestamptz) PARTITION BY RANGE (day);
		CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO (MAXVALUE)`)
	const events = "- name: old-events\n  table: event\n  olderThan: {column: day, days: 30}\n"
	file := f.file(twoPolicies + events)
	code, script, errs := f.do("grants", file)
	const want = `BEGIN;
GRANT USAGE ON SCHEMA "public" TO "neolane";
GRANT SELECT, DELETE, UPDATE ON "public"."orders" TO "neolane";
GRANT SELECT ON "public"."line" TO "neolane";
GRANT SELECT ON "public"."customer" TO "neolane";
GRANT SELECT, DELETE ON "public"."event" TO "neolane";
GRANT SELECT, DELETE ON "public"."event_old" TO "neolane";
COMMIT;
-- Partitions that are made later need grants of their own: run a new script of this kind then.
-- The following grants them in advance, but on ALL tables that the owner makes in the schema:
-- ALTER DEFAULT PRIVILEGES FOR ROLE neolane IN SCHEMA public GRANT SELECT, DELETE ON TABLES TO neolane;
`
	if code != 0 || script != want || errs != "" {
		t.Errorf("%d %s\ngot\n%s\nwant\n%s", code, errs, script, want)
	}
	f.db.Superuser(script)
	code, out, _ := f.do("grants", file, "-o", "json")
	var response struct{ Statements []string }
	if err := json.Unmarshal([]byte(out), &response); code != 0 || err != nil ||
		len(response.Statements) != strings.Count(want, ";")-2 {
		t.Errorf("%d %v %s", code, err, out)
	}
	file = f.file(twoPolicies + events + "- name: wrong\n  table: orders\n  olderThan: {column: plcaed, days: 1}\n")
	const problem = `policy wrong: olderThan.column: "public"."orders" has no column "plcaed" (did you mean placed?)`
	if code, out, errs = f.do("grants", file); code != 2 || out != "" || !strings.Contains(errs, problem) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs = cleanupd(t, "policies", "grants", file, "--server", "127.0.0.1:1")
	if code != 1 || out != "" || strings.Count(errs, "\n") != 1 {
		t.Errorf("without a server: %d %s %s", code, out, errs)
	}
}

// grants includes the membership in the owner that detaching partitions needs; as a comment, also the one that lets
// runs drop whole partitions. For undo it includes the right to lock rows that foreign keys delete, and, as a comment,
// the membership that bringing rows back needs.
func TestGrantsBeyondDeleting(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	owner := f.db.Role("shop")
	f.db.Superuser(`CREATE TABLE event (day timestamptz) PARTITION BY RANGE (day);
		CREATE TABLE event_old PARTITION OF event FOR VALUES FROM ('2020-01-01Z') TO ('2021-01-01Z');
		ALTER TABLE event OWNER TO ` + owner + "; ALTER TABLE event_old OWNER TO " + owner +
		"; ALTER TABLE line OWNER TO " + owner)
	const policies = `policies:
- {name: orders, table: orders, olderThan: {column: placed, days: 30}, undo: 24h}
- {name: events, table: event, olderThan: {column: day, days: 30}?}
`
	const start = `BEGIN;
GRANT USAGE ON SCHEMA "public" TO "neolane";
GRANT SELECT, DELETE ON "public"."orders" TO "neolane";
GRANT SELECT, UPDATE ON "public"."line" TO "neolane";
`
	const both = `GRANT SELECT, DELETE ON "public"."event" TO "neolane";
GRANT SELECT, DELETE ON "public"."event_old" TO "neolane";
COMMIT;
`
	undo := "-- GRANT " + owner + ` TO neolane; -- optional: undo inserts rows into "public"."line" as ` +
		"their owner; without it, rows can be restored only into another schema, which needs GRANT CREATE ON DATABASE\n"
	for further, want := range map[string]string{
		"": both + undo + "-- GRANT " + owner +
			` TO neolane; -- optional: lets the role drop partitions of "public"."event", which only ` +
			"their owner may; without it, their rows are deleted. It gives the role all rights of the owner\n",
		", partitions: DELETE": both + undo,
		", partitions: DETACH": strings.ReplaceAll(both, ", DELETE", "") + "-- Only an owner may detach partitions. A " +
			"superuser, or who has the ADMIN OPTION, makes the role a member,\n-- with all that the owner may do:\n" +
			"GRANT " + owner + " TO neolane;\n" + undo,
	} {
		file := f.file(strings.ReplaceAll(policies, "?", further))
		code, out, errs := f.do("grants", file)
		script, _, _ := strings.Cut(out, "-- Partitions that are made later")
		if code != 0 || script != start+want {
			t.Errorf("%q: %d %s\ngot\n%s\nwant\n%s", further, code, errs, script, start+want)
		}
	}
}

// On a terminal, apply names the database and asks. Policies that change meanwhile are not overwritten.
func TestApplyAsks(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	file := f.file(twoPolicies)
	code, shown := onTerminal(t, "n", "policies", "apply", file, "--server", f.grpc)
	if code != 1 || !strings.Contains(shown, "\nDatabase  "+f.db.Name+" on ") ||
		!strings.Contains(shown, "nothing was changed") || f.db.Int("SELECT count(*) FROM cleanupd.policy") != 0 {
		t.Errorf("%d %s", code, shown)
	}
	code, shown = onTerminal(t, "y", "policies", "apply", file, "--server", f.grpc)
	if code != 0 || f.db.Int("SELECT count(*) FROM cleanupd.policy") != 2 {
		t.Errorf("%d %s", code, shown)
	}
	if code, shown = onTerminal(t, "", "policies", "apply", file, "--server", f.grpc); code != 0 {
		t.Errorf("nothing differs: %d %s", code, shown)
	}
	other := f.dir + "/other.yaml"
	for name, days := range map[string]string{"old-orders": "31", "new": "32"} {
		text := "{name: " + name + ", table: orders, olderThan: {column: placed, days: " + days + "}}"
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		meanwhile := func() {
			if code, out, errs := f.do("set", "-f", other); code != 0 {
				t.Errorf("%d %s %s", code, out, errs)
			}
		}
		file = f.file(strings.ReplaceAll(text, days, "60"))
		code, shown = onTerminalAfter(t, meanwhile, "y", "policies", "apply", file, "--server", f.grpc)
		if code != 1 || !strings.Contains(shown, "nothing was changed: somebody else") ||
			f.db.Int("SELECT count(*) FROM cleanupd.policy WHERE rule::text LIKE '%60%'") != 0 {
			t.Errorf("%s: %d %s", name, code, shown)
		}
	}
}

// A policy is listed with its condition in words, and whether it has run. The first run of a rule needs a preview.
func TestPoliciesAreListed(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	if code, out, errs := f.do("set", "-f", f.file("policies:\n- {name: old-orders, table: orders, enabled: true, "+
		"olderThan: {column: placed, days: 30}}")); code != 0 || !strings.Contains(errs, "no run has followed a saved") ||
		!strings.Contains(out, "old-orders") {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	ran := func(want string) {
		t.Helper()
		row := regexp.MustCompile(`old-orders +yes +` + want + ` +orders +delete +placed older than 30 days\n`)
		if code, out, errs := f.do(); code != 0 || !row.MatchString(out) || errs != "" {
			t.Errorf("%d %s %s", code, out, errs)
		}
	}
	ran("no")
	if code, out, errs := f.run(t, "run"); code != 1 || !strings.Contains(out+errs, "policy") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs := f.run(t, "run --preview --yes"); code != 0 ||
		f.db.Int("SELECT count(*) FROM orders") != 29 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	ran("yes")
	code, out, errs := f.do("get", "old-orders")
	if code != 0 || !regexp.MustCompile(`(?m)^ran +yes$`).MatchString(strings.ToLower(out)) ||
		!strings.Contains(out, "policy/old-orders") || strings.Contains(errs, "never run") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	offered, _, found := completeUntil(t, "policies get --server "+f.grpc+" ", "old-orders\torders: placed older than")
	if !found || len(offered) != 1 {
		t.Errorf("%v", offered)
	}
	if offered, _, found = completeUntil(t, "run --server "+f.grpc+" --skip-task pol", "policies\t"); !found {
		t.Errorf("%v", offered)
	}
	if code, out, errs = f.do("delete", "old-orders"); code != 2 || !strings.Contains(errs, "give --yes") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs = f.do("delete", "old-orders", "--yes"); code != 0 || out != "The policy old-orders is deleted.\n" {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// In a Campaign database a warning names the tasks that cover the table of a policy, and configuration is protected.
// For a log that no task cleans, a run suggests a command, which deletes its old rows.
func TestPoliciesOfCampaign(t *testing.T) {
	t.Parallel()
	f := &policyFiles{T: t, db: pgtest.Campaign(t), dir: t.TempDir()}
	f.replica = startServer(t, "--database-url", f.db.URL())
	for table, tasks := range map[string]string{
		"NmsVisitor":     "visitors",
		"NmsBroadLogMid": "deliveries, expired-deliveries, delivery-logs",
	} {
		file := f.file("name: mine\ntable: " + table + "\nolderThan: {column: tsLastModified, days: 9}\n")
		code, out, errs := f.do("apply", file, "--dry-run")
		if want := "are also deleted or updated by " + tasks + ": "; code != 3 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s %s", table, code, out, errs)
		}
	}
	code, _, errs := f.do("set", "-f",
		f.file("{name: a, table: XtkOption, olderThan: {column: tsLastModified, days: 1}}"))
	if code != 2 || !strings.Contains(errs, "it has the application's configuration") {
		t.Errorf("%d %s", code, errs)
	}
	f.db.Do("INSERT INTO NmsBroadLogEventHisto (iBroadLogId, tsLastModified) VALUES (1, '2000-01-01'), (2, now())")
	code, out, errs := f.run(t, "run --older-than nmsbroadlogeventhisto.tsLastModified=180d --yes")
	if code != 0 || f.db.Int("SELECT count(*) FROM NmsBroadLogEventHisto") != 1 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// The demo of a shop prints what became of each table; its output is always the same.
func TestDemoOfAShop(t *testing.T) {
	t.Parallel()
	pgtest.Empty(t)
	code, out, errs := cleanupd(t, "demo", "--profile", "none")
	_, figures, _ := strings.Cut(out, "\nTABLE      POLICY ")
	if code != 0 || !strings.HasSuffix(figures, `
audit_log  newest-audit       30,000   22,500        0   7,500
customers                      5,000        0        0   5,000
events     old-events         40,000   10,800        0  29,200
orders     anonymize-orders   40,000        0   19,050  40,000
sessions   orphan-sessions    20,000    3,750        0  16,250
total                        135,000   37,050   19,050  97,950
`) || strings.Count(out, "\nTotal: 37,050 rows ") != 2 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := cleanupd(t, "demo", "--profile", "none", "--forms"); code != 2 ||
		!strings.Contains(errs, "either") {
		t.Errorf("%d %s", code, errs)
	}
}

// With --keep the policies are set, and nothing is deleted before a run is started.
func TestDemoOfAShopKeepsServing(t *testing.T) {
	t.Parallel()
	pgtest.Empty(t)
	root, out := newRoot(), &logged{more: make(chan struct{})}
	input, keys := io.Pipe()
	root.SetArgs(strings.Fields("demo --profile none --keep --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0"))
	root.SetOut(out)
	root.SetIn(input)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(t.Context()) }()
	server := out.wait(t.Context(), `policies --server (\S+)\n[^§]*Enter or Ctrl-C`)[1]
	code, list, errs := cleanupd(t, "policies", "--server", server)
	if code != 0 || len(regexp.MustCompile(`(?m)^\S+ +yes +no +`).FindAllString(list, -1)) != 4 {
		t.Errorf("%d %s %s", code, list, errs)
	}
	code, runs, errs := cleanupd(t, "runs", "--server", server)
	if code != 0 || strings.Count(runs, "\n") != 1 {
		t.Errorf("%d %s %s", code, runs, errs)
	}
	_, _ = keys.Write([]byte("\n"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
