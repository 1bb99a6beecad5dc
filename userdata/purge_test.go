package userdata_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/processmanager"
)

func noNote(context.Context, pgx.Tx, *userdata.Purge, *userdata.Purge) error { return nil }

// The process instances have a date, and there are only the workflows. Documents are in the database unless there are
// files.
func newPurges(t *testing.T, on engine, files ...string) *fixture {
	t.Helper()
	f := bareFormsOn(t, on, files...)
	f.clear("tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion")
	if len(files) == 0 {
		f.folder, f.config.Folder, f.config.InDatabase = "", "", true
		f.open()
	}
	kind := map[engine]string{onPostgres: "timestamptz", onMySQL: "datetime(6) NULL"}[on]
	f.db.Do("ALTER TABLE tb_process_instance ADD ended " + kind)
	return f
}

func (f *fixture) replacePurge(r userdata.Purge, etag string, note userdata.PurgeNote) error {
	replace := func(*userdata.Purge) (userdata.Purge, error) { return r, nil }
	_, err := f.SetPurge(f.t.Context(), r.Name, etag, replace, note)
	return err
}

// The rule is stored if it does not exist.
func (f *fixture) task(p userdata.Purge) external.Task {
	f.t.Helper()
	if err := f.replacePurge(p, "", noNote); err != nil {
		f.t.Fatal(err)
	}
	list, err := f.Tasks(f.t.Context(), f.record)
	i := slices.IndexFunc(list, func(t external.Task) bool { return t.Name == "forms/"+p.Name })
	if err != nil || i < 0 {
		f.t.Fatal(list, err)
	}
	return list[i]
}

// Reference time of purges.
var now = time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC)

// In the table of a workflow, or of none if table is empty, with a task that has a document.
func (f *fixture) instance(id int64, status any, ended time.Time, table string) {
	f.t.Helper()
	date := "NULL"
	if !ended.IsZero() {
		date = fmt.Sprintf(map[engine]string{onPostgres: "to_timestamp(%f)", onMySQL: "FROM_UNIXTIME(%f)"}[f.on],
			float64(ended.UnixMicro())/1e6)
	}
	f.db.Do(
		fmt.Sprintf(
			"INSERT INTO tb_process_instance VALUES (%d, 'invocation', %v, %s); INSERT INTO tb_task VALUES (%d, 1, "+
				"'P0', %d)",
			id,
			status,
			date,
			id+1000,
			id,
		),
	)
	if f.folder == "" {
		f.db.Do(
			fmt.Sprintf(
				"INSERT INTO tb_dm_chunk VALUES ('d%d', 0, ''); INSERT INTO tb_dm_session_reference VALUES ('d%d', "+
					"'_wfattach%d')",
				id,
				id,
				id+1000,
			),
		)
	}
	if table != "" {
		f.db.Do(fmt.Sprintf("INSERT INTO %s (process_instance_id) VALUES (%d)", table, id))
	}
}

// purge deletes the matches, and returns how many rows were reported.
func (f *fixture) purge(task external.Task, run string, reported func(rows int64) error) (rows int64, err error) {
	f.t.Helper()
	matches, err := task.Matches(f.t.Context(), now)
	if err != nil {
		f.t.Fatal(err)
	}
	err = task.Delete(f.t.Context(), run, matches, func(_ context.Context, n int64) error {
		rows = n
		if reported == nil {
			return nil
		}
		return reported(n)
	})
	return rows, err
}

func ids(matches *external.Matches) (list []int64) {
	for _, i := range matches.Items {
		list = append(list, i.ID)
	}
	return list
}

// A purge deletes process instances that have ended, are strictly older than its days, and belong to its workflows,
// with everything that belongs to them.
func TestPurge(t *testing.T) { onBoth(t, testPurge) }

