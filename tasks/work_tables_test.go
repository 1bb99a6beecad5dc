package tasks_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

const relationsLeft = "SELECT relname::text FROM pg_class WHERE relname ~ '^(wk|grp)' AND relkind IN ('r', 'p', 'v') " +
	"AND NOT relispartition ORDER BY 1"

// Row security may hide lists. A work table that may have the data of a hidden list is not dropped.
func TestWorkTablesOfListsInPlainSight(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (2, 20); INSERT INTO NmsGroup (iGroupId, iType)
			VALUES (1, 1), (22, 1);
		INSERT INTO NmsDelivery (iDeliveryId) VALUES (0); CREATE TABLE wkf2_1 (i int);
			CREATE TABLE wkf2_grp22 (i int); CREATE TABLE wkf2_grp23 (i int);
		ALTER TABLE NmsGroup ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
			CREATE POLICY visible ON NmsGroup USING (iGroupId = 1)`,
	)
	j := mustRun(t, db, nil, "workflow-instances")
	checkRows(t, db, relationsLeft, "wkf2_grp22", "wkf2_grp23")
	j.checkLog(t, "WARNING", "row security", "nmsgroup")
}

// If no list is known, work tables that may have the data of a list are not dropped. The run reports that.
func TestWorkTablesWithoutAnyList(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (2, 20); INSERT INTO NmsDelivery (iDeliveryId) " +
			"VALUES (0); CREATE TABLE wkf2_1 (i int); CREATE TABLE wkf2_grp22 (i int)",
	)
	for _, c := range []struct{ change, said string }{
		{"DELETE FROM NmsGroup", "nmsgroup is empty"},
		{"CREATE TABLE wkf2_1 (i int); DROP TABLE NmsGroup CASCADE", "table NmsGroup is missing"},
	} {
		db.Do(c.change)
		j := mustRun(t, db, nil, "workflow-instances")
		checkRows(t, db, relationsLeft, "wkf2_grp22")
		j.checkLog(t, "INFO", c.said, "_grp")
	}
}

// A run also drops views on work tables of another kind.
func TestViewsOfOtherKinds(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (1, 0); INSERT INTO NmsDelivery (iDeliveryId)
			VALUES (0); INSERT INTO NmsGroup (iGroupId) VALUES (0);
		CREATE TABLE wkDlv_9 (i int); CREATE VIEW wkf9_v AS SELECT * FROM wkDlv_9; CREATE TABLE wkf8_1 (i int);
			CREATE VIEW wkfhisto8_v AS SELECT * FROM wkf8_1; CREATE TABLE wkf1_1 (i int)`,
	)
	j := mustRun(t, db, nil, "workflow-instances")
	checkRows(t, db, relationsLeft, "wkf1_1")
	j.checkDeleted(t, "workflow-instances", 4)
}

// Tables that depend on each other are dropped in one run. A table on which another object depends is not dropped, and
// is reported once.
func TestWorkTablesOfEachOther(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (1, 0); INSERT INTO NmsDelivery (iDeliveryId)
			VALUES (0); INSERT INTO NmsGroup (iGroupId) VALUES (0);
		CREATE TABLE wkf9_a (i int PRIMARY KEY); CREATE TABLE wkf9_b (i int PRIMARY KEY REFERENCES wkf9_a);
			CREATE TABLE wkDlv_9 (i int REFERENCES wkf9_b);
		CREATE TABLE wkf8_a (i int); CREATE TABLE wkf8_b () INHERITS (wkf8_a); CREATE TABLE wkf7_a (i int);
			CREATE VIEW kept AS SELECT * FROM wkf7_a`,
	)
	j := mustRun(t, db, nil, "workflow-instances")
	checkRows(t, db, relationsLeft, "wkf7_a")
	j.checkDeleted(t, "workflow-instances", 5)
	reports := slices.DeleteFunc(slices.Clone(j.logs), func(l string) bool {
		return !strings.Contains(l, "could not be dropped")
	})
	if len(reports) != 1 {
		t.Errorf("the log has %q, want one line", reports)
	}
}

type emptier struct {
	*journal
	table string
}

func (e *emptier) Write(ctx context.Context, b *pgx.Batch, d purge.Delta) (func(error) error, error) {
	settled, err := e.journal.Write(ctx, b, d)
	return func(err error) error {
		_, emptied := e.db.Exec(ctx, "TRUNCATE "+e.table)
		return cmp.Or(settled(err), emptied)
	}, err
}

// A run stops dropping work tables once the table of their owners is empty, as during a restore.
func TestWorkTablesWhoseOwnersVanish(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO NmsGroup (iGroupId, iType) VALUES (0, 0), (1000, 1); INSERT INTO NmsDelivery (iDeliveryId) " +
			"VALUES (0)",
	)
	db.Do("DO $$ BEGIN FOR i IN 1..100 LOOP EXECUTE 'CREATE TABLE grp' || i || ' (i int)'; END LOOP; END $$")
	j := &emptier{newJournal(db), "NmsGroup"}
	task := tasks.Pipeline[slices.IndexFunc(tasks.Pipeline,
		func(t rules.Task) bool { return t.Name == "orphan-work-tables" })]
	if err := cleanup.Execute(
		t.Context(), cleanup.Config{Pool: db.Pool, Now: now, Todo: []rules.Task{task}}, j,
	); err != nil {
		t.Fatal(err)
	}
	if len(j.batches) != 1 {
		t.Fatalf("%d batches, want 1", len(j.batches))
	}
	if left, want := len(db.Strings(relationsLeft)), 100-int(j.batches[0].Dropped); left != want {
		t.Errorf("%d tables remain, want %d", left, want)
	}
}

// A drop that fails because the server has no memory for its locks is skipped, like other failed drops.
func TestDropWithoutRoomForItsLocks(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO NmsGroup (iGroupId, iType) VALUES (0, 0), (5, 1), (6, 1); INSERT INTO NmsDelivery (iDeliveryId)
			VALUES (0); UPDATE NmsGroup SET iDeleteStatus = 1 WHERE iGroupId = 5;
		CREATE TABLE grp5 (i int); CREATE TABLE grp7 (i int); CREATE TABLE grp8 (i int)`,
	)
	_, pool := db.Inject(func(sql string) string {
		if strings.Contains(sql, "DROP TABLE") && (strings.Contains(sql, "grp5") || strings.Contains(sql, "grp7")) {
			return pgerrcode.OutOfMemory
		}
		return ""
	})
	j := mustRun(t, db, func(c *cleanup.Config) { c.Pool = pool }, "lists-to-delete", "orphan-work-tables")
	checkRows(t, db, relationsLeft, "grp5", "grp7")
	checkCount(t, db, 1, "SELECT count(*) FROM NmsGroup WHERE iGroupId = 5")
	j.checkLog(t, "WARNING", "list 5 is retained", "SQLSTATE 53200")
	j.checkLog(t, "WARNING", "grp7", "SQLSTATE 53200")
}

