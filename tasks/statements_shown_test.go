package tasks_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var updateStatements = flag.Bool("update", false, "write testdata/statements.sql")

// shownStatements are the statements by which rows are deleted or updated, each of a task that sends it.
var shownStatements = []struct {
	comment string
	setup   string
	holds   rules.Holds
	task    string // of the pipeline
	policy  *policy.Policy
	away    string // a table that is moved to another server
	starts  string // how the statement starts; the last one is shown
}{
	{
		comment: "Direct, for most batches: a window of the table, then the rule, then the holds.\n" +
			"Task delivery-logs (tasks/logs.go) while recipient 7 is on hold. $1 and $2 bound the window: a batch sends the\n" +
			"statement once for each of several windows, which are as wide as rows can be deleted in the time of a batch\n" +
			"(purge: worker.queueDirect). $3 is the reference time minus the delay for delivery logs (rules.Age). The zero\n" +
			"record is never deleted. IS TRUE keeps the planner from using an index instead of the window.",
		setup: `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
			INSERT INTO NmsBroadLogRcp (iBroadLogId, iRecipientId, tsLastModified)
				SELECT i, i % 10, timestamptz '2000-01-01' FROM generate_series(1, 30000) i`,
		holds:  rules.Holds{Names: []string{"a lawsuit"}, Recipients: []int64{7}},
		task:   "delivery-logs",
		starts: `DELETE FROM ONLY "public"."nmsbroadlogrcp"`,
	},
	{
		comment: "Picked, where a batch must know its rows: the first one of a sweep, after a row failed or was locked, and for\n" +
			"rows that take others with them. Task tracking-logs deletes the web tracking log of the same id. The window\n" +
			"may have more rows than the limit $4, so the last TID says where the next batch begins. Rows are deleted only\n" +
			"if they still match.",
		setup: `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sTrackingLogSchema) VALUES (1, 'nms:trackingLogRcp');
			INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog)
				SELECT i, timestamptz '2000-01-01' FROM generate_series(1, 10) i;
			INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (5)`,
		task:   "tracking-logs",
		starts: "WITH pick",
	},
	{
		comment: "By TID, if an index finds the few rows of a large table: $1 are the rows that were found, and are still to\n" +
			"match. A policy of rows older than 30 days.",
		setup: `CREATE TABLE visit (id bigint PRIMARY KEY, seen timestamptz, page text);
			INSERT INTO visit SELECT i, CASE WHEN i % 100 = 0 THEN timestamptz '2000-01-01' ELSE '2026-02-28' END,
				repeat('x', 100) FROM generate_series(1, 60000) i;
			CREATE INDEX ON visit (seen); ANALYZE visit`,
		policy: &policy.Policy{
			Name: "visits", Table: "visit", OlderThan: &policy.OlderThan{Column: "seen", Days: new(30)},
		},
		starts: "DELETE FROM ONLY",
	},
	{
		comment: "By group, for a policy that keeps the newest rows of each group: $1 are rows that were found group by group.\n" +
			"They are deleted if they are still older than the last row that their group keeps.",
		setup: `CREATE TABLE price (product int, at timestamptz, price numeric);
			INSERT INTO price SELECT i % 50, timestamptz '2020-01-01' + i * interval '1 hour', i
				FROM generate_series(1, 30000) i;
			CREATE INDEX ON price (product, at); ANALYZE price`,
		policy: &policy.Policy{
			Name: "prices", Table: "price", KeepNewest: &policy.KeepNewest{Per: []string{"product"}, OrderBy: "at", Count: 500},
		},
		starts: "DELETE FROM ONLY",
	},
	{
		comment: "An update sets values instead. The policy's rule is that the row is old and has another value.",
		setup: `CREATE TABLE customer (id bigint PRIMARY KEY, seen timestamptz, mail text);
			INSERT INTO customer SELECT i, '2000-01-01', i || '@example.com' FROM generate_series(1, 30000) i`,
		policy: &policy.Policy{
			Name: "customers", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
			Assign: []policy.Assign{{Column: "mail"}},
		},
		starts: "UPDATE ONLY",
	},
	{
		comment: "By key, for rows on another server, where TIDs mean nothing: $1 are the keys of rows that were found to match.\n" +
			"The keys that come back are those of the deleted rows.",
		setup: `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
			INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified)
				SELECT i, timestamptz '2000-01-01' FROM generate_series(1, 10) i`,
		away:   "nmsbroadlogrcp",
		task:   "delivery-logs",
		starts: `DELETE FROM ONLY "public"."nmsbroadlogrcp"`,
	},
	{
		comment: "With a family, where rows of a table take others of it with them by ON DELETE CASCADE: the statement follows\n" +
			"the keys from the picked rows, and deletes a row only if the rule matches all rows that would go with it.",
		setup: `CREATE TABLE comment (id bigint PRIMARY KEY, written timestamptz,
				answer_to bigint REFERENCES comment ON DELETE CASCADE);
			INSERT INTO comment SELECT i, '2000-01-01', NULLIF(i / 2, 0) FROM generate_series(1, 10) i;
			CREATE INDEX ON comment (answer_to)`,
		policy: &policy.Policy{
			Name: "comments", Table: "comment", OlderThan: &policy.OlderThan{Column: "written", Days: new(30)},
		},
		starts: "WITH RECURSIVE pick",
	},
}

// The golden file shows statements as they are sent, for readers. Write it with -update.
func TestShownStatements(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	shown.WriteString("-- Statements by which rows are deleted or updated, as a run sends them. Written by TestShownStatements.\n")
	for _, s := range shownStatements {
		fmt.Fprintf(&shown, "\n-- %s\n%s;\n", strings.ReplaceAll(s.comment, "\n", "\n-- "), sentFor(t, s.setup, s.away, s.starts,
			func(c *cleanup.Config) {
				if s.policy != nil {
					p := *s.policy
					p.Enabled = true
					task := p.Task()
					c.NoCampaign, c.Pipeline, c.Todo = true, []rules.Task{task}, []rules.Task{task}
				}
			}, s.holds, s.task))
	}
	const golden = "testdata/statements.sql"
	if *updateStatements {
		if err := os.WriteFile(golden, []byte(shown.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if shown.String() != string(want) {
		t.Errorf("the statements are not those of %s; if they should be, run this test with -update. They are:\n%s", golden,
			shown.String())
	}
}

// sentFor returns the last statement of a run that starts in a given way.
func sentFor(
	t *testing.T, setup, away, starts string, change func(*cleanup.Config), holds rules.Holds, tasks ...string,
) string {
	t.Helper()
	db := pgtest.Campaign(t)
	db.Do(setup)
	if away != "" {
		db.MoveAway(db.Far(), away)
	}
	var sent statements
	pool := sent.trace(t, db)
	j := newJournal(db)
	j.holds = func() rules.Holds { return holds }
	if err := runWith(t, j, func(c *cleanup.Config) { c.Pool = pool; change(c) }, tasks...); err != nil {
		t.Fatal(err)
	}
	var last string
	for _, sql := range sent.sent {
		if strings.HasPrefix(sql, starts) {
			last = sql
		}
	}
	if last == "" {
		t.Errorf("no statement starts with %q; sent were:\n%s", starts, strings.Join(sent.sent, "\n"))
	}
	return wrapped(last)
}

// wrapped breaks long lines at spaces.
func wrapped(sql string) string {
	var lines []string
	for _, line := range strings.Split(sql, "\n") {
		for len(line) > 110 {
			at := strings.LastIndex(line[:110], " ")
			if at <= 4 {
				break
			}
			lines, line = append(lines, line[:at]), "    "+line[at+1:]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
