package tasks_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/tools/txtar"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// ruleTest tests the rules of a task on the rows of testdata/rules/TASK.txtar. Each condition has rows on both sides.
// The sections of the file are
//
//	days        the days from the cutoff to the reference time; 0 without this section
//	setup.sql   statements that are executed first
//	TABLE       the names of columns, and rows with a verdict; the reason follows after a #
//	relations   tables and views with a verdict; a relation that setup.sql does not create is an empty table
//	dry run     the number of rows and relations that a dry run counts, if it cannot know the number of the run
//
// The verdicts on rows are
//
//	goes        the run deletes the row
//	stays       the run does not change the row
//	becomes     the run updates the row; assignments COLUMN=VALUE follow
//	appears     the run inserts the row
//
// Values are numbers, words, 'texts', NULL, dates, and the times NOW, OLD (just older than the cutoff), EDGE (the
// cutoff) and YOUNG. The run must not drop or create any other relation. The rows of other tables are not compared.
type ruleTest struct {
	task      string
	days      int
	setup     string
	tables    []tableTest
	relations []relationTest
	dryRun    int64
}

type tableTest struct {
	name    string
	columns []string
	rows    []rowTest
}

type rowTest struct {
	values  []string // as SQL
	verdict string
	becomes []string // assignments, as SQL
	line    string
}

type relationTest struct {
	name string // quoted
	goes bool
	line string
}

const mappings = `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sName, sBroadLogSchema, sBroadLogExclSchema,
	sTrackingLogSchema) VALUES
	(0, NULL, NULL, NULL, NULL), (1, 'recipients', 'nms:broadLogRcp', 'nms:excludeLogRcp', 'nms:trackingLogRcp'),
	(-2, 'stores', 'cus:broadLogStore', NULL, 'cus:trackingLogStore'), (3, 'again', 'NMS:broadlogrcp', '',
		'nms:trackingLogRcp'); `

var field = regexp.MustCompile(`^\s*((?:\w+=)?(?:'[^']*'|[^\s']+))`)

