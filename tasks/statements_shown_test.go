package tasks_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var updateStatements = flag.Bool("update", false, "write testdata/statements.sql")

// shownStatement describes a statement that deletes or updates rows, and how to make a run send it.
type shownStatement struct {
	comment string
	setup   string
	holds   rules.Holds
	task    string // of the pipeline; empty for policy
	policy  *policy.Policy
	away    string // a table that is moved to another server
	starts  string // how the statement starts
}

var shownStatements = []shownStatement{
	{
		comment: `Direct, for most batches: a window of the table, then the rule, then the holds. Task delivery-logs
			(tasks/logs.go) while recipient 7 is on hold. $1 and $2 bound the window: a batch sends the statement
			once for each of several windows, which are as wide as rows can be deleted in the time of a batch (purge:
			worker.queueDirect). $3 is the reference time minus the delay for delivery logs (rules.Age). The zero
			record is never deleted. Ids on hold are constants (sqlexpr.Among). IS TRUE keeps the planner from using an index
			instead of the window.`,
		setup: `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
			INSERT INTO NmsBroadLogRcp (iBroadLogId, iRecipientId, tsLastModified)
				SELECT i, i % 10, timestamptz '2000-01-01' FROM generate_series(1, 30000) i`,
		holds:  rules.Holds{Names: []string{"a lawsuit"}, Recipients: []int64{7}},
		task:   "delivery-logs",
		starts: `DELETE FROM ONLY "public"."nmsbroadlogrcp"`,
	},
	{
		comment: `Picked, where a batch must know its rows: with triggers of the application, for rows that take others
			with them or move to another partition, while locked or failing rows are left out, and where windows have
			had too many rows. Task tracking-logs deletes the web tracking log of the same id. The window may have more
			rows than the limit $4, so the last TID says where the next batch begins. Rows are deleted only if they
			still match.`,
		setup: `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sTrackingLogSchema) VALUES (1, 'nms:trackingLogRcp');
			INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog)
				SELECT i, timestamptz '2000-01-01' FROM generate_series(1, 10) i;
			INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (5)`,
		task:   "tracking-logs",
		starts: "WITH pick",
	},
	{
		comment: `By TID, if an index finds the few rows of a large table: $1 are the rows that were found, and are still
			to match. A policy of rows older than 30 days.`,
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
		comment: `By group, for a policy that keeps the newest rows of each group: $1 are rows that were found group by
			group. They are deleted if they are still older than the last row that their group keeps.`,
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
		comment: `An update sets values instead. The policy's rule is that the row is old and has another value.`,
		setup: `CREATE TABLE customer (id bigint PRIMARY KEY, seen timestamptz, mail text);
			INSERT INTO customer SELECT i, '2000-01-01', i || '@example.com' FROM generate_series(1, 30000) i`,
		policy: &policy.Policy{
			Name: "customers", Table: "customer", OlderThan: &policy.OlderThan{Column: "seen", Days: new(365)},
			Assign: []policy.Assign{{Column: "mail"}},
		},
		starts: "UPDATE ONLY",
	},
	{
		comment: `By key, for rows on another server, where TIDs mean nothing: $1 are the keys of rows that were found to
			match. The keys that come back are those of the deleted rows.`,
		setup: `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
			INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified)
				SELECT i, timestamptz '2000-01-01' FROM generate_series(1, 10) i`,
		away:   "nmsbroadlogrcp",
		task:   "delivery-logs",
		starts: `DELETE FROM ONLY "public"."nmsbroadlogrcp"`,
	},
	{
		comment: `With a family, where rows of a table take others of it with them by ON DELETE CASCADE: the statement
			follows the keys from the picked rows, and deletes a row only if the rule matches all rows that would go
			with it.`,
		setup: `CREATE TABLE comment (id bigint PRIMARY KEY, written timestamptz,
				answer_to bigint REFERENCES comment ON DELETE CASCADE);
			INSERT INTO comment SELECT i, '2000-01-01', NULLIF(i / 2, 0) FROM generate_series(1, 10) i;
			CREATE INDEX ON comment (answer_to)`,
		policy: &policy.Policy{
			Name: "comments", Table: "comment", OlderThan: &policy.OlderThan{Column: "written", Days: new(30)},
		},
		starts: "WITH RECURSIVE pick",
	},
	{
		comment: `With undo, the rows go to the trash by the statement that deletes them, so that each is in one place at
			any time. A type that PostgreSQL does not come with is kept as text.`,
		setup: `CREATE TYPE state AS ENUM ('new', 'done');
			CREATE TABLE job (id bigint PRIMARY KEY, done timestamptz, state state);
			INSERT INTO job SELECT i, '2000-01-01', 'done' FROM generate_series(1, 30000) i`,
		policy: &policy.Policy{
			Name: "jobs", Table: "job", OlderThan: &policy.OlderThan{Column: "done", Days: new(30)}, Undo: new(time.Hour),
		},
		starts: "WITH gone",
	},
	{
		comment: `With undo, and rows of other tables that go by ON DELETE CASCADE: these are read before they go. The
			last column has how many were, which the batch compares with how many went.`,
		setup: `CREATE TABLE purchase (id bigint PRIMARY KEY, paid timestamptz);
			CREATE TABLE line (purchase bigint REFERENCES purchase ON DELETE CASCADE, no int, what text);
			INSERT INTO purchase SELECT i, '2000-01-01' FROM generate_series(1, 10) i;
			INSERT INTO line SELECT id, 1, 'x' FROM purchase; CREATE INDEX ON line (purchase)`,
		policy: &policy.Policy{
			Name: "purchases", Table: "purchase", OlderThan: &policy.OlderThan{Column: "paid", Days: new(30)},
			Undo: new(time.Hour),
		},
		starts: "WITH pick",
	},
}

