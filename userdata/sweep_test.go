package userdata_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// A sweep deletes exactly the documents whose every session names a task or form data that does not exist, in the
// folder and in the database.
func TestSweep(t *testing.T) { onBoth(t, testSweep) }

func testSweep(t *testing.T, on engine) {
	sessions := map[string][]string{ // by document
		"gone1":  {"_wfattach99"},
		"gone2":  {"_wftask98", "_wftaskformid98", "_wfattach99"},
		"gone3":  {"_wftask97"},
		"kept1":  {"_wfattach1"},
		"kept2":  {"_wftask7", "_wfattach99"},
		"kept3":  {"_wftaskformid7"},
		"kept4":  {"other", "_wfattach99"},
		"kept5":  {"_wfattach099"},
		"kept6":  {"_wfattach99x"},
		"kept7":  {"_wfattach0"},
		"kept8":  {"_wftask9223372036854775808"},
		"kept9":  {"x_wfattach99"},
		"kept10": {"_WFATTACH99"},
		"kept11": {"_wfattach-5"},
		"kept13": {"-1"},
		"kept14": {"_wftask9223372036854775807"},
	}
	var files []string
	for document, list := range sessions {
		files = append(files, "a/"+document)
		for _, s := range list {
			files = append(files, "a/"+document+".session"+s)
		}
	}
	f := bareFormsOn(t, on,
		append(files, "b/kept12", "kept12.session_wfattach99", "b/kept12.session_wfattach1", "loose")...)
	f.clear("tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion")
	f.db.Do(
		"INSERT INTO tb_task VALUES (1, 1, 'P0', 5), (2, 1, 'P0', 0), (100, 1, 'P0', 5); INSERT INTO tb_form_data " +
			"VALUES (7, 2), (100, 100); INSERT INTO tb_dm_chunk VALUES ('loose', 0, ''); INSERT INTO " +
			"tb_dm_session_reference VALUES ('kept1', NULL), ('gone1', '_wfattach99')",
	)
	for document, list := range sessions {
		f.db.Do("INSERT INTO tb_dm_chunk VALUES ('" + document + "', 0, 'abc'), ('" + document + "', 1, 'de')")
		for _, s := range list {
			f.db.Do("INSERT INTO tb_dm_session_reference VALUES ('" + document + "', '" + s + "')")
		}
	}
	before := f.files()
	request := userdata.Request{Sweep: true, RequestedBy: "test"}
	stop := f.work()
	f.sweepFirst(request)
	preview, retained := f.preview(request), f.retained(request)
	want := "documents retained: 7 of tasks and form data, 1 of the session \"-1\", 6 of other sessions, " +
		"1 without a session"
	if !strings.HasPrefix(regexp.MustCompile(` \(\d+ bytes\)`).ReplaceAllString(retained, ""), want) {
		t.Errorf("in the folder: %s", retained)
	}
	if !slices.Equal(f.files(), before) {
		t.Error("a dry run deleted something")
	}
	_, receipt := f.erase(request)
	gone := []string{
		"a/gone1", "a/gone1.session_wfattach99", "a/gone2", "a/gone2.session_wfattach99", "a/gone2.session_wftask98",
		"a/gone2.session_wftaskformid98", "a/gone3", "a/gone3.session_wftask97",
	}
	if got := slices.Sorted(slices.Values(receipt.Files)); !receipt.Succeeded || !receipt.Sweep || !slices.Equal(
		got, gone,
	) ||
		!slices.Equal(slices.Sorted(slices.Values(preview.Files)), gone) {
		t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
	}
	if left := f.files(); len(left) != len(before)-len(gone) {
		t.Errorf("left %v", left)
	}
	if _, receipt := f.erase(request); !receipt.Succeeded || len(receipt.Files) != 0 {
		t.Errorf("a second run: %+v", receipt)
	}
	stop()

	f.config.Folder, f.config.InDatabase = "", true
	f.Manager = userdata.New(f.config)
	f.record.Do("TRUNCATE cleanupd.dead_session")
	f.work()
	f.sweepFirst(request)
	chunks, refs := f.db.Int("SELECT count(*) FROM tb_dm_chunk"), f.db.Int(
		"SELECT count(*) FROM tb_dm_session_reference")
	preview, retained = f.preview(request), f.retained(request)
	if retained != "documents retained: 6 of tasks and form data (30 bytes), 1 of the session \"-1\" (5 bytes), 6 of "+
		"other sessions (30 bytes), 1 without a session (0 bytes)" {
		t.Errorf("in the database: %s", retained)
	}
	events, receipt := f.erase(request)
	if !slices.ContainsFunc(events, func(e userdata.Event) bool { return e.Log != nil && e.Log.Message == retained }) {
		t.Errorf("the sweep does not say %s", retained)
	}
	if want := (forms.Rows{"tb_dm_chunk": 6, "tb_dm_session_reference": 6}); !receipt.Succeeded ||
		!maps.Equal(receipt.Rows, want) ||
		!maps.Equal(preview.Rows, want) {
		t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
	}
	var reported []string
	for _, e := range events {
		if e.Document != nil {
			reported = append(reported, e.Document.ID)
			if e.Document.ID == "gone2" &&
				!slices.Equal(e.Document.Sessions, []string{"_wfattach99", "_wftask98", "_wftaskformid98"}) {
				t.Errorf("%+v", e.Document)
			}
		}
	}
	if !slices.Equal(reported, []string{"gone1", "gone2", "gone3"}) {
		t.Errorf("reported %v", reported)
	}
	if f.db.Int("SELECT count(*) FROM tb_dm_chunk") != chunks-6 ||
		f.db.Int("SELECT count(*) FROM tb_dm_session_reference") != refs-6 ||
		f.db.Int("SELECT count(*) FROM tb_task") != 3 {
		t.Errorf("left %v", f.db.Strings("SELECT documentid FROM tb_dm_chunk"))
	}
}

