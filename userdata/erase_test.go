package userdata_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/processmanager"
)

// A task that does not exist is reported. A task that belongs to a process instance is retained, and the erasure fails.
func TestIdsThatAreNone(t *testing.T) { mostlyOnPostgres(t, testIdsThatAreNone) }

func testIdsThatAreNone(t *testing.T, on engine) {
	f := bareFormsOn(t, on, "one", "one.session_wfattach5")
	f.db.Do(
		"INSERT INTO tb_process_instance VALUES (3, 'i3', 1); INSERT INTO tb_task VALUES (5, 1, 'P0', 3), (6, 1, " +
			"'P0', NULL); INSERT INTO tb_form_data VALUES (1, 5)",
	)
	f.work()
	events, receipt := f.erase(userdata.Request{Instances: []int64{77}, Tasks: []int64{5, 6, 88, 88}})
	for _, part := range []string{
		"process instance 77 does not exist", "task 5 retained: it belongs to process instance 3",
		"task 6 retained", "task 88 does not exist",
	} {
		if !f.logged(events, part) {
			t.Errorf("not logged: %s", part)
		}
	}
	if receipt.Succeeded || len(receipt.Problems) != 2 || len(receipt.Rows) != 0 ||
		f.db.Int("SELECT count(*) FROM tb_task") != 2 ||
		len(f.files()) != 2 {
		t.Errorf("%+v", receipt)
	}
	// A running process instance is terminated first.
	events, receipt = f.erase(userdata.Request{Instances: []int64{3}})
	if i := slices.IndexFunc(events, func(e userdata.Event) bool {
		return e.Instance != nil && e.Instance.Terminated && e.Instance.Invocation == "i3"
	}); i < 0 || !receipt.Succeeded {
		t.Errorf("%+v", receipt)
	}
	if left := f.files(); len(left) != 0 || f.db.Int("SELECT count(*) FROM tb_task WHERE id = 5") != 0 {
		t.Errorf("left %v", left)
	}
}

// An orphan task that cannot be erased fails alone: the others of its transaction are erased one by one. A table that a
// trigger misses does not count as a missing table of Forms.
func TestTaskThatCanNotGo(t *testing.T) { onBoth(t, testTaskThatCanNotGo) }

func testTaskThatCanNotGo(t *testing.T, on engine) {
	for problem, refuse := range map[string]map[engine]string{
		"not this one": {
			onPostgres: "RAISE ''not this one''",
			onMySQL:    "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'",
		},
		"nowhere": {onPostgres: "INSERT INTO nowhere VALUES (1)", onMySQL: "INSERT INTO nowhere VALUES (1)"},
	} {
		t.Run(problem, func(t *testing.T) {
			t.Parallel()
			f := bareFormsOn(t, on)
			f.db.Do("INSERT INTO tb_task SELECT i, 1, 'P0', 0 FROM " + f.numbers(9))
			f.db.Do(map[engine]string{
				onPostgres: `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
				IF OLD.id = 5 THEN ` + refuse[on] + `; END IF; RETURN OLD; END';
				CREATE TRIGGER refuse BEFORE DELETE ON tb_task FOR EACH ROW EXECUTE FUNCTION refuse()`,
				onMySQL: "CREATE TRIGGER refuse BEFORE DELETE ON tb_task FOR EACH ROW IF OLD.id = 5 THEN " + refuse[on] +
					"; END IF",
			}[on])
			f.work()
			_, receipt := f.erase(userdata.Request{Tasks: []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}})
			if left := f.db.Strings("SELECT id||'' FROM tb_task"); !slices.Equal(left, []string{"5"}) ||
				receipt.Rows["tb_task"] != 8 {
				t.Errorf("left %v; %+v", left, receipt)
			}
			if receipt.Succeeded || len(receipt.Problems) != 1 ||
				!strings.Contains(receipt.Problems[0], "orphan task 5 could not be erased") ||
				!strings.Contains(receipt.Problems[0], problem) {
				t.Errorf("%+v", receipt)
			}
		})
	}
}

// Rows that an orphan task has left are erased, unless the task belonged to a process instance, or this is unknown.
func TestOrphanThatIsGone(t *testing.T) { mostlyOnPostgres(t, testOrphanThatIsGone) }