func readRules(t *testing.T) (tests []ruleTest) {
	t.Helper()
	files, err := filepath.Glob("testdata/rules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := ruleTest{task: strings.TrimSuffix(filepath.Base(name), ".txtar"), dryRun: -1}
		for _, f := range txtar.Parse(data).Files {
			lines := strings.Split(strings.TrimSpace(string(f.Data)), "\n")
			switch f.Name {
			case "days":
				r.days, err = strconv.Atoi(lines[0])
			case "setup.sql":
				r.setup = string(f.Data)
			case "relations":
				for _, line := range lines {
					r.relations = append(r.relations, readRelation(t, line))
				}
			case "dry run":
				r.dryRun, err = strconv.ParseInt(strings.Fields(lines[0])[0], 10, 64)
			default:
				r.tables = append(r.tables, r.readTable(t, f.Name, lines))
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		tests = append(tests, r)
	}
	return tests
}

func readRelation(t *testing.T, line string) relationTest {
	t.Helper()
	text, _, _ := strings.Cut(line, "#")
	name, rest, _ := strings.Cut(text, " ")
	if quoted, err := strconv.QuotedPrefix(text); err == nil { // as in Go
		name, rest = quoted, text[len(quoted):]
		name, _ = strconv.Unquote(name)
	}
	verdict := strings.TrimSpace(rest)
	if verdict != "goes" && verdict != "stays" {
		t.Fatalf("%q has no verdict", line)
	}
	return relationTest{pgx.Identifier{"public", strings.ToLower(name)}.Sanitize(), verdict == "goes", line}
}

func (r ruleTest) readTable(t *testing.T, name string, lines []string) tableTest {
	t.Helper()
	table := tableTest{name: name, columns: strings.Fields(lines[0])}
	for _, line := range lines[1:] {
		text, _, _ := strings.Cut(line, " # ")
		var fields []string
		for m := field.FindStringSubmatch(text); m != nil; m = field.FindStringSubmatch(text) {
			fields, text = append(fields, m[1]), text[len(m[0]):]
		}
		n := len(table.columns)
		if len(fields) <= n || strings.TrimSpace(text) != "" {
			t.Fatalf("%s: %q must have %d values and a verdict", name, line, n)
		}
		row := rowTest{verdict: fields[n], line: line}
		for _, value := range fields[:n] {
			row.values = append(row.values, r.sql(value))
		}
		for _, assignment := range fields[n+1:] {
			column, value, _ := strings.Cut(assignment, "=")
			row.becomes = append(row.becomes, column+" = "+r.sql(value))
		}
		if !slices.Contains([]string{"stays", "goes", "becomes", "appears"}, row.verdict) ||
			(row.verdict == "becomes") != (row.becomes != nil) {
			t.Fatalf("%s: %q has no verdict", name, line)
		}
		table.rows = append(table.rows, row)
	}
	return table
}

var (
	number = regexp.MustCompile(`^-?\d+$`)
	date   = regexp.MustCompile(`^\d{4}-\d\d-\d\d(T\S*Z)?$`)
)

func (r ruleTest) sql(value string) string {
	cutoff := now.Add(-time.Duration(r.days) * 24 * time.Hour)
	moments := map[string]time.Time{
		"NOW":   now,
		"OLD":   cutoff.Add(-time.Microsecond),
		"EDGE":  cutoff,
		"YOUNG": cutoff.Add(time.Microsecond),
	}
	switch moment, ok := moments[value]; {
	case ok:
		return "timestamptz '" + moment.Format(time.RFC3339Nano) + "'"
	case date.MatchString(value):
		return "timestamptz '" + value + "'"
	case value == "NULL" || number.MatchString(value) || strings.HasPrefix(value, "'"):
		return value
	}
	return "'" + value + "'"
}

func (r ruleTest) insert(db *pgtest.DB) {
	db.Do("CREATE SCHEMA expected")
	for _, relation := range r.relations {
		_, name, _ := strings.Cut(strings.ReplaceAll(relation.name, `"`, ""), ".")
		if created := regexp.MustCompile(
			`(?i)CREATE (TABLE|VIEW|SEQUENCE) ` + regexp.QuoteMeta(name) + `\b`,
		); !created.MatchString(r.setup) {
			db.Do("CREATE TABLE " + relation.name + " (i int)")
		}
	}
	db.Do(mappings + r.setup)
	for _, table := range r.tables {
		if db.Int("SELECT count(*) FROM "+table.name) != 0 && table.name != "NmsDeliveryMapping" {
			// Line numbers would be wrong.
			panic(r.task + ": setup.sql has rows of " + table.name + ", which have a section")
		}
		columns := strings.Join(table.columns, ", ")
		var statements []string
		for _, row := range table.inserted() {
			statements = append(statements,
				fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table.name, columns, strings.Join(row.values, ", ")))
		}
		db.Do(strings.Join(statements, "; "))
	}
	for _, table := range r.tables { // once no trigger or view can change its rows
		statements := []string{fmt.Sprintf(
			"CREATE TABLE expected.%[1]s AS SELECT *, row_number() OVER (ORDER BY ctid) AS line, false AS goes FROM %[1]s",
			table.name,
		)}
		for i, row := range table.inserted() {
			switch row.verdict {
			case "goes":
				statements = append(statements,
					fmt.Sprintf("UPDATE expected.%s SET goes = true WHERE line = %d", table.name, i+1))
			case "becomes":
				statements = append(statements, fmt.Sprintf(
					"UPDATE expected.%s SET %s WHERE line = %d", table.name, strings.Join(row.becomes, ", "), i+1,
				))
			}
		}
		for _, row := range table.rows {
			if row.verdict == "appears" {
				statements = append(statements, fmt.Sprintf(
					"INSERT INTO expected.%s (%s, goes) VALUES (%s, false)", table.name,
					strings.Join(table.columns, ", "), strings.Join(row.values, ", "),
				))
			}
		}
		db.Do(strings.Join(statements, "; "))
	}
}

func (table tableTest) inserted() (rows []rowTest) {
	for _, row := range table.rows {
		if row.verdict != "appears" {
			rows = append(rows, row)
		}
	}
	return rows
}

// line returns the line of the row with a number. A row that is not expected has the number 0.
func (table tableTest) line(number string) string {
	if n, err := strconv.Atoi(number); err == nil && n > 0 {
		return table.inserted()[n-1].line
	}
	return "in no line"
}

func (r ruleTest) gone() (n int64) {
	for _, table := range r.tables {
		for _, row := range table.rows {
			if row.verdict == "goes" {
				n++
			}
		}
	}
	for _, relation := range r.relations {
		if relation.goes {
			n++
		}
	}
	return n
}

const allRelations = `SELECT format('"%s"."%s"', n.nspname, relname) FROM pg_class c
	JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname NOT IN ('expected', 'kept', 'pg_toast')
	AND relkind IN ('r', 'p', 'v', 'm', 'S') AND NOT relispartition ORDER BY 1`

func (r ruleTest) compare(t *testing.T, db *pgtest.DB, before []string) {
	t.Helper()
	for _, table := range r.tables {
		columns := strings.Join(table.columns, ", ")
		// Rows that appear have columns with unknown values.
		if !slices.ContainsFunc(table.rows, func(row rowTest) bool { return row.verdict == "appears" }) {
			columns = strings.Join(
				db.Strings(
					"SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > "+
						"0 AND NOT attisdropped",
					strings.ToLower(table.name),
				),
				", ",
			)
		}
		const differ = `SELECT format('%%s %%s', (SELECT min(line) FROM (SELECT line, row(%[1]s) AS whole
			FROM expected.%[4]s) AS e WHERE whole IS NOT DISTINCT FROM row(d.*)), row_to_json(d))
			FROM (SELECT %[1]s FROM %[2]s EXCEPT ALL SELECT %[1]s FROM %[3]s) AS d`
		stays := "(SELECT * FROM expected." + table.name + " WHERE NOT goes) AS stays"
		for _, row := range db.Strings(fmt.Sprintf(differ, columns, table.name, stays, table.name)) {
			line, row, _ := strings.Cut(row, " ")
			t.Errorf("%s has the unexpected row %s: %s", table.name, row, table.line(line))
		}
		for _, row := range db.Strings(fmt.Sprintf(differ, columns, stays, table.name, table.name)) {
			line, row, _ := strings.Cut(row, " ")
			t.Errorf("%s lacks the row %s: %s", table.name, row, table.line(line))
		}
	}
	after := db.Strings(allRelations)
	for _, relation := range r.relations {
		if there := db.Int("SELECT (to_regclass($1) IS NOT NULL)::int", relation.name) == 1; there == relation.goes {
			t.Errorf("the relation exists: %t; %s", there, relation.line)
		}
	}
	for _, name := range after {
		if !slices.Contains(before, name) {
			t.Errorf("%s appeared", name)
		}
	}
	dropped := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(after, name) })
	for _, name := range dropped {
		if !slices.ContainsFunc(r.relations, func(x relationTest) bool { return x.goes && x.name == name }) {
			t.Errorf("%s was dropped, without a verdict", name)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, r := range readRules(t) {
		for _, maxRows := range suite.Size(suite.Long, []int{1}, []int{0, 1}) {
			t.Run(fmt.Sprintf("%s/%d", r.task, maxRows), func(t *testing.T) {
				t.Parallel()
				db := pgtest.Campaign(t)
				r.insert(db)
				before := db.Strings(allRelations)
				snapshot := func() (all []string) {
					for _, table := range r.tables {
						all = append(all,
							db.Strings(
								fmt.Sprintf("SELECT row_to_json(d)::text FROM %s AS d ORDER BY 1", table.name))...)
					}
					return all
				}
				was := snapshot()
				want := r.gone()
				counts := want
				if r.dryRun >= 0 {
					counts = r.dryRun
				}
				if counted := mustRun(t, db, dry, r.task).deleted[r.task]; counted != counts {
					t.Errorf("a dry run counted %d rows and relations, want %d", counted, counts)
				}
				checkRows(t, db, allRelations, before...)
				if !slices.Equal(snapshot(), was) {
					t.Error("a dry run changed something")
				}
				j := mustRun(t, db, func(c *cleanup.Config) { c.Settings.MaxRows = maxRows }, r.task)
				r.compare(t, db, before)
				j.checkDeleted(t, r.task, want)
				j.checkState(t, r.task, cleanup.Succeeded)
				for _, b := range j.batches {
					if maxRows > 0 && b.Deleted > 2 && r.task != "email-error-stats" { // a row and its paired row
						t.Errorf("a batch of %d rows, want at most 2", b.Deleted)
					}
				}
				if again := mustRun(t, db, nil, r.task); again.deleted[r.task] != 0 {
					t.Errorf("a second run deleted %d rows, want none", again.deleted[r.task])
				}
				r.compare(t, db, before)
			})
		}
	}
}

// Every task has rules to test, except for the one that deletes nothing.
func TestEveryTaskHasRules(t *testing.T) {
	t.Parallel()
	tests := readRules(t)
	for _, task := range tasks.Pipeline {
		if has := slices.ContainsFunc(
			tests, func(r ruleTest) bool { return r.task == task.Name },
		); has == task.Vacuums {
			t.Errorf("testdata/rules has %s: %t, want %t", task.Name, has, !task.Vacuums)
		}
	}
	if len(tests) != len(tasks.Pipeline)-1 {
		t.Errorf("%d tasks have tests, want %d", len(tests), len(tasks.Pipeline)-1)
	}
}

func timestampsWithoutZone(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, campaigndb.Schema+`;
		DO $$ DECLARE change text; BEGIN
			FOR change IN
				SELECT format('ALTER TABLE %s %s', attrelid::regclass, string_agg(format('ALTER %I TYPE timestamp', attname), ', '))
				FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
				WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND atttypid = 'timestamptz'::regtype
				GROUP BY attrelid
			LOOP EXECUTE change; END LOOP;
		END $$`)
	return err
}