func testPurge(t *testing.T, on engine) {
	f := newPurges(t, on)
	cutoff := now.AddDate(0, 0, -30)
	old, young := cutoff.Add(-time.Second), cutoff
	f.instance(1, 2, old, "tb_101")
	f.instance(2, 4, old, "tb_101")
	f.instance(3, 1, old, "tb_101")
	f.instance(4, 0, old, "tb_101")
	f.instance(5, "NULL", old, "tb_101")
	f.instance(6, 2, young, "tb_101")
	f.instance(7, 2, time.Time{}, "tb_101")
	f.instance(8, 2, time.Unix(-1, 0), "tb_101") // represents no date
	f.instance(9, 2, old, "tb_103")              // of another application
	f.instance(10, 2, old, "tb_102")             // of a sub-folder
	f.instance(11, 2, old, "")                   // of no known workflow
	f.instance(-12, 2, old, "tb_101")
	f.instance(13, 2, old.AddDate(-2, 0, 0), "tb_101")
	all := map[string][]int64{
		"Loans/apply":             {1, 2, 13},
		"Loans/folder/sub/review": {10},
		"Claims/apply":            {9},
		"Loans/":                  {1, 2, 10, 13},
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		application, workflow, _ := strings.Cut(path, "/")
		task := f.task(userdata.Purge{
			Name:        "p",
			Application: application,
			Workflow:    workflow,
			DateColumn:  "ended",
			Days:        30,
			Enabled:     true,
		})
		matches, err := task.Matches(t.Context(), now)
		if err != nil || !slices.Equal(ids(matches), all[path]) || matches.Total != 13 ||
			!matches.Cutoff.Equal(cutoff) {
			t.Errorf("%s: %v of %d, %v", path, ids(matches), matches.Total, err)
		}
		if i := matches.Items[len(matches.Items)-1]; path == "Loans/" && !i.Date.Equal(old.AddDate(-2, 0, 0)) {
			t.Errorf("the date of %d is %s", i.ID, i.Date)
		}
	}
	task := f.task(userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true})
	matches, err := task.Matches(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	foreseen, total := forms.Rows{}, int64(0)
	if err := task.Preview(t.Context(), matches, func(_ context.Context, rows map[string]int64) error {
		for table, n := range rows {
			foreseen[table] += n
			total += n
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if f.db.Int("SELECT count(*) FROM tb_process_instance") != 13 || foreseen["tb_process_instance"] != 4 ||
		foreseen["tb_dm_chunk"] != 4 ||
		foreseen["tb_102"] != 1 {
		t.Errorf("foreseen: %v", foreseen)
	}
	run := uuid.NewString()
	if rows, err := f.purge(task, run, nil); err != nil || rows != total {
		t.Errorf("%d rows, %d were foreseen: %v", rows, total, err)
	}
	left := f.db.Strings("SELECT id FROM tb_process_instance ORDER BY id")
	if want := []string{"-12", "3", "4", "5", "6", "7", "8", "9", "11"}; !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
	for _, table := range []string{"tb_task", "tb_dm_chunk", "tb_dm_session_reference"} {
		if n := f.db.Int("SELECT count(*) FROM " + table); n != 9 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	list, _, err := f.Receipts(t.Context(), 10, "")
	if err != nil || len(list) != 1 || list[0].Purge != "p" || list[0].RunID != run || !list[0].Succeeded ||
		len(list[0].Instances) != 0 {
		t.Fatalf("%+v %v", list, err)
	}
	if receipt, err := f.Receipt(t.Context(), list[0].ID); err != nil || !slices.Equal(
		receipt.Instances, []int64{1, 2, 10, 13},
	) ||
		!maps.Equal(receipt.Rows, foreseen) {
		t.Errorf("%+v %v, foreseen %v", receipt, err, foreseen)
	}
	if rows, err := f.purge(task, uuid.NewString(), nil); rows != 0 || err != nil {
		t.Errorf("a second run: %d rows, %v", rows, err)
	}
	statements, err := task.Statements(t.Context(), now)
	if err != nil || len(statements) != 4 || statements[0].Table != "tb_process_instance" || !statements[3].Deletes {
		t.Fatalf("%+v %v", statements, err)
	}
	f.db.Do(statements[0].SQL)
}

// A table that another workflow also uses does not reveal the workflow of its process instances.
func TestPurgeOfASharedTable(t *testing.T) { mostlyOnPostgres(t, testPurgeOfASharedTable) }

func testPurgeOfASharedTable(t *testing.T, on engine) {
	f := newPurges(t, on)
	f.instance(1, 2, now.AddDate(-1, 0, 0), "tb_101")
	f.instance(2, 2, now.AddDate(-1, 0, 0), "tb_102")
	f.db.Do("INSERT INTO omd_object_type VALUES ('pt_Claims/other', 'tb_101')")
	task := f.task(userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true})
	matches, err := task.Matches(t.Context(), now)
	if err != nil || !slices.Equal(ids(matches), []int64{2}) || len(matches.Notes) != 1 ||
		!strings.Contains(matches.Notes[0].Text, "tb_101") {
		t.Errorf("%+v %v", matches, err)
	}
}

// Process instances that no longer match when they would be deleted are retained.
func TestPurgeJudgesAgain(t *testing.T) { onBoth(t, testPurgeJudgesAgain) }

func testPurgeJudgesAgain(t *testing.T, on engine) {
	f := newPurges(t, on)
	for id := int64(1); id <= 4; id++ {
		f.instance(id, 2, now.AddDate(-1, 0, 0), "tb_101")
	}
	task := f.task(userdata.Purge{
		Name:        "p",
		Application: "Loans",
		Workflow:    "apply",
		DateColumn:  "ended",
		Days:        30,
		Enabled:     true,
	})
	matches, err := task.Matches(t.Context(), now)
	if err != nil || len(matches.Items) != 4 {
		t.Fatal(matches, err)
	}
	f.db.Do(
		"UPDATE tb_process_instance SET status = 1 WHERE id = 1; UPDATE tb_process_instance SET ended = NULL WHERE " +
			"id = 2; DELETE FROM tb_101 WHERE process_instance_id = 3",
	)
	if err := task.Delete(
		t.Context(), uuid.NewString(), matches, func(context.Context, int64) error { return nil },
	); err != nil {
		t.Error(err)
	}
	if left := f.db.Strings("SELECT id FROM tb_process_instance ORDER BY id"); !slices.Equal(
		left, []string{"1", "2", "3"},
	) {
		t.Errorf("left: %v", left)
	}
}

// A stopped purge has deleted the rows that it reports, documents in the folder included, and a later one deletes the
// rest.
func TestPurgeStops(t *testing.T) { mostlyOnPostgres(t, testPurgeStops) }

func testPurgeStops(t *testing.T, on engine) {
	f := newPurges(t, on, "doc", "doc.session_wfattach1001", "kept", "kept.session_wfattach1250")
	for id := int64(1); id <= 250; id++ {
		f.instance(id, 2, now.AddDate(-1, 0, 0), "tb_101")
	}
	task := f.task(userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true})
	errEnough := errors.New("enough")
	rows, err := f.purge(task, uuid.NewString(), func(int64) error { return errEnough })
	if !errors.Is(err, errEnough) || rows != 300 || f.db.Int("SELECT count(*) FROM tb_process_instance") != 150 ||
		!slices.Equal(f.files(), []string{"kept", "kept.session_wfattach1250"}) {
		t.Errorf("%d rows, %v, %v", rows, err, f.files())
	}
	list, _, err := f.Receipts(t.Context(), 10, "")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if receipt, err := f.Receipt(
		t.Context(), list[0].ID,
	); err != nil || !receipt.Succeeded || len(receipt.Instances) != 100 ||
		receipt.EndTime == nil {
		t.Errorf("%+v %v", receipt, err)
	}
	if rows, err := f.purge(task, uuid.NewString(), nil); err != nil || rows != 450 || f.db.Int(
		"SELECT count(*) FROM tb_task",
	) != 0 ||
		len(f.files()) != 0 {
		t.Errorf("%d rows, %v, %v", rows, err, f.files())
	}
}

// A worker that takes over continues where its predecessor ended, and the count includes both.
func TestPurgeGoesOn(t *testing.T) { mostlyOnPostgres(t, testPurgeGoesOn) }

func testPurgeGoesOn(t *testing.T, on engine) {
	f := newPurges(t, on)
	for id := int64(1); id <= 250; id++ {
		f.instance(id, 2, now.AddDate(-1, 0, 0), "tb_101")
	}
	task := f.task(userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true})
	matches, err := task.Matches(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	run := uuid.NewString()
	ctx, kill := context.WithCancel(t.Context())
	if err := task.Delete(
		ctx, run, matches, func(context.Context, int64) error { kill(); return ctx.Err() },
	); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := f.record.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'PURGING'"); n != 1 {
		t.Errorf("%d erasures are left to the next worker", n)
	}
	f.work() // leaves it to the run
	if rows, err := f.purge(task, run, nil); err != nil || rows != 1250 ||
		f.db.Int("SELECT count(*) FROM tb_process_instance") != 0 {
		t.Errorf("%d rows, %v", rows, err)
	}
	if n := f.record.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'SUCCEEDED'"); n != 1 {
		t.Errorf("%d erasures succeeded", n)
	}
}