func testOrphanThatIsGone(t *testing.T, on engine) {
	f := bareFormsOn(t, on, "one", "one.session_wftask5")
	f.db.Do(
		`INSERT INTO tb_assignment
			VALUES (1, 1, 1, 0), (2, 1, 1, 0), (3, 2, 1, 7), (4, 3, 1, NULL), (5, 3, 1, 0), (6, 5, 1, 0);
			INSERT INTO tb_form_data VALUES (5, 1), (6, 4); INSERT INTO tb_task_acl VALUES (1), (2), (3)`,
	)
	f.work()
	request := userdata.Request{Tasks: []int64{1, 2, 3, 4, 6}}
	preview := f.preview(request)
	events, receipt := f.erase(request)
	if receipt.Succeeded || preview.Succeeded || !maps.Equal(preview.Rows, receipt.Rows) ||
		!slices.Equal(preview.Files, receipt.Files) ||
		len(receipt.Files) != 2 ||
		!slices.Equal(preview.Problems, receipt.Problems) ||
		len(receipt.Problems) != 2 ||
		!maps.Equal(receipt.Rows, forms.Rows{"tb_assignment": 2, "tb_form_data": 2, "tb_task_acl": 1}) {
		t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
	}
	for _, message := range []string{
		"task 1 no longer exists", "task 2 retained: it belongs to process instance 7",
		"task 3 retained: could not determine its process instance", "task 4 no longer exists", "task 6 does not exist",
	} {
		if !f.logged(events, message) {
			t.Errorf("not logged: %s", message)
		}
	}
	if left := f.db.Strings("SELECT id||'' FROM tb_assignment ORDER BY id"); !slices.Equal(
		left, []string{"3", "4", "5", "6"},
	) ||
		f.db.Int("SELECT count(*) FROM tb_task_acl") != 2 {
		t.Errorf("left %v", left)
	}
}

// Rows that a process instance has left are erased in the database. The Forms server cannot do that, which is reported.
func TestInstanceThatIsGone(t *testing.T) { mostlyOnPostgres(t, testInstanceThatIsGone) }