// The golden file shows statements as they are sent, for readers. Write it with -update.
func TestShownStatements(t *testing.T) {
	t.Parallel()
	shown := "-- The statements by which a run deletes or updates rows. TestShownStatements writes this file.\n"
	own := pgtest.Empty(t)
	for _, s := range shownStatements {
		db := own
		if s.policy == nil {
			db = pgtest.Campaign(t)
		} else if s.policy.Undo != nil {
			db = pgtest.Prepared(t, "empty_with_schema", store.Migrate)
		}
		comment := wrap(strings.Join(strings.Fields(s.comment), " "), "\n-- ")
		shown += fmt.Sprintf("\n-- %s\n%s;\n", comment, s.sent(t, db))
	}
	const golden = "testdata/statements.sql"
	if *updateStatements {
		if err := os.WriteFile(golden, []byte(shown), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if shown != string(want) {
		t.Errorf("%s has other statements; if these are right, run this test with -update:\n%s", golden, shown)
	}
}

// sent returns the last statement of a run that starts as shown.
func (s *shownStatement) sent(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	db.Do(s.setup)
	if s.away != "" {
		db.MoveAway(db.Far(), s.away)
	}
	var sent statements
	pool := sent.trace(t, db)
	j := newJournal(db)
	j.holds = func() rules.Holds { return s.holds }
	if err := runWith(t, j, func(c *cleanup.Config) {
		c.Pool, c.ID, c.TrashMaxBytes = pool, uuid.NewString(), 1<<30
		if s.policy != nil {
			p := *s.policy
			p.Enabled = true
			c.NoCampaign, c.Pipeline, c.Todo = true, []rules.Task{p.Task()}, []rules.Task{p.Task()}
		}
	}, s.task); err != nil {
		t.Fatal(err)
	}
	for _, sql := range slices.Backward(sent.sent) {
		if strings.HasPrefix(sql, s.starts) {
			lines := strings.Split(sql, "\n")
			for i, line := range lines {
				lines[i] = wrap(line, "\n    ")
			}
			return strings.Join(lines, "\n")
		}
	}
	t.Fatalf("no statement starts with %q; sent were:\n%s", s.starts, strings.Join(sent.sent, "\n"))
	return ""
}

// wrap breaks a line at spaces.
func wrap(line, newline string) (wrapped string) {
	const width = 110
	for len(line) > width {
		at := strings.LastIndex(line[:width], " ")
		wrapped, line = wrapped+line[:at]+newline, line[at+1:]
	}
	return wrapped + line
}