// Dates without a zone are read in the zone that the application's option names, or in the zone of the database without
// that option. In this zone a day begins five hours later than in UTC.
func TestRulesWithTimestampsWithoutZone(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	for _, r := range readRules(t) {
		for _, database := range []string{"Asia/Tokyo", "America/Bogota"} {
			t.Run(r.task+" in "+path.Base(database), func(t *testing.T) {
				t.Parallel()
				db := pgtest.Prepared(t, "without_zone", timestampsWithoutZone)
				inZone(db, "America/Bogota")
				r.insert(db)
				if inZone(db, database); database == "Asia/Tokyo" {
					db.Do(
						"INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue) VALUES (9999, " +
							"'WdbcTimeZone', 6, 'America/Bogota')",
					)
					if slices.ContainsFunc(r.tables, func(table tableTest) bool { return table.name == "XtkOption" }) {
						db.Do("INSERT INTO expected.XtkOption SELECT *, NULL, false FROM XtkOption WHERE iOptionId = 9999")
					}
				}
				before := db.Strings(allRelations)
				mustRun(t, db, nil, r.task)
				r.compare(t, db, before)
			})
		}
	}
}

// No task fails because a table that it reads is missing.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	for _, r := range readRules(t) {
		t.Run(r.task, func(t *testing.T) {
			suite.Except(t, suite.Long, "sessions", "deliveries")
			t.Parallel()
			db := pgtest.Campaign(t)
			r.insert(db)
			for _, table := range append(r.tables, tableTest{name: "NmsDeliveryMapping"}) {
				db.Do("DROP TABLE IF EXISTS " + table.name + " CASCADE")
				j := mustRun(t, db, nil, r.task)
				if state := j.states[r.task]; state != cleanup.Succeeded && state != cleanup.Skipped {
					t.Errorf("without %s the task is %s, want succeeded or skipped", table.name, state)
				}
			}
		})
	}
}