// The first sweep was an hour ago, and deletes nothing.
func (f *fixture) sweepFirst(request userdata.Request) {
	f.t.Helper()
	if _, receipt := f.erase(request); !receipt.Succeeded || len(receipt.Files)+len(receipt.Rows) != 0 {
		f.t.Errorf("the first sweep: %+v", receipt)
	}
	f.record.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '1 hour'")
}

// The message of a sweep's dry run about the retained documents.
func (f *fixture) retained(r userdata.Request) (text string) {
	f.t.Helper()
	if err := f.Preview(f.t.Context(), r, func(e userdata.Event) error {
		if e.Log != nil && strings.HasPrefix(e.Log.Message, "documents retained") {
			text = e.Log.Message
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return text
}

// Chunks that belong to no document have no session: a sweep retains them, and reports how many there are.
func TestSweepOfChunksWithoutADocument(t *testing.T) { onBoth(t, testSweepOfChunksWithoutADocument) }

func testSweepOfChunksWithoutADocument(t *testing.T, on engine) {
	f := newPurges(t, on)
	f.db.Do("INSERT INTO tb_dm_chunk VALUES (NULL, 0, 'abc'), (NULL, NULL, NULL), ('gone', 0, 'ab'), ('kept', 0, 'a')")
	f.db.Do("INSERT INTO tb_dm_session_reference VALUES (NULL, '_wfattach1'), ('gone', '_wfattach1'), ('kept', NULL)")
	f.db.Do("INSERT INTO tb_task VALUES (9, 1, 'P0', 0)")
	f.work()
	request := userdata.Request{Sweep: true}
	f.sweepFirst(request)
	retained := f.retained(request)
	if want := "documents retained: 0 of tasks and form data (0 bytes), 0 of the session \"-1\" (0 bytes), 1 of other " +
		"sessions (1 bytes), 0 without a session (0 bytes); and 2 chunks without a document (3 bytes)"; retained != want {
		t.Errorf("the dry run says %q, want %q", retained, want)
	}
	events, receipt := f.erase(request)
	if want := (forms.Rows{"tb_dm_chunk": 1, "tb_dm_session_reference": 1}); !maps.Equal(receipt.Rows, want) ||
		!f.logged(events, retained) {
		t.Errorf("the sweep deleted %v, want %v: %+v", receipt.Rows, want, events)
	}
	if left := f.db.Int("SELECT count(*) FROM tb_dm_chunk WHERE documentid IS NULL"); left != 2 {
		t.Errorf("%d chunks without a document are left, want 2", left)
	}
}

// A sweep finds the documents that an erasure without a known document storage left, although the task's rows no longer
// exist.
func TestSweepAfterAnErasure(t *testing.T) {
	mostlyOnPostgres(t, func(t *testing.T, on engine) {
		f := bareFormsOn(t, on, "one", "one.session_wfattach1", "two", "two.session_wftask3")
		f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (3, 1)")
		blind := f.config
		blind.Folder = ""
		stop := (&fixture{Manager: userdata.New(blind), t: t}).work()
		if _, err := userdata.New(blind).
			Start(t.Context(), userdata.Request{Sweep: true}); !errors.Is(err, userdata.ErrNoStorage) {
			t.Error(err)
		}
		if _, receipt := f.erase(userdata.Request{Tasks: []int64{1}}); receipt.Succeeded || len(f.files()) != 4 {
			t.Errorf("%+v", receipt)
		}
		stop()
		f.db.Do("INSERT INTO tb_task VALUES (10, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (10, 10)")
		f.work()
		f.sweepFirst(userdata.Request{Sweep: true})
		if _, receipt := f.erase(userdata.Request{Sweep: true}); !receipt.Succeeded || len(receipt.Files) != 4 ||
			len(f.files()) != 0 {
			t.Errorf("%+v; left %v", receipt, f.files())
		}
	})
}

// A document that cannot be deleted fails the sweep.
func TestSweepThatFails(t *testing.T) {
	t.Parallel()
	f := bareForms(t, "ten/inside", "ten.session_wfattach12")
	f.db.Do("INSERT INTO tb_task VALUES (20, 1, 'P0', 0)")
	f.work()
	f.sweepFirst(userdata.Request{Sweep: true})
	if _, receipt := f.erase(userdata.Request{Sweep: true}); receipt.Succeeded || len(receipt.Problems) != 1 ||
		len(f.files()) != 2 {
		t.Errorf("%+v", receipt)
	}
}

// A document is swept after two sweeps, an hour apart, have not found its task, and only if the task can have existed:
// the Forms server stores documents before the transaction that stores their task is committed.
func TestSweepOfWhatIsBeingStored(t *testing.T) { mostlyOnPostgres(t, testSweepOfWhatIsBeingStored) }

func testSweepOfWhatIsBeingStored(t *testing.T, on engine) {
	for _, inFiles := range []bool{false, true} {
		f := bareFormsOn(t, on, "old", "old.session_wfattach1", "new", "new.session_wfattach11",
			"stored", "stored.session_wfattach2", "young", "young.session_wfattach3")
		f.clear("tb_dm_chunk", "tb_dm_session_reference")
		f.db.Do(
			"INSERT INTO tb_task VALUES (10, 1, 'P0', 0); INSERT INTO tb_dm_session_reference VALUES ('old', " +
				"'_wfattach1'), ('new', '_wfattach11'), ('stored', '_wfattach2')",
		)
		if !inFiles {
			f.config.Folder, f.config.InDatabase = "", true
			f.open()
		} else if err := os.Chtimes(
			filepath.Join(f.folder, "young.session_wfattach3"), time.Time{}, time.Now().Add(-23*time.Hour),
		); err != nil {
			t.Fatal(err)
		}
		sweep := func(what string, retained int, problems ...string) {
			t.Helper()
			request := userdata.Request{Sweep: true}
			_, receipt := f.erase(request)
			left := int(f.db.Int("SELECT count(*) FROM tb_dm_session_reference"))
			if inFiles {
				left = len(f.files()) / 2
			}
			if left != retained || !receipt.Succeeded || len(receipt.Problems) != len(problems) {
				t.Errorf("%s (in files: %v): %d documents are retained: %+v", what, inFiles, left, receipt)
				return
			}
			for i, p := range problems {
				if !strings.Contains(receipt.Problems[i], p) {
					t.Errorf("%s (in files: %v): %q", what, inFiles, receipt.Problems[i])
				}
			}
		}
		all, recent, above := 3, "2 sessions name", "1 sessions name a task or form data with an id that is higher"
		if inFiles {
			all, recent = 4, "3 sessions name"
		}
		f.work()
		sweep("the first look", all, recent, above)
		sweep("a moment later", all, recent, above)
		f.record.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '59 minutes'")
		f.db.Do("INSERT INTO tb_task VALUES (2, 1, 'P0', 0)")
		sweep("59 minutes later", all, strings.Replace(strings.Replace(recent, "2", "1", 1), "3", "2", 1), above)
		f.clear("tb_task") // observed while it existed
		f.record.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '1 minute'")
		young := []string{}
		if inFiles {
			young = append(young,
				"1 documents without a task or form data are retained: one of their files is younger than a day")
		}
		sweep("an hour later", all-1, append([]string{"1 sessions name", above}, young...)...)
		f.record.Do("UPDATE cleanupd.dead_session SET found_time = found_time - interval '1 hour'")
		sweep("two hours later", all-2, append([]string{above}, young...)...)
	}
}