// The erasure of an abandoned run is ended, so that its receipt shows what was deleted.
func TestForsakenPurge(t *testing.T) {
	t.Parallel()
	f := newPurges(t, onPostgres)
	f.config.Lease = 20 * time.Millisecond
	f.open()
	for id := int64(1); id <= 250; id++ {
		f.instance(id, 2, now.AddDate(-1, 0, 0), "tb_101")
	}
	task := f.task(userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true})
	matches, err := task.Matches(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	if err := task.Delete(
		ctx, uuid.NewString(), matches, func(context.Context, int64) error { kill(); return ctx.Err() },
	); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.work()
	_, receipt := f.watch(f.record.Strings("SELECT id::text FROM cleanupd.erasure")[0])
	if !receipt.Succeeded || len(receipt.Instances) != 100 ||
		f.db.Int("SELECT count(*) FROM tb_process_instance") != 150 {
		t.Errorf("%d of the receipt, %d left", len(receipt.Instances),
			f.db.Int("SELECT count(*) FROM tb_process_instance"))
	}
}

// An invalid purge is refused with everything that is wrong, and the stored rule is unchanged.
func TestSetPurge(t *testing.T) { onBoth(t, testSetPurge) }

func testSetPurge(t *testing.T, on engine) {
	f := newPurges(t, on)
	good := userdata.Purge{
		Name:        "a-1",
		Application: "Loans",
		Workflow:    "folder/sub/review",
		DateColumn:  "ended",
		Days:        1,
	}
	for _, c := range []struct {
		change func(p *userdata.Purge)
		fields []string
	}{
		{func(p *userdata.Purge) { p.Name = "" }, []string{"name"}},
		{func(p *userdata.Purge) { p.Name = "A" }, []string{"name"}},
		{func(p *userdata.Purge) { p.Name = strings.Repeat("a", 41) }, []string{"name"}},
		{func(p *userdata.Purge) { *p = userdata.Purge{} }, []string{"name", "application", "date_column", "days"}},
		{func(p *userdata.Purge) { p.Days = 24_856 }, []string{"days"}},
		{func(p *userdata.Purge) { p.Days = -1 }, []string{"days"}},
		{func(p *userdata.Purge) { p.Application = "loans" }, []string{"workflow"}},
		{func(p *userdata.Purge) { p.Workflow = "review" }, []string{"workflow"}},
		{func(p *userdata.Purge) { p.Workflow = "folder/sub/review\x00" }, []string{"workflow"}},
		{func(p *userdata.Purge) { p.DateColumn = "status" }, []string{"date_column"}},
		{func(p *userdata.Purge) { p.DateColumn = `ended" OR 1=1 --` }, []string{"date_column"}},
		{func(p *userdata.Purge) { p.Workflow, p.DateColumn = "x", "x" }, []string{"workflow", "date_column"}},
	} {
		p := good
		c.change(&p)
		err := f.replacePurge(p, "", noNote)
		var wrong failure.Violations
		var fields []string
		if errors.As(err, &wrong) {
			for _, w := range wrong {
				fields = append(fields, strings.TrimPrefix(w.Field, "purge."))
			}
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if list, err := f.Purges(t.Context()); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	if err := f.replacePurge(good, "0123", noNote); !errors.Is(err, etag.ErrStale) {
		t.Errorf("an etag of one that is not there: %v", err)
	}
	if err := f.replacePurge(good, "", noNote); err != nil {
		t.Fatal(err)
	}
	next := good
	next.Days = 2
	var before *userdata.Purge
	if err := f.replacePurge(
		next, good.Etag(), func(_ context.Context, _ pgx.Tx, b, _ *userdata.Purge) error { before = b; return nil },
	); err != nil || before == nil ||
		*before != good {
		t.Errorf("%+v %v", before, err)
	}
	if err := f.replacePurge(good, good.Etag(), noNote); !errors.Is(err, etag.ErrStale) {
		t.Errorf("a stale etag: %v", err)
	}
	errUnseen := errors.New("unseen")
	if err := f.replacePurge(
		good, "", func(context.Context, pgx.Tx, *userdata.Purge, *userdata.Purge) error { return errUnseen },
	); !errors.Is(err, errUnseen) {
		t.Error(err)
	}
	if list, err := f.Purges(t.Context()); err != nil || len(list) != 1 || list[0] != next {
		t.Error(list, err)
	}
	if err := f.DeletePurge(t.Context(), "a-1", good.Etag(), noNote); !errors.Is(err, etag.ErrStale) {
		t.Errorf("a deletion with a stale etag: %v", err)
	}
	if err := f.DeletePurge(t.Context(), "a-1", next.Etag(), noNote); err != nil {
		t.Error(err)
	}
	if err := f.DeletePurge(t.Context(), "a-1", "", noNote); !errors.Is(err, userdata.ErrNoPurge) {
		t.Error(err)
	}
}

// If the Forms server purges, only process instances are previewed and counted, and one that it refuses fails the task.
func TestPurgeByTheFormsServer(t *testing.T) {
	t.Parallel()
	f := newPurges(t, onPostgres)
	for id, invocation := range []string{"", "one", "refused", "three"} {
		if id > 0 {
			f.instance(int64(id), 2, now.AddDate(-1, 0, 0), "tb_101")
			f.db.Do("UPDATE tb_process_instance SET long_lived_invocation_id = $2 WHERE id = $1", id, invocation)
		}
	}
	server := &standIn{db: f.record, refuses: "refused"}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	f.config.Server = processmanager.New(processmanager.Config{URL: web.URL, User: "administrator", Password: "secret"})
	f.Manager = userdata.New(f.config)
	task := f.task(userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true})
	matches, err := task.Matches(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Preview(t.Context(), matches, func(_ context.Context, rows map[string]int64) error {
		if len(rows) != 1 || rows["tb_process_instance"] != 3 {
			t.Errorf("foreseen: %v", rows)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if rows, err := f.purge(task, uuid.NewString(), nil); rows != 2 || err == nil ||
		!strings.Contains(err.Error(), "1 process instances could not be erased") {
		t.Errorf("%d rows, %v", rows, err)
	}
	if want := []string{
		"purgeProcessInstance one", "purgeProcessInstance refused", "purgeProcessInstance three",
	}; !slices.Equal(server.calls, want) {
		t.Errorf("the server was asked for %q", server.calls)
	}
}

// A lost Forms database fails the purge, but not as if the run's own database was lost.
func TestPurgeOfALostDatabase(t *testing.T) {
	t.Parallel()
	f := newPurges(t, onPostgres)
	f.instance(1, 2, now.AddDate(-1, 0, 0), "tb_101")
	own := pgtest.Empty(t)
	conn, err := own.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := userdata.Migrate(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	f.config.Record = own.Pool
	f.Manager = userdata.New(f.config)
	if err := f.replacePurge(
		userdata.Purge{Name: "p", Application: "Loans", DateColumn: "ended", Days: 30, Enabled: true}, "", noNote,
	); err != nil {
		t.Fatal(err)
	}
	list, err := f.Tasks(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	matches, err := list[0].Matches(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	f.record.Cut()
	err = list[0].Delete(t.Context(), uuid.NewString(), matches, func(context.Context, int64) error { return nil })
	if err == nil || sqlstate.Lost(err) || !strings.Contains(err.Error(), "the Forms database is not available") {
		t.Errorf("%v", err)
	}
	if _, err := list[0].Matches(t.Context(), now); err == nil || sqlstate.Lost(err) {
		t.Errorf("%v", err)
	}
}

// In the hour that is repeated in autumn, a timestamp of MySQL is compared by its instant, not by its local time.
func TestPurgeInARepeatedHour(t *testing.T) {
	t.Parallel()
	f := newPurges(t, onMySQL)
	autumn := now.AddDate(0, 0, -30).Add(-30 * time.Minute) // when the clocks are set back by an hour
	zone := "cleanupd/" + uuid.NewString()[:8]
	f.db.Do(
		fmt.Sprintf(
			`INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N'); SET @zone = LAST_INSERT_ID();
				INSERT INTO mysql.time_zone_name VALUES ('%s', @zone);
		INSERT INTO mysql.time_zone_transition_type VALUES (@zone, 0, 7200, 1, 'S'), (@zone, 1, 3600, 0, 'W');
		INSERT INTO mysql.time_zone_transition VALUES (@zone, %d, 0), (@zone, %d, 1)`,
			zone,
			autumn.AddDate(-1, 0, 0).Unix(),
			autumn.Unix(),
		),
	)
	f.db.Do("ALTER TABLE tb_process_instance MODIFY ended timestamp NULL")
	f.db.Do(
		fmt.Sprintf(
			"SET time_zone = '+00:00'; INSERT INTO tb_process_instance VALUES (1, 'i', 2, FROM_UNIXTIME(%d)), (2, "+
				"'i', 2, FROM_UNIXTIME(%d)); INSERT INTO tb_101 (process_instance_id) VALUES (1), (2)",
			autumn.Add(-10*time.Minute).Unix(),
			autumn.Add(50*time.Minute).Unix(),
		),
	) // both at 50 minutes past the hour
	config := f.db.(*mysqltest.DB).Config("root")
	config.Params = map[string]string{"time_zone": "'" + zone + "'"}
	f.config.Forms = openMySQL(t, config)
	f.open()
	// 30 minutes after
	matches, err := f.task(userdata.Purge{
		Name:        "repeated",
		Application: "Loans",
		DateColumn:  "ended",
		Days:        30,
		Enabled:     true,
	}).
		Matches(t.Context(), now)
	if err != nil || !slices.Equal(ids(matches), []int64{1}) {
		t.Errorf("%v are matches: %v", ids(matches), err)
	}
}
