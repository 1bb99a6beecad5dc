package userdata_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
)

// Task 12's markers are distinguished from task 123's, a document that another session refers to is retained, and links
// are not followed. A document or marker that is not a regular file fails the erasure until it is removed.
func TestFolder(t *testing.T) { mostlyOnPostgres(t, testFolder) }

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

// The log names a role that blocks erasures by the lock of the folder, and the erasures are resumed afterwards.
func TestSquattedFolder(t *testing.T) {
	t.Parallel()
	f, ids := sharedDocuments(t, onPostgres, 2)
	mallory := f.record.Role("mallory")
	squatter := f.record.For(mallory).Hold("SELECT pg_advisory_xact_lock(x'666f6c646572'::bigint)")
	reported, log := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan struct{})
	go func() {
		userdata.New(f.config).Work(ctx, slog.New(slog.NewTextHandler(log, nil)))
		_ = log.Close()
		close(ended)
	}()
	line := make([]byte, 4096)
	n, err := reported.Read(line)
	if want := fmt.Sprintf("process %d of the role", squatter.Conn().PgConn().PID()); err != nil || !strings.Contains(
		string(line[:n]), want,
	) ||
		!strings.Contains(string(line[:n]), mallory) {
		t.Errorf("%v %s", err, line[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, reported) }()
	if err := squatter.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.allErased(ids)
	cancel()
	<-ended
}

// A replica that loses the connection with its locks stops working in the folder. Another replica that works there
// would otherwise take its stale markers for references, and each would leave the documents to the other.
func TestLostFolderLock(t *testing.T) {
	t.Parallel()
	f, ids := sharedDocuments(t, onPostgres, 400)
	f.db.Do(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END';
		CREATE TRIGGER slow AFTER INSERT ON cleanupd.erasure_file FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	replica := func() {
		(&fixture{
			Manager: onPools(t, f.config, f.record.For(campaigndb.Role).Pool, f.record.For(campaigndb.Role).Pool),
			t:       t,
		}).work()
	}
	const locks = " FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE " +
		"datname = current_database()) AND classid = x'666f'::int AND objid = x'6c646572'::int::oid"
	replica()
	f.record.Until("SELECT count(*) FROM cleanupd.erasure_event WHERE body->'Log'->>'Message' LIKE 'searched the%'")
	replica()
	f.record.Until("SELECT count(*)" + locks + " AND NOT granted")
	f.record.Superuser("SELECT pg_terminate_backend(pid)" + locks + " AND granted")
	f.allErased(ids)
}

// A file that cannot be deleted fails the erasure. The next attempt finds nothing in the database, but deletes the
// file, whether it is requested by ids or by the user.
func TestFilesThatStayAreDeletedNextTime(t *testing.T) {
	mostlyOnPostgres(t, testFilesThatStayAreDeletedNextTime)
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
func TestErasuresShareDocuments(t *testing.T) { mostlyOnPostgres(t, testErasuresShareDocuments) }

func testErasuresShareDocuments(t *testing.T, on engine) {
	f, ids := sharedDocuments(t, on, suite.Size(suite.Long, 300, 1000))
	f.work()
	f.work()
	f.allErased(ids)
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

// While the document storage is unknown, an erasure that leaves documents fails and reports their sessions, as its
// preview does. Once the storage is known, the next erasure deletes them.
func TestDocumentsOfAnUnknownStorage(t *testing.T) {
	mostlyOnPostgres(t, testDocumentsOfAnUnknownStorage)
}

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
func TestAttachmentsWithoutFormData(t *testing.T) {
	mostlyOnPostgres(t, testAttachmentsWithoutFormData)
}

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