// A list that a trigger retains is not counted, and keeps its table. A list is also retained by a materialized view
// with the name of its table, but not by a sequence.
func TestListsAndWhatHasTheNameOfTheirTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) VALUES (5, 1, 1), (6, 1, 1), (7, 1, 1);
			CREATE TABLE grp5 (i int); CREATE SEQUENCE grp6; CREATE MATERIALIZED VIEW grp7 AS SELECT 1;
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER keep BEFORE DELETE ON NmsGroup FOR EACH ROW WHEN (OLD.iGroupId = 5) EXECUTE FUNCTION keep()`,
	)
	j := mustRun(t, db, nil, "lists-to-delete")
	checkRows(t, db, "SELECT iGroupId::text FROM NmsGroup ORDER BY 1", "5", "7")
	checkRows(t, db, relationsLeft, "grp5")
	j.checkDeleted(t, "lists-to-delete", 1)
	j.checkLog(t, "WARNING", "list 5 is retained", "trigger")
	j.checkLog(t, "WARNING", "list 7 is retained", "grp7")
}

// Work tables that are not dropped because of their owner, kind or schema are counted and logged, with a remedy.
func TestWorkTablesOfOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  string
		left int64
		says []string
	}{
		"another owner": {
			"CREATE TABLE wkf9_1 (i int); CREATE TABLE wkf9_2 (i int); CREATE TABLE wkf1_1 (i int)",
			2,
			[]string{
				"WARNING",
				"not dropped: 2 unused relations named like a work table, such as \"public\".\"wkf9_1\": they belong to " +
					"postgres, and NmsDelivery to neolane",
				`ALTER TABLE … OWNER TO "neolane"`,
			},
		},
		"the superuser's, all of them": {
			"CREATE TABLE wkf9_1 (i int); ALTER TABLE NmsDelivery OWNER TO postgres; GRANT ALL ON NmsDelivery TO " +
				"neolane",
			1,
			[]string{
				"WARNING", "1 unused relation named like a work table",
				"it belongs to the superuser postgres, as NmsDelivery does", "a role of its own",
			},
		},
		"a materialized view": {
			"CREATE MATERIALIZED VIEW wkf9_v AS SELECT 1 AS i",
			0,
			[]string{"INFO", "wkf9_v", "a materialized view"},
		},
		"a foreign table": {
			`CREATE EXTENSION postgres_fdw; CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw; CREATE FOREIGN TABLE ` +
				`wkf9_1 (i int) SERVER other`,
			0,
			[]string{"INFO", "wkf9_1", "a foreign table"},
		},
		"a partition of another table": {
			"CREATE TABLE cus (i int) PARTITION BY LIST (i); CREATE TABLE wkf9_1 PARTITION OF cus DEFAULT",
			0,
			[]string{"INFO", "wkf9_1", "a partition of another table"},
		},
		"another schema": {
			"CREATE SCHEMA old; CREATE TABLE old.wkf9_1 (i int)",
			0,
			[]string{"INFO", "\"old\".\"wkf9_1\": it is in the schema old, and NmsDelivery is in public"},
		},
		"in use":             {"CREATE TABLE wkf1_1 (i int)", 0, nil},
		"no name of a table": {"CREATE TABLE wkf9a (i int); CREATE TABLE wkf0_1 (i int)", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "another owner", "the superuser's, all of them", "a foreign table",
				"in use")
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(
				"INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (1, 0); INSERT INTO NmsDelivery (iDeliveryId) " +
					"VALUES (0); INSERT INTO NmsGroup (iGroupId) VALUES (0)",
			)
			db.Superuser(c.sql)
			for _, change := range []func(*cleanup.Config){dry, nil} {
				j := mustRun(t, db, change, "workflow-instances")
				if got := j.retained["workflow-instances"].Tables; got != c.left {
					t.Errorf("%d tables were retained, want %d", got, c.left)
				}
				j.checkDeleted(t, "workflow-instances", 0)
				if c.says != nil {
					j.checkLog(t, c.says...)
				} else {
					j.checkNoLog(t, "named like a work table")
				}
			}
		})
	}
}