func testInstanceThatIsGone(t *testing.T, on engine) {
	f := bareFormsOn(t, on, "one", "one.session_wftask1")
	f.db.Do(
		`INSERT INTO tb_task VALUES (1, 1, 'P0', 7); INSERT INTO tb_form_data VALUES (1, 1); INSERT INTO tb_assignment
			VALUES (1, 1, 1, 7), (2, 99, 1, 7);
		INSERT INTO tb_101 (process_instance_id, applicant) VALUES (7, 'ann')`,
	)
	config := f.config
	config.Server = processmanager.New(processmanager.Config{URL: "http://127.0.0.1:1"})
	request := userdata.Request{Instances: []int64{7}}
	server := &fixture{Manager: userdata.New(config), t: t, db: f.db, record: f.record, config: config}
	stop := server.work()
	preview := server.preview(request)
	_, receipt := server.erase(request)
	stop()
	if receipt.Succeeded || preview.Succeeded || len(receipt.Problems) != 1 ||
		!strings.Contains(receipt.Problems[0],
			"process instance 7 no longer exists, but rows of it are retained in tb_101, tb_assignment, tb_form_data, "+
				"tb_task") ||
		len(receipt.Rows) != 0 ||
		!slices.Equal(preview.Problems, receipt.Problems) ||
		len(preview.Rows)+len(preview.Files) != 0 ||
		f.db.Int("SELECT count(*) FROM tb_task") != 1 {
		t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
	}
	f.work()
	preview = f.preview(request)
	events, receipt := f.erase(request)
	if !receipt.Succeeded || !f.logged(events, "process instance 7 no longer exists") ||
		!maps.Equal(preview.Rows, receipt.Rows) ||
		!slices.Equal(preview.Files, receipt.Files) ||
		len(receipt.Files) != 2 {
		t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
	}
	if left := f.db.Int(
		"SELECT (SELECT count(*) FROM tb_task) + (SELECT count(*) FROM tb_assignment) + (SELECT count(*) FROM " +
			"tb_form_data) + (SELECT count(*) FROM tb_101)",
	); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// Many process instances are erased with few statements, each of which reads a table without an index once. An instance
// that cannot be deleted is retained alone.
func TestManyInstances(t *testing.T) {
	t.Parallel()
	n := suite.Size[int64](suite.Long, 1_000, 5_000)
	f := bareForms(t)
	f.db.Do(
		fmt.Sprintf(
			`INSERT INTO tb_process_instance SELECT i, 'i' || i, i %% 5 FROM generate_series(1, %[1]d) i;
				INSERT INTO tb_101 (process_instance_id) SELECT i %% %[1]d + 1 FROM generate_series(1, 10 * %[1]d) i;
		INSERT INTO tb_task SELECT i, 1, 'P0', i %% %[1]d + 1 FROM generate_series(1, 2 * %[1]d) i; ANALYZE;
		CREATE FUNCTION refuse() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF OLD.id = 321 THEN RAISE ''not this one''; END IF; RETURN OLD; END';
		CREATE TRIGGER refuse BEFORE DELETE ON tb_process_instance FOR EACH ROW EXECUTE FUNCTION refuse()`,
			n,
		),
	)
	config, err := pgxpool.ParseConfig(f.record.URL())
	if err != nil {
		t.Fatal(err)
	}
	statements := &counter{}
	config.ConnConfig.Tracer = statements
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f.Manager = onPools(t, f.config, f.record.Pool, pool)
	f.work()
	var ids []int64
	for id := range n {
		ids = append(ids, id+1)
	}
	events, receipt := f.erase(userdata.Request{Instances: ids})
	if sent := statements.n.Load(); sent > suite.Size[int64](suite.Long, 900, 3_000) {
		t.Errorf("%d statements", sent)
	} else {
		t.Logf("%d statements", sent)
	}
	if reported := slices.DeleteFunc(
		slices.Clone(events), func(e userdata.Event) bool { return e.Instance == nil },
	); int64(len(reported)) != n-1 || receipt.Succeeded || len(receipt.Problems) != 1 ||
		!strings.Contains(receipt.Problems[0], "process instance 321 could not be erased") {
		t.Errorf("%d process instances were reported; %+v", len(reported), receipt.Problems)
	}
	if left := f.db.Strings("SELECT DISTINCT process_instance_id::text FROM tb_101"); !slices.Equal(
		left, []string{"321"},
	) || receipt.Rows["tb_101"] != 10*n-10 ||
		receipt.Rows["tb_task"] != 2*n-2 {
		t.Errorf("left %v; %+v", left, receipt.Rows)
	}
}

// Many tasks are erased with few statements, and the storage, with ten times as many files, is searched once.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	tasks := suite.Size[int64](suite.Long, 1_000, 10_000)
	documents := int(tasks) * 5 / 2
	var files []string
	for i := range documents { // the documents of the even tasks have a marker of another session, too
		files = append(files, fmt.Sprintf("%d/d%d", i%100, i), fmt.Sprintf("%d/d%d.session_wftask%d", i%100, i, i),
			fmt.Sprintf("%d/d%d.session_wfattach%d", i%100, i, i))
		if i%2 == 0 {
			files = append(files, fmt.Sprintf("%d/d%d.session_other", i%100, i), fmt.Sprintf("%d/x%d", i%100, i))
		}
	}
	f := bareForms(t, files...)
	f.db.Do(
		fmt.Sprintf(
			`INSERT INTO tb_task SELECT i, 1, 'P0', CASE WHEN i %% 2 = 0 THEN 1 ELSE 0 END
				FROM generate_series(1, %[1]d) i; INSERT INTO tb_process_instance VALUES (1, 'i1', 2);
		INSERT INTO tb_form_data SELECT i, i FROM generate_series(1, %[1]d) i; INSERT INTO tb_assignment
			SELECT i, i, 1, 0 FROM generate_series(1, %[1]d) i; ANALYZE`,
			tasks,
		),
	)
	config, err := pgxpool.ParseConfig(f.record.URL())
	if err != nil {
		t.Fatal(err)
	}
	statements := &counter{}
	config.ConnConfig.Tracer = statements
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f.Manager = onPools(t, f.config, f.record.Pool, pool)
	f.work()
	var orphans []int64
	for i := int64(1); i < tasks; i += 2 {
		orphans = append(orphans, i)
	}
	events, receipt := f.erase(userdata.Request{Instances: []int64{1}, Tasks: orphans})
	if logs := slices.DeleteFunc(events, func(e userdata.Event) bool { return e.Log == nil }); len(logs) != 1 ||
		!f.logged(logs, fmt.Sprintf("searched the %d files", 4*documents), fmt.Sprintf("%d documents", tasks)) {
		t.Errorf("logged %+v", logs)
	}
	if left := len(f.files()); len(receipt.Files) != documents || left != 3*documents {
		t.Errorf("%d files were deleted, %d are left", len(receipt.Files), left)
	}
	if !receipt.Succeeded || receipt.Rows["tb_task"] != tasks || f.db.Int("SELECT count(*) FROM tb_form_data") != 0 {
		t.Errorf("%+v", receipt.Rows)
	}
	if n := statements.n.Load(); n > tasks/5 {
		t.Errorf("%d statements", n)
	} else {
		t.Logf("%d statements", n)
	}
}

