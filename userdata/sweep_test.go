package userdata_test

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/userdata"
)

// A sweep deletes the documents whose every session names a task or form data that does not exist, and no other, from wherever they are.
func TestSweep(t *testing.T) { onBoth(t, testSweep) }

func testSweep(t *testing.T, on engine) {
	sessions := map[string][]string{ // by document
		"gone1": {"_wfattach99"}, "gone2": {"_wftask98", "_wftaskformid98", "_wfattach99"}, "gone3": {"_wftask9223372036854775807"},
		"kept1": {"_wfattach1"}, "kept2": {"_wftask7", "_wfattach99"}, "kept3": {"_wftaskformid7"}, "kept4": {"other", "_wfattach99"}, "kept5": {"_wfattach099"},
		"kept6": {"_wfattach99x"}, "kept7": {"_wfattach0"}, "kept8": {"_wftask9223372036854775808"}, "kept9": {"x_wfattach99"}, "kept10": {"_WFATTACH99"}, "kept11": {"_wfattach-5"}, "kept13": {"-1"},
	}
	var files []string
	for document, list := range sessions {
		files = append(files, "a/"+document)
		for _, s := range list {
			files = append(files, "a/"+document+".session"+s)
		}
	}
	f := bareFormsOn(t, on, append(files, "b/kept12", "kept12.session_wfattach99", "b/kept12.session_wfattach1", "loose")...)
	f.clear("tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion")
	f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 5), (2, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (7, 2); INSERT INTO tb_dm_chunk VALUES ('loose', 0, ''); INSERT INTO tb_dm_session_reference VALUES ('kept1', NULL), ('gone1', '_wfattach99')")
	for document, list := range sessions {
		f.db.Do("INSERT INTO tb_dm_chunk VALUES ('" + document + "', 0, 'abc'), ('" + document + "', 1, 'de')")
		for _, s := range list {
			f.db.Do("INSERT INTO tb_dm_session_reference VALUES ('" + document + "', '" + s + "')")
		}
	}
	before := f.files()
	request := userdata.Request{Sweep: true, RequestedBy: "test"}
	stop := f.work()
	foretold, retained := f.preview(request), f.retained(request)
	if want := "6 of tasks and form data, 1 of the session \"-1\", 6 of other sessions, 1 without a session"; !strings.HasPrefix(regexp.MustCompile(` \(\d+ bytes\)`).ReplaceAllString(retained, ""), "documents retained: "+want) {
		t.Errorf("in the folder: %s", retained)
	}
	if !slices.Equal(f.files(), before) {
		t.Error("a dry run deleted something")
	}
	_, receipt := f.erase(request)
	gone := []string{"a/gone1", "a/gone1.session_wfattach99", "a/gone2", "a/gone2.session_wfattach99", "a/gone2.session_wftask98", "a/gone2.session_wftaskformid98", "a/gone3", "a/gone3.session_wftask9223372036854775807"}
	if got := slices.Sorted(slices.Values(receipt.Files)); !receipt.Succeeded || !receipt.Sweep || !slices.Equal(got, gone) || !slices.Equal(slices.Sorted(slices.Values(foretold.Files)), gone) {
		t.Errorf("foretold: %+v; done: %+v", foretold, receipt)
	}
	if left := f.files(); len(left) != len(before)-len(gone) {
		t.Errorf("left %v", left)
	}
	if _, receipt := f.erase(request); !receipt.Succeeded || len(receipt.Files) != 0 {
		t.Errorf("a second run: %+v", receipt)
	}
	stop()

	f.config.Folder, f.config.InDatabase = "", true
	f.Database = userdata.New(f.config)
	f.work()
	chunks, refs := f.db.Int("SELECT count(*) FROM tb_dm_chunk"), f.db.Int("SELECT count(*) FROM tb_dm_session_reference")
	foretold, retained = f.preview(request), f.retained(request)
	if retained != "documents retained: 5 of tasks and form data (25 bytes), 1 of the session \"-1\" (5 bytes), 6 of other sessions (30 bytes), 1 without a session (0 bytes)" {
		t.Errorf("in the database: %s", retained)
	}
	events, receipt := f.erase(request)
	if !slices.ContainsFunc(events, func(e userdata.Event) bool { return e.Log != nil && e.Log.Message == retained }) {
		t.Errorf("the sweep does not say %s", retained)
	}
	if want := (userdata.Rows{"tb_dm_chunk": 6, "tb_dm_session_reference": 6}); !receipt.Succeeded || !maps.Equal(receipt.Rows, want) || !maps.Equal(foretold.Rows, want) {
		t.Errorf("foretold: %+v; done: %+v", foretold, receipt)
	}
	var told []string
	for _, e := range events {
		if e.Document != nil {
			told = append(told, e.Document.ID)
			if e.Document.ID == "gone2" && !slices.Equal(e.Document.Sessions, []string{"_wfattach99", "_wftask98", "_wftaskformid98"}) {
				t.Errorf("%+v", e.Document)
			}
		}
	}
	if !slices.Equal(told, []string{"gone1", "gone2", "gone3"}) {
		t.Errorf("told of %v", told)
	}
	if f.db.Int("SELECT count(*) FROM tb_dm_chunk") != chunks-6 || f.db.Int("SELECT count(*) FROM tb_dm_session_reference") != refs-6 || f.db.Int("SELECT count(*) FROM tb_task") != 2 {
		t.Errorf("left %v", f.db.Strings("SELECT documentid FROM tb_dm_chunk"))
	}
}

// retained is what a dry run of a sweep says of the documents retained.
func (f *forms) retained(r userdata.Request) (text string) {
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

// What an erasure left, whose server did not know the document storage then, a sweep finds, although the task's rows are gone.
func TestSweepAfterAnErasure(t *testing.T) {
	onBoth(t, func(t *testing.T, on engine) {
		f := bareFormsOn(t, on, "one", "one.session_wfattach1", "two", "two.session_wftask3")
		f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0); INSERT INTO tb_form_data VALUES (3, 1)")
		blind := f.config
		blind.Folder = ""
		stop := (&forms{Database: userdata.New(blind), t: t}).work()
		if _, err := userdata.New(blind).Start(t.Context(), userdata.Request{Sweep: true}); !errors.Is(err, userdata.ErrNoStorage) {
			t.Error(err)
		}
		if _, receipt := f.erase(userdata.Request{Tasks: []int64{1}}); receipt.Succeeded || len(f.files()) != 4 {
			t.Errorf("%+v", receipt)
		}
		stop()
		f.work()
		if _, receipt := f.erase(userdata.Request{Sweep: true}); !receipt.Succeeded || len(receipt.Files) != 4 || len(f.files()) != 0 {
			t.Errorf("%+v; left %v", receipt, f.files())
		}
	})
}

// A document that cannot be deleted fails the sweep.
func TestSweepThatFails(t *testing.T) {
	t.Parallel()
	f := bareForms(t, "ten/inside", "ten.session_wfattach12")
	f.work()
	if _, receipt := f.erase(userdata.Request{Sweep: true}); receipt.Succeeded || len(receipt.Problems) != 1 || len(f.files()) != 2 {
		t.Errorf("%+v", receipt)
	}
}
