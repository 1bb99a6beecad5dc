package userdata_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/processmanager"
)

// In PostgreSQL, without rows. With files, it has a folder with these files.
func bareForms(t *testing.T, files ...string) *fixture {
	t.Helper()
	return bareFormsOn(t, onPostgres, files...)
}

func bareFormsOn(t *testing.T, on engine, files ...string) *fixture {
	t.Helper()
	f := newFormsOn(t, on, 0, 0, true)
	f.clear("tb_task", "tb_assignment", "tb_form_data", "tb_process_instance", "tb_task_acl", "tb_task_attachment")
	for _, name := range f.files() {
		if err := os.Remove(filepath.Join(f.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		if err := os.MkdirAll(filepath.Join(f.folder, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(f.folder, name)
		if err := errors.Join(
			os.WriteFile(path, nil, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-48*time.Hour)),
		); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// One warning or error of the erasure has all parts.
func (f *fixture) logged(events []userdata.Event, parts ...string) bool {
	return slices.ContainsFunc(events, func(e userdata.Event) bool {
		return e.Log != nil &&
			!slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e.Log.Message, p) })
	})
}

// Task 12's markers are distinguished from task 123's, a document that another session refers to is retained, and links
// are not followed. A document or marker that is not a regular file fails the erasure until it is removed.
func TestFolder(t *testing.T) { onBoth(t, testFolder) }

func testFolder(t *testing.T, on engine) {
	f := bareFormsOn(t, on, "one", "one.session_wfattach12", "two", "two.session_wfattach123", "three",
		"three.session_wftask7", "three.session_other", "sub/dir/four", "sub/dir/four.session_wftaskformid7",
		"four", "five.session_wfattach12", "six.session_wfattach12.bak", ".session_wfattach12",
		"nine.session_other", "nine.session_other.session_wfattach12",
		"...session_wfattach12", "sub/...session_wfattach12", "ten/inside", "ten.session_wfattach12")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("stays"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(outside+".session_wfattach12", nil, 0o600), os.Symlink(outside, filepath.Join(f.folder, "seven")),
		os.WriteFile(filepath.Join(f.folder, "seven.session_wfattach12"), nil, 0o600),
		os.Symlink(filepath.Dir(outside), filepath.Join(f.folder, "link")),
		os.Symlink(outside, filepath.Join(f.folder, "eight.session_wfattach12")),
		os.WriteFile(filepath.Join(f.folder, "eight"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	f.db.Do(
		"INSERT INTO tb_task VALUES (12, 1, 'P0', 0), (123, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (7, 12), " +
			"(8, 123)",
	)
	f.work()
	request := userdata.Request{Tasks: []int64{12}}
	events, receipt := f.erase(request)
	if !f.logged(events, "9 documents belong to erased tasks") {
		t.Errorf("%+v", *events[1].Log)
	}
	others := []string{
		".session_wfattach12", "four", "link", "nine.session_other", "nine.session_other.session_wfattach12",
		"six.session_wfattach12.bak", "three", "three.session_other", "two", "two.session_wfattach123",
	}
	strange := []string{
		"eight", "eight.session_wfattach12", "seven", "seven.session_wfattach12", "ten.session_wfattach12",
		"ten/inside",
	}
	if got := f.files(); !slices.Equal(got, slices.Sorted(slices.Values(slices.Concat(others, strange)))) ||
		receipt.Succeeded ||
		len(receipt.Problems) != 3 {
		t.Errorf("%+v; left %v", receipt, got)
	}
	for i, name := range []string{"eight", "seven", "ten"} {
		if !strings.Contains(receipt.Problems[i], "document "+name+" is retained") {
			t.Errorf("%s is not reported: %s", name, receipt.Problems[i])
		}
	}
	if preview := f.preview(request); preview.Succeeded || !slices.Equal(preview.Problems, receipt.Problems) ||
		len(preview.Files) != 0 {
		t.Errorf("a second attempt is previewed: %+v", preview)
	}
	if err := errors.Join(
		os.Remove(filepath.Join(f.folder, "seven")), os.Remove(filepath.Join(f.folder, "eight.session_wfattach12")),
		os.Remove(filepath.Join(f.folder, "eight")), os.RemoveAll(filepath.Join(f.folder, "ten")),
	); err != nil {
		t.Fatal(err)
	}
	if _, receipt := f.erase(request); !receipt.Succeeded || !slices.Equal(f.files(), others) {
		t.Errorf("a second attempt: %+v; left %v", receipt, f.files())
	}
	if content, err := os.ReadFile(outside); err != nil || string(content) != "stays" {
		t.Error("a link was followed")
	}
	if f.db.Int("SELECT count(*) FROM tb_task") != 1 {
		t.Error("the other task went")
	}
}

// While a folder cannot be read, no document is deleted, since a marker in it may refer to the document; the file
// system's own folders do not belong to the storage. The folder's name is not UTF-8, so that it cannot be opened:
// missing rights would not stop root.
func TestFolderThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	const unreadable = "b\xff/two"
	for name, ok := range map[string]bool{unreadable: false, "lost+found/" + unreadable: true} {
		f := bareForms(t, "a/one", "a/one.session_wfattach1", name)
		f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (1, 1)")
		f.work()
		request := userdata.Request{Tasks: []int64{1}}
		if ok {
			if preview := f.preview(request); len(preview.Files) != 2 {
				t.Errorf("%q: a dry run: %+v", name, preview)
			}
		} else if preview := f.preview(request); preview.Succeeded || len(preview.Problems) != 1 ||
			!strings.Contains(preview.Problems[0], "cannot access the document storage's folder") {
			t.Errorf("%q: a dry run: %+v", name, preview)
		}
		_, receipt := f.erase(request)
		if receipt.Succeeded != ok || (len(receipt.Files) == 2) != ok || (len(receipt.Problems) == 0) != ok {
			t.Errorf("%q: %+v", name, receipt)
		}
	}
}

// Folders that are nested too deep end the search, since a marker in them may refer to a document: nothing is deleted
// until they are removed.
func TestDeepFolders(t *testing.T) {
	t.Parallel()
	f := bareForms(t, "one", "one.session_wfattach1", strings.Repeat("a/", 64)+"two", strings.Repeat("b/", 65)+"three")
	f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (1, 1)")
	f.work()
	request := userdata.Request{Tasks: []int64{1}}
	if preview := f.preview(request); preview.Succeeded || len(preview.Problems) != 1 ||
		!strings.Contains(preview.Problems[0], "nested more than 64 deep") {
		t.Errorf("%+v", preview)
	}
	if _, receipt := f.erase(request); receipt.Succeeded || len(
		receipt.Problems,
	) != 1 || !strings.Contains(receipt.Problems[0], "nested more than 64 "+
		"deep") ||
		len(f.files()) != 4 {
		t.Errorf("%+v; left %v", receipt, f.files())
	}
	if err := os.RemoveAll(filepath.Join(f.folder, "b")); err != nil {
		t.Fatal(err)
	}
	if _, receipt := f.erase(request); !receipt.Succeeded || len(receipt.Files) != 2 || len(f.files()) != 1 {
		t.Errorf("%+v; left %v", receipt, f.files())
	}
}

// A file that cannot be deleted fails the erasure. The next attempt finds nothing in the database, but deletes the
// file, whether it is requested by ids or by the user.
func TestFilesThatStayAreDeletedNextTime(t *testing.T) {
	onBoth(t, testFilesThatStayAreDeletedNextTime)
}

func testFilesThatStayAreDeletedNextTime(t *testing.T, on engine) {
	for _, byUser := range []bool{false, true} {
		t.Run(fmt.Sprint(byUser), func(t *testing.T) {
			t.Parallel()
			f := bareFormsOn(t, on, "one", "one.session_wfattach12", "two", "two.session_wftask7")
			f.db.Do("INSERT INTO tb_task VALUES (12, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (7, 12)")
			f.work()
			away := f.folder + ".away"
			if err := os.Rename(f.folder, away); err != nil {
				t.Fatal(err)
			}
			request := userdata.Request{Tasks: []int64{12}}
			if byUser {
				request = userdata.Request{Query: &userdata.Query{UserID: "ann"}}
			}
			events, receipt := f.erase(request)
			if receipt.Succeeded || len(receipt.Problems) == 0 ||
				!f.logged(events, "cannot access the document storage's folder") ||
				f.db.Int("SELECT count(*) FROM tb_task") != 0 {
				t.Errorf("%+v", receipt)
			}
			if err := os.Rename(away, f.folder); err != nil {
				t.Fatal(err)
			}
			if _, other := f.erase(userdata.Request{Tasks: []int64{99}}); !other.Succeeded || len(f.files()) != 4 {
				t.Errorf("another erasure deleted them: %v", f.files())
			}
			preview := f.preview(request)
			_, receipt = f.erase(request)
			if !slices.Equal(preview.Files, receipt.Files) {
				t.Errorf("preview: %v; erasure: %v", preview.Files, receipt.Files)
			}
			if got := f.files(); !receipt.Succeeded || len(receipt.Files) != 4 || len(got) != 0 {
				t.Errorf("%+v; left %v", receipt, got)
			}
			if f.record.Int("SELECT count(*) FROM cleanupd.erasure_session") != 0 {
				t.Error("session ids are kept for nothing")
			}
		})
	}
}

// A folder with documents that two orphan tasks refer to, and the ids of stored erasures of these tasks.
func sharedDocuments(t *testing.T, on engine, documents int) (f *fixture, ids []string) {
	t.Helper()
	var files []string
	for i := range documents {
		files = append(files, fmt.Sprintf("d%d", i), fmt.Sprintf("d%d.session_wfattach1", i),
			fmt.Sprintf("d%d.session_wfattach2", i))
	}
	f = bareFormsOn(t, on, files...)
	f.db.Do(
		"INSERT INTO tb_task VALUES (1, 1, 'P0', 0), (2, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (1, 1), (2, 2)")
	for _, task := range []int64{1, 2} {
		id, err := f.Start(t.Context(), userdata.Request{Tasks: []int64{task}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return f, ids
}

// allErased waits until the erasures have ended.
func (f *fixture) allErased(ids []string) {
	f.t.Helper()
	for _, id := range ids {
		if _, receipt := f.watch(id); !receipt.Succeeded {
			f.t.Errorf("%v", receipt.Problems)
		}
	}
	if left := f.files(); len(left) > 0 {
		f.t.Errorf("%d files are left: %.5v", len(left), left)
	}
}

// Of two concurrent erasures by two replicas, one deletes the documents that both refer to.
func TestErasuresShareDocuments(t *testing.T) { onBoth(t, testErasuresShareDocuments) }

func testErasuresShareDocuments(t *testing.T, on engine) {
	f, ids := sharedDocuments(t, on, suite.Size(suite.Long, 300, 1000))
	f.work()
	f.work()
	f.allErased(ids)
}

// A document that gets another marker after the folder was searched is retained.
func TestMarkerThatComes(t *testing.T) {
	t.Parallel()
	f := bareForms(t, "one", "one.session_wfattach1", "two", "two.session_wfattach1")
	f.db.Do(`INSERT INTO tb_task VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (1, 1);
		CREATE FUNCTION wait() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
		CREATE TRIGGER wait BEFORE INSERT ON cleanupd.erasure_file FOR EACH ROW EXECUTE FUNCTION wait()`)
	conn, err := f.record.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	id, err := f.Start(t.Context(), userdata.Request{Tasks: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	f.work()
	f.record.Until(
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM " +
			"pg_database WHERE datname = current_database())",
	)
	if err := os.WriteFile(filepath.Join(f.folder, "one.session_other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock(1)"); err != nil {
		t.Fatal(err)
	}
	_, receipt := f.watch(id)
	if left := f.files(); !receipt.Succeeded || len(receipt.Files) != 3 ||
		!slices.Equal(left, []string{"one", "one.session_other"}) {
		t.Errorf("%+v; left %v", receipt, left)
	}
}

// A dry run counts rows once that belong to two items: a document of two process instances, and an assignment of one
// process instance to the task of another.
func TestPreviewCountsOnce(t *testing.T) { onBoth(t, testPreviewCountsOnce) }

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
func TestPreviewOfATaskTwice(t *testing.T) { onBoth(t, testPreviewOfATaskTwice) }

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

// A task that does not exist is reported. A task that belongs to a process instance is retained, and the erasure fails.
func TestIdsThatAreNone(t *testing.T) { onBoth(t, testIdsThatAreNone) }

func testIdsThatAreNone(t *testing.T, on engine) {
	f := bareFormsOn(t, on, "one", "one.session_wfattach5")
	f.db.Do(
		"INSERT INTO tb_process_instance VALUES (3, 'i3', 1); INSERT INTO tb_task VALUES (5, 1, 'P0', 3), (6, 1, " +
			"'P0', NULL); INSERT INTO tb_form_data VALUES (1, 5)",
	)
	f.work()
	events, receipt := f.erase(userdata.Request{Instances: []int64{77}, Tasks: []int64{5, 6, 88, 88}})
	for _, part := range []string{
		"process instance 77 does not exist", "task 5 is retained: it belongs to process instance 3",
		"task 6 is retained", "task 88 does not exist",
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

// While the document storage is unknown, an erasure that leaves documents fails and reports their sessions, as its
// preview does. Once the storage is known, the next erasure deletes them.
func TestDocumentsOfAnUnknownStorage(t *testing.T) { onBoth(t, testDocumentsOfAnUnknownStorage) }

func testDocumentsOfAnUnknownStorage(t *testing.T, on engine) {
	for name, known := range map[string]func(*userdata.Config, string){
		"in a folder":     func(c *userdata.Config, folder string) { c.Folder = folder },
		"in the database": func(c *userdata.Config, _ string) { c.InDatabase = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := bareFormsOn(t, on, "one", "one.session_wfattach1", "one.session_wftask12")
			f.db.Do(
				`INSERT INTO tb_task VALUES (1, 1, 'P0', 7), (2, 1, 'P0', 0), (3, 1, 'P0', 0);
					INSERT INTO tb_process_instance VALUES (7, 'seven', 2), (8, 'eight', 2); INSERT INTO tb_form_data
					VALUES (12, 1), (13, 2);
				DELETE FROM tb_dm_chunk; DELETE FROM tb_dm_session_reference; INSERT INTO tb_dm_chunk
					VALUES ('a', 0, ''), ('b', 0, ''); INSERT INTO tb_dm_session_reference
					VALUES ('a', '_wftask12'), ('a', '_wfattach1'), ('b', 'other')`,
			)
			unknown := f.config
			unknown.Folder, unknown.InDatabase = "", false
			blind := &fixture{Manager: userdata.New(unknown), t: t, db: f.db, record: f.record, config: unknown}
			stop := blind.work()
			if _, receipt := blind.erase(userdata.Request{Instances: []int64{8}}); !receipt.Succeeded {
				t.Errorf("without tasks: %+v", receipt)
			}
			// an attachment needs no form data
			if _, receipt := blind.erase(userdata.Request{Tasks: []int64{3}}); receipt.Succeeded || len(
				receipt.Problems,
			) != 1 ||
				!strings.Contains(receipt.Problems[0], "_wfattach3;") {
				t.Errorf("a task without form data: %+v", receipt)
			}
			request := userdata.Request{Instances: []int64{7}, Tasks: []int64{2}}
			preview := blind.preview(request)
			_, receipt := blind.erase(request)
			if receipt.Succeeded || preview.Succeeded || len(receipt.Problems) != 1 ||
				!slices.Equal(preview.Problems, receipt.Problems) ||
				!strings.Contains(
					receipt.Problems[0],
					"_wfattach1, _wfattach2, _wftask12, _wftask13, _wftaskformid12, _wftaskformid13;",
				) {
				t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
			}
			stop()
			c := unknown
			known(&c, f.folder)
			seeing := &fixture{Manager: userdata.New(c), t: t, db: f.db, record: f.record, config: c, folder: f.folder}
			seeing.work()
			preview = seeing.preview(request)
			_, receipt = seeing.erase(request)
			if !receipt.Succeeded || !slices.Equal(preview.Files, receipt.Files) ||
				!maps.Equal(preview.Rows, receipt.Rows) ||
				f.record.Int("SELECT count(*) FROM cleanupd.erasure_session WHERE item_id <> 3") != 0 {
				t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
			}
			if (c.InDatabase &&
				(receipt.Rows["tb_dm_chunk"] != 1 || f.db.Int("SELECT count(*) FROM tb_dm_session_reference") != 1)) ||
				(!c.InDatabase && len(f.files()) != 0) {
				t.Errorf("%+v; left %v", receipt, f.files())
			}
		})
	}
}

// The attachments of tasks are erased whether or not the task has form data: for orphan tasks and process instances, in
// a folder and in the database.
func TestAttachmentsWithoutFormData(t *testing.T) { onBoth(t, testAttachmentsWithoutFormData) }

func testAttachmentsWithoutFormData(t *testing.T, on engine) {
	for name, known := range map[string]func(*userdata.Config){
		"in a folder":     func(*userdata.Config) {},
		"in the database": func(c *userdata.Config) { c.Folder, c.InDatabase = "", true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := bareFormsOn(t, on, "one", "one.session_wfattach1", "two", "two.session_wfattach2",
				"other", "other.session_wfattach22")
			f.db.Do(
				`INSERT INTO tb_task VALUES (1, 1, 'P0', 7), (2, 1, 'P0', 0); INSERT INTO tb_process_instance
					VALUES (7, 'seven', 2);
				DELETE FROM tb_dm_chunk; DELETE FROM tb_dm_session_reference; INSERT INTO tb_dm_chunk
					VALUES ('one', 0, ''), ('two', 0, ''), ('other', 0, '');
				INSERT INTO tb_dm_session_reference
					VALUES ('one', '_wfattach1'), ('two', '_wfattach2'), ('other', '_wfattach22')`,
			)
			known(&f.config)
			f.Manager = userdata.New(f.config)
			f.work()
			request := userdata.Request{Instances: []int64{7}, Tasks: []int64{2}}
			preview := f.preview(request)
			_, receipt := f.erase(request)
			if !receipt.Succeeded || !slices.Equal(preview.Files, receipt.Files) ||
				!maps.Equal(preview.Rows, receipt.Rows) {
				t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
			}
			want := []string{"other", "other.session_wfattach22"}
			if f.config.InDatabase {
				if left := f.db.Strings(
					"SELECT documentid FROM tb_dm_chunk UNION ALL SELECT documentid || '.session' || sessionid FROM " +
						"tb_dm_session_reference",
				); !slices.Equal(left, want) {
					t.Errorf("left %v", left)
				}
			} else if left := f.files(); !slices.Equal(left, want) {
				t.Errorf("left %v", left)
			}
		})
	}
}

// Rows that an orphan task has left are erased, unless the task belonged to a process instance, or this is unknown.
func TestOrphanThatIsGone(t *testing.T) { onBoth(t, testOrphanThatIsGone) }

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
		"task 1 no longer exists", "task 2 is retained: it belongs to process instance 7",
		"task 3 is retained: it is unknown", "task 4 no longer exists", "task 6 does not exist",
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

// A document that a trigger keeps fails its task or process instance, whose references to it are also retained.
func TestDocumentThatATriggerKeeps(t *testing.T) {
	t.Parallel()
	f := newForms(t, 0, 0, false)
	f.db.Do(
		`TRUNCATE tb_task, tb_form_data, tb_dm_chunk, tb_dm_session_reference; INSERT INTO tb_task
			VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (1, 1);
		INSERT INTO tb_dm_chunk VALUES ('a', 0, ''); INSERT INTO tb_dm_session_reference VALUES ('a', '_wftask1');
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER keep BEFORE DELETE ON tb_dm_chunk FOR EACH ROW EXECUTE FUNCTION keep()`,
	)
	f.work()
	_, receipt := f.erase(userdata.Request{Tasks: []int64{1}})
	if receipt.Succeeded || len(receipt.Problems) != 1 ||
		!strings.Contains(receipt.Problems[0], "tb_dm_chunk: a trigger") ||
		f.db.Int("SELECT count(*) FROM tb_dm_session_reference") != 1 ||
		f.db.Int("SELECT count(*) FROM tb_task") != 1 {
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

// Form data that is added while its task is erased is erased with its documents.
func TestFormDataThatComes(t *testing.T) { onBoth(t, testFormDataThatComes) }

func testFormDataThatComes(t *testing.T, on engine) {
	f := bareFormsOn(t, on, "new", "new.session_wftask8", "new.session_wfattach1")
	f.db.Do(
		`INSERT INTO tb_task VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (7, 1); INSERT INTO tb_task_acl
			VALUES (1)`,
	)
	f.db.Do(map[engine]string{
		onPostgres: `CREATE FUNCTION come() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO tb_form_data
			VALUES (8, 1); RETURN OLD; END';
		CREATE TRIGGER come BEFORE DELETE ON tb_task_acl FOR EACH ROW EXECUTE FUNCTION come()`,
		onMySQL: "CREATE TRIGGER come BEFORE DELETE ON tb_task_acl FOR EACH ROW INSERT INTO tb_form_data VALUES (8, 1)",
	}[on])
	f.work()
	if _, receipt := f.erase(
		userdata.Request{Tasks: []int64{1}},
	); !receipt.Succeeded || receipt.Rows["tb_form_data"] != 2 ||
		len(f.files()) != 0 {
		t.Errorf("%+v; left %v", receipt, f.files())
	}
}

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

// Rows that a process instance has left are erased in the database. The Forms server cannot do that, which is reported.
func TestInstanceThatIsGone(t *testing.T) { onBoth(t, testInstanceThatIsGone) }

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

// An erasure whose worker stops midway is continued by another one, and its receipt is exact.
func TestErasureGoesOn(t *testing.T) { onBoth(t, testErasureGoesOn) }

func testErasureGoesOn(t *testing.T, on engine) {
	f := newFormsOn(t, on, 1, suite.Size(suite.Long, 60, 200), true)
	m := newModel(f.data, true)
	var instances, orphans []int64
	for _, row := range m.Table("tb_process_instance").Rows {
		instances = append(instances, row[0].(int64))
	}
	for _, row := range m.Table("tb_task").Rows {
		if row[3] == int64(0) {
			orphans = append(orphans, row[0].(int64))
		}
	}
	id, err := f.Start(t.Context(), userdata.Request{Instances: instances, Tasks: orphans})
	if err != nil {
		t.Fatal(err)
	}
	for stops := 0; f.record.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'RUNNING'") > 0; stops++ {
		done := f.record.Int("SELECT last_sequence FROM cleanupd.erasure")
		stop := f.work()
		f.record.Until("SELECT (last_sequence > $1 OR state <> 'RUNNING')::int FROM cleanupd.erasure", done+20)
		if stops%2 == 0 {
			f.record.Superuser(
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid " +
					"<> pg_backend_pid()",
			)
			f.record.Reset()
		}
		stop()
	}
	_, receipt := f.watch(id)
	m.erase(instances, orphans)
	f.compare(m)
	if !receipt.Succeeded || !maps.Equal(receipt.Rows, m.rows) {
		t.Errorf("the receipt is %+v, want %v", receipt, m.rows)
	}
}

type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

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

// A number is found in a column of any type that can store it.
func TestNumbers(t *testing.T) { onBoth(t, testNumbers) }

func testNumbers(t *testing.T, on engine) {
	f := newFormsOn(t, on, 0, 0, false)
	for i, c := range []struct{ kind, stored, user string }{
		{"smallint", "32767", "32767"},
		{"integer", "2147483647", "2147483647"},
		{"bigint", "9223372036854775807", "9223372036854775807"},
		{"numeric", "12345678901234567890.5", "12345678901234567890.50"},
		{"numeric(12,2)", "4711", "4711"},
		{"numeric", "NaN", "1"},
		{"real", "16777215", "16777215"},
		{"real", "1234567", "1234567"},
		{"real", "0.1", "0.1"},
		{"real", "4711", "4711.0"},
		{"real", "-4711", "-4711"},
		{"real", "Infinity", "1"},
		{"real", "NaN", "1"},
		{"double precision", "9007199254740991", "9007199254740991"},
		{"double precision", "1e20", "100000000000000000000"},
		{"double precision", "0.1", "0.1"},
		{"double precision", "-Infinity", "1"},
		{"text", "9007199254740991", "9007199254740991"},
	} {
		column, kind := fmt.Sprintf("c%d", i), c.kind
		if on == onMySQL {
			switch {
			case c.stored == "NaN" || strings.HasSuffix(c.stored, "Infinity"):
				continue // the column cannot store it
			case kind == "numeric":
				kind = "decimal(40, 10)"
			case kind == "real":
				kind = "float"
			}
		}
		f.db.Do(
			fmt.Sprintf(
				"ALTER TABLE tb_102 ADD %[1]s %[2]s; INSERT INTO tb_102 (process_instance_id, %[1]s) VALUES (1, "+
					"'%[3]s'), (2, '1000')",
				column,
				kind,
				c.stored,
			),
		)
		found := f.find(userdata.Query{
			UserID:    c.user,
			Variables: []userdata.Variable{{Application: "Loans", Workflow: "folder/sub/review", Name: column}},
		})
		if len(found.Instances) == 1 != (c.user != "1") ||
			(len(found.Instances) > 0 &&
				(found.Instances[0].ID != 1 || found.Instances[0].Reasons[0].Match != userdata.Whole)) {
			t.Errorf("%s in %s %s: %+v", c.user, c.kind, c.stored, found.Instances)
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

// Replicas that take an erasure over from each other, because one has lost the connection with its lock, do everything
// once.
func TestReplicasAtOnce(t *testing.T) {
	t.Parallel()
	f := newForms(t, 5, 100, true)
	m := newModel(f.data, true)
	var instances []int64
	for _, row := range m.Table("tb_process_instance").Rows {
		instances = append(instances, row[0].(int64))
	}
	f.db.Do(
		`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.005); RETURN OLD; END';
			CREATE TRIGGER slow BEFORE DELETE ON tb_process_instance FOR EACH ROW EXECUTE FUNCTION slow()`,
	)
	id, err := f.Start(t.Context(), userdata.Request{Instances: instances})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // of the replicas' own: the test's connections survive
		(&fixture{
			Manager: onPools(t, f.config, f.record.For(campaigndb.Role).Pool, f.record.For(campaigndb.Role).Pool),
			t:       t,
		}).work()
	}
	// the replica with the lock loses its connection
	for f.record.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'RUNNING'") > 0 {
		done := f.record.Int("SELECT last_sequence FROM cleanupd.erasure")
		f.record.Superuser(
			"SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype " +
				"= 'advisory' AND a.datname = current_database()",
		)
		f.record.Until("SELECT (last_sequence > $1 OR state <> 'RUNNING')::int FROM cleanupd.erasure", done+20)
	}
	_, receipt := f.watch(id)
	m.erase(instances, nil)
	f.compare(m)
	if !receipt.Succeeded || !maps.Equal(receipt.Rows, m.rows) {
		t.Errorf("the receipt is %+v, want %v", receipt, m.rows)
	}
	if n := f.record.Int(
		"SELECT count(*) FROM cleanupd.erasure_event WHERE body ? 'Ended' OR body ? 'Instance'",
	); n != int64(len(instances))+1 {
		t.Errorf("%d events", n)
	}
}
