package tasks_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

var changes = regexp.MustCompile(`(DELETE FROM|UPDATE) ONLY "public"`)

// statementsWith returns the statements with which a run deletes and updates rows of a new random database, and how
// many subplans per row the holds add to each.
func statementsWith(t *testing.T, h rules.Holds) map[string]int {
	t.Helper()
	db := pgtest.Campaign(t)
	randomDatabase(t, db, 5, now)
	for _, index := range db.Strings(`SELECT indexrelid::regclass::text FROM pg_index i
		JOIN pg_class c ON c.oid = indrelid WHERE relnamespace = 'public'::regnamespace AND NOT indisunique`) {
		db.Do("DROP INDEX IF EXISTS " + index)
	}
	db.Do("ANALYZE")
	var sent statements
	pool := sent.trace(t, db)
	j := newJournal(db)
	j.holds = func() rules.Holds { return h }
	if err := runWith(t, j, func(c *cleanup.Config) { c.Pool, c.ContinueOnError = pool, true }); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for sql, args := range sent.args {
		if !changes.MatchString(sql) {
			continue
		}
		found[sql] = subplans(t, db, sql, args) - subplans(
			t,
			db,
			onHold.ReplaceAllStringFunc(sql, func(condition string) string {
				return oneOf.ReplaceAllString(condition, "false")
			}),
			args,
		)
	}
	return found
}

// onHold matches the condition that a row is not on hold, and oneOf its parts.
var (
	onHold = regexp.MustCompile(
		` AND \((?:r\.\w+ = ANY \('\{[-0-9,]+\}'::integer\[\]\)(?: OR )?)+\) IS NOT TRUE`)
	oneOf = regexp.MustCompile(`r\.\w+ = ANY \('\{[-0-9,]+\}'::integer\[\]\)`)
)

func subplans(t *testing.T, db *pgtest.DB, sql string, args []any) int {
	t.Helper()
	rows, err := db.Query(t.Context(), "EXPLAIN "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	text := strings.Join(lines, "\n")
	// A plan names a hashed subplan twice: where it is defined, and where it is used.
	return strings.Count(text, "SubPlan") - 2*strings.Count(text, "hashed SubPlan")
}

// Holds add no subplan per row, even without an index.
func TestStatementsWithHolds(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	var all []int64
	for id := range int64(40) {
		all = append(all, id)
	}
	conditions := 0
	sent := statementsWith(t, rules.Holds{
		Names:      []string{"x"},
		Deliveries: all[1:4],
		Lists:      all[1:4],
		Workflows:  all[1:4],
		Recipients: all[:20],
	})
	if len(sent) < 20 {
		t.Fatalf("a run has %d statements, want at least 20", len(sent))
	}
	for sql, more := range sent {
		if onHold.MatchString(sql) {
			conditions++
		}
		if more > 0 {
			t.Errorf("holds add %d subplans per row: %s", more, sql)
		}
	}
	if conditions == 0 {
		t.Error("no statement has a condition on rows on hold")
	}
}

// The planner chooses how to find rows by how many it expects, so a hold of many must not make it expect next to none.
func TestWhatThePlannerExpectsOfHolds(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO NmsBroadLogRcp (iBroadLogId, iRecipientId, tsLastModified)
		SELECT i, i, '2000-01-01' FROM generate_series(1, 3000) i`)
	db.Do("ANALYZE NmsBroadLogRcp")
	var recipients []int64
	for id := range int64(1000) {
		recipients = append(recipients, id+1)
	}
	c, err := campaign.LoadCatalog(t.Context(), db, campaign.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	const column = "iRecipientId"
	onHold := sqlexpr.Among("r."+column, c.Table("NmsBroadLogRcp").IntegerType(column), recipients)
	var plan []struct {
		Plan struct {
			Rows int `json:"Plan Rows"`
		}
	}
	if err := sqlexpr.Format("EXPLAIN (FORMAT JSON) SELECT FROM NmsBroadLogRcp AS r WHERE (%s) IS NOT TRUE", onHold).
		QueryRow(t.Context(), db).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if rows := plan[0].Plan.Rows; rows < 1500 || rows > 2500 {
		t.Errorf("the planner expects %d rows, want about 2000", rows)
	}
}

// Explaining a row does not search whole tables for rows on hold.
func TestExplainRowWithHolds(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + `INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iDeliveryId, tsLog) SELECT i, i, '2000-01-01'
			FROM generate_series(1, 2) i; INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (1), (2)`,
	)
	var sent statements
	for _, table := range []string{"NmsTrackingLogRcp", "NmsWebTrackingLog"} {
		e, err := insight.NewExplainer(
			t.Context(),
			cleanup.Config{
				Pool:     sent.trace(t, db),
				Now:      now,
				Pipeline: tasks.Pipeline,
			},
			rules.Holds{Names: []string{"x"}, Deliveries: []int64{1}},
			table,
		)
		if err != nil {
			t.Fatal(err)
		}
		for id, verdict := range map[int]insight.Verdict{1: insight.Kept, 2: insight.Deleted} {
			x, err := e.Row(t.Context(), columnsOf(fmt.Sprint(id)), anyKey)
			if err != nil || x.Verdict != verdict {
				t.Errorf("%s %d: got %s (%s), want %s; the error is %v", table, id, x.Verdict, x.Why, verdict, err)
			}
		}
	}
	for sql := range sent.args {
		if strings.HasPrefix(sql, "SELECT DISTINCT ") && strings.Contains(sql, "LIMIT") {
			t.Errorf("an explanation searches a whole table: %s", sql)
		}
	}
}