type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Ids of process instances are neither truncated nor too large to compare, for all types of columns in the tables of
// workflows.
func TestIDsOfOtherTypes(t *testing.T) { onBoth(t, testIDsOfOtherTypes) }

func testIDsOfOtherTypes(t *testing.T, on engine) {
	f := bareFormsOn(t, on)
	for i, kind := range []string{"smallint", "integer", "numeric(5)", "varchar(3)", "char(3)", "text"} {
		f.db.Do(
			fmt.Sprintf(
				"CREATE TABLE tb_90%[1]d (process_instance_id %[2]s); INSERT INTO tb_90%[1]d VALUES ('123'), ('7'); "+
					"INSERT INTO omd_object_type VALUES ('pt_Types/t%[1]d', 'tb_90%[1]d')",
				i,
				kind,
			),
		)
	}
	f.db.Do(
		"INSERT INTO tb_process_instance VALUES (7, '7', 2), (123, '123', 2), (1234, '1234', 2), (3000000000, " +
			"'3000000000', 2)",
	)
	f.work()
	for id, want := range map[int64]int{7: 7, 1234: 1, 3_000_000_000: 1} {
		if _, receipt := f.erase(userdata.Request{Instances: []int64{id}}); !receipt.Succeeded ||
			len(receipt.Rows) != want {
			t.Errorf("%d: %+v", id, receipt)
		}
	}
}

// The id of a process instance is recognized in a column of any type. A value that is not a number is not an id.
func TestInstancesByOtherNumbers(t *testing.T) { onBoth(t, testInstancesByOtherNumbers) }

func testInstancesByOtherNumbers(t *testing.T, on engine) {
	f := newFormsOn(t, on, 0, 0, false)
	tables := 0
	for kind, ids := range map[string]string{
		"text":          "('12'), ('zz'), (''), (NULL), ('-12'), ('99999999999999999999')",
		"numeric(10,2)": "(12), (-12), (NULL)",
		"numeric":       "(12.0), (9223372036854775807), (9223372036854775808), (99999999999999999999)",
	} {
		column := kind
		if on == onMySQL && kind == "numeric" {
			column = "decimal(40, 2)"
		}
		tables++
		f.db.Do(
			fmt.Sprintf(
				`CREATE TABLE tb_90%[1]d (process_instance_id %[2]s, who varchar(10) DEFAULT 'ann',
					what integer DEFAULT 7); INSERT INTO tb_90%[1]d (process_instance_id) VALUES %[3]s;
			UPDATE omd_object_type SET database_table = 'tb_90%[1]d' WHERE name = 'pt_Loans/folder/sub/review'`,
				tables,
				column,
				ids,
			),
		)
		for _, user := range []string{"ann", "7"} {
			found := f.find(userdata.Query{
				UserID:    user,
				Variables: []userdata.Variable{{Application: "Loans", Workflow: "folder/sub/review"}},
			})
			if !slices.ContainsFunc(found.Instances, func(i userdata.Instance) bool { return i.ID == 12 }) {
				t.Errorf("%s: %s: %+v", kind, user, found.Instances)
			}
			if kind == "numeric" &&
				!slices.ContainsFunc(found.Instances, func(i userdata.Instance) bool { return i.ID == math.MaxInt64 }) {
				t.Errorf("%s: the largest id there is: %+v", user, found.Instances)
			}
		}
	}
}

// An orphan task that is locked does not delay the others.
func TestTaskThatIsLocked(t *testing.T) { onBoth(t, testTaskThatIsLocked) }

func testTaskThatIsLocked(t *testing.T, on engine) {
	f := bareFormsOn(t, on)
	f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0), (2, 1, 'P0', 0)")
	release := f.hold("SELECT id FROM tb_task WHERE id = 2 FOR UPDATE")
	id, err := f.Start(t.Context(), userdata.Request{Tasks: []int64{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	f.work()
	for end := time.Now().Add(time.Minute); f.db.Int("SELECT count(*) FROM tb_task") > 1 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if left := f.db.Strings("SELECT id||'' FROM tb_task"); !slices.Equal(left, []string{"2"}) {
		t.Errorf("left %v", left)
	}
	release()
	if _, receipt := f.watch(id); !receipt.Succeeded || receipt.Rows["tb_task"] != 2 {
		t.Errorf("%+v", receipt)
	}
}

// Rows that a trigger keeps are not reported as erased.
func TestWhatATriggerKeeps(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do(
		`INSERT INTO tb_task VALUES (1, 1, 'P0', 0), (2, 1, 'P0', 0); INSERT INTO tb_process_instance
			VALUES (1, 'one', 2), (2, 'two', 2);
		CREATE FUNCTION keep() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF OLD.id = 1 THEN RETURN NULL; END IF; RETURN OLD; END';
		CREATE TRIGGER keep BEFORE DELETE ON tb_task FOR EACH ROW EXECUTE FUNCTION keep();
			CREATE TRIGGER keep BEFORE DELETE ON tb_process_instance FOR EACH ROW EXECUTE FUNCTION keep()`,
	)
	f.work()
	_, receipt := f.erase(userdata.Request{Instances: []int64{1, 2}, Tasks: []int64{1, 2}})
	if left := f.db.Strings(
		"SELECT 't' || id FROM tb_task UNION ALL SELECT 'i' || id FROM tb_process_instance",
	); !slices.Equal(left, []string{"t1", "i1"}) {
		t.Errorf("left %v", left)
	}
	if receipt.Succeeded || len(receipt.Problems) != 2 || receipt.Rows["tb_task"] != 1 ||
		receipt.Rows["tb_process_instance"] != 1 {
		t.Errorf("%+v", receipt)
	}
}

// An erasure whose problem cannot be recorded does not delay later ones.
func TestErasureThatIsStuck(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do(`INSERT INTO tb_task VALUES (1, 1, 'P0', 0), (2, 1, 'P0', 0);
		CREATE FUNCTION refuse() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF OLD.item_id = 1 THEN RAISE ''stuck''; END IF; RETURN NEW; END';
		CREATE TRIGGER refuse BEFORE UPDATE ON cleanupd.erasure_item FOR EACH ROW EXECUTE FUNCTION refuse()`)
	stuck, err := f.Start(t.Context(), userdata.Request{Tasks: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	f.work()
	if _, receipt := f.erase(userdata.Request{Tasks: []int64{2}}); !receipt.Succeeded || receipt.Rows["tb_task"] != 1 {
		t.Errorf("%+v", receipt)
	}
	f.record.Do("DROP TRIGGER refuse ON cleanupd.erasure_item")
	_, receipt := f.watch(stuck)
	if !receipt.Succeeded { // the trigger was dropped during an attempt, whose failure is then recorded
		_, receipt = f.erase(userdata.Request{Tasks: []int64{1}})
	}
	if !receipt.Succeeded {
		t.Errorf("%+v", receipt)
	}
}

func TestErrors(t *testing.T) { onBoth(t, testErrors) }

func testErrors(t *testing.T, on engine) {
	f := newFormsOn(t, on, 3, 5, false)
	for _, c := range []struct {
		name  string
		query userdata.Query
		want  error
	}{
		{"several principals", userdata.Query{UserID: "bob"}, userdata.ErrManyPrincipals},
		{"another's principal", userdata.Query{UserID: "bob", PrincipalIDs: []string{"P0"}}, userdata.ErrNotPrincipal},
		{
			"no such workflow",
			userdata.Query{UserID: "ann", Variables: []userdata.Variable{{Application: "Loans", Workflow: "review"}}},
			userdata.ErrNoVariable,
		},
		{
			"no such variable",
			userdata.Query{UserID: "ann", Variables: []userdata.Variable{{Application: "Loans", Workflow: "apply", Name: "x"}}},
			userdata.ErrNoVariable,
		},
	} {
		if _, err := f.Start(t.Context(), userdata.Request{Query: &c.query}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, workflow := range []string{"hostile", "none", "gone"} { // known, but their tables do not belong to workflows
		found := f.find(
			userdata.Query{UserID: "ann", Variables: []userdata.Variable{{Application: "Loans", Workflow: workflow}}})
		if len(found.NotSearched) != 1 {
			t.Errorf("%s: %v", workflow, found.NotSearched)
		}
	}
	if found := f.find(
		userdata.Query{UserID: "ann", Variables: []userdata.Variable{{Application: "Loans", Workflow: "apply"}}},
	); len(found.NotSearched) != 1 ||
		!strings.Contains(found.NotSearched[0], "photo") {
		t.Errorf("not searched: %v", found.NotSearched)
	}
	other := onPools(t, userdata.Config{}, f.record.Pool, pgtest.Empty(t).Pool)
	if _, err := other.Find(t.Context(), userdata.Query{UserID: "ann"}); !errors.Is(err, forms.ErrNotForms) {
		t.Errorf("%v", err)
	}
	if f.record.Int("SELECT count(*) FROM cleanupd.erasure") != 0 {
		t.Error("an erasure was stored that was refused")
	}
}

// A dry run counts rows once that belong to two items: a document of two process instances, and an assignment of one
// process instance to the task of another.
func TestPreviewCountsOnce(t *testing.T) { mostlyOnPostgres(t, testPreviewCountsOnce) }

func testPreviewCountsOnce(t *testing.T, on engine) {
	f := newFormsOn(t, on, 0, 0, false)
	f.clear("tb_task", "tb_assignment", "tb_form_data", "tb_process_instance", "tb_dm_chunk", "tb_dm_session_reference")
	f.db.Do(`INSERT INTO tb_process_instance VALUES (1, 'one', 2), (2, 'two', 2);
		INSERT INTO tb_task VALUES (11, 1, 'P0', 1), (12, 1, 'P0', 2), (13, 1, 'P0', 0); INSERT INTO tb_form_data
			VALUES (1, 11), (2, 12), (3, 13);
		INSERT INTO tb_assignment VALUES (1, 12, 1, 1), (2, 11, 1, 2), (3, 13, 1, 2);
		INSERT INTO tb_dm_session_reference
			VALUES ('a', '_wftask1'), ('a', '_wftask2'), ('b', '_wftask2'), ('b', '_wftask3'), ('c', '_wftask3'),
			('c', 'other');
		INSERT INTO tb_dm_chunk VALUES ('a', 0, ''), ('b', 0, ''), ('c', 0, '')`)
	f.work()
	request := userdata.Request{Instances: []int64{1, 2}, Tasks: []int64{13}}
	preview := f.preview(request)
	if _, receipt := f.erase(request); !maps.Equal(preview.Rows, receipt.Rows) || receipt.Rows["tb_dm_chunk"] != 2 ||
		receipt.Rows["tb_assignment"] != 3 {
		t.Errorf("preview: %v; erasure: %v", preview.Rows, receipt.Rows)
	}
}

// A task that is erased with its process instance no longer exists when it is also requested by its id.
func TestPreviewOfATaskTwice(t *testing.T) { mostlyOnPostgres(t, testPreviewOfATaskTwice) }

func testPreviewOfATaskTwice(t *testing.T, on engine) {
	f := bareFormsOn(t, on)
	f.db.Do("INSERT INTO tb_process_instance VALUES (1, 'one', 2); INSERT INTO tb_task VALUES (7, 1, 'P0', 1)")
	f.work()
	request := userdata.Request{Instances: []int64{1}, Tasks: []int64{7}}
	preview := f.preview(request)
	if _, receipt := f.erase(request); len(preview.Problems) != 0 || len(receipt.Problems) != 0 ||
		!maps.Equal(preview.Rows, receipt.Rows) {
		t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
	}
}

// The reader of a dry run's events may take longer than the database lets a transaction be idle.
func TestPreviewWaitsForWhoIsTold(t *testing.T) {
	t.Parallel()
	f := newForms(t, 1, 3, true)
	f.record.Superuser("ALTER DATABASE " + f.record.Name + " SET idle_in_transaction_session_timeout = '100ms'")
	f.record.Reset()
	reported := 0
	if err := f.Preview(t.Context(), userdata.Request{Instances: []int64{1, 2, 3}}, func(userdata.Event) error {
		reported++
		if reported == 1 || suite.Long.Requested() {
			time.Sleep(300 * time.Millisecond)
		}
		if n := f.record.Int(
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in " +
				"transaction%'",
		); n > 0 {
			t.Errorf("%d transactions are idle at event %d", n, reported)
		}
		return nil
	}); err != nil || reported < 4 {
		t.Errorf("%v after %d events", err, reported)
	}
}
