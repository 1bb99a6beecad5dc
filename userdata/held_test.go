package userdata_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/userdata"
)

// A hold of everything that is created during an erasure or a sweep waits for the running transaction. Nothing more is
// deleted until the hold is released, and the rest afterwards.
func TestHoldOfEverything(t *testing.T) { onBoth(t, testHoldOfEverything) }

func testHoldOfEverything(t *testing.T, on engine) {
	var instances, tasks []int64
	for id := range int64(250) {
		instances, tasks = append(instances, id+1), append(tasks, id+1001)
	}
	for name, c := range map[string]struct {
		request userdata.Request
		blocked string // a query whose lock blocks the work; empty for the advisory lock 1 of the record
		left    string // counts the rows left to delete; empty to count files
	}{
		"process instances": {
			userdata.Request{Instances: instances},
			"SELECT id FROM tb_process_instance WHERE id = 150 FOR UPDATE",
			"SELECT count(*) FROM tb_process_instance",
		},
		"orphan tasks": {
			userdata.Request{Tasks: tasks},
			"SELECT id FROM tb_task WHERE id = 1150 FOR UPDATE",
			"SELECT count(*) FROM tb_task",
		},
		"sweep": {
			userdata.Request{Sweep: true},
			"SELECT documentid FROM tb_dm_chunk WHERE documentid = 'dead150' FOR UPDATE",
			"SELECT count(*) FROM tb_dm_chunk",
		},
		"documents in a folder": {userdata.Request{Tasks: tasks}, "", ""},
		"sweep of a folder":     {userdata.Request{Sweep: true}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := heldForms(t, on, c.left == "")
			left := func() int64 { return int64(len(f.files())) }
			var release func()
			if c.request.Sweep {
				f.db.Do("UPDATE tb_task SET id = id + 1000")
				stop := f.work()
				f.sweepFirst(c.request)
				stop()
			}
			if c.left == "" {
				lock := f.record.Hold("SELECT pg_advisory_xact_lock(1)")
				release = func() { _ = lock.Rollback(context.Background()) }
			} else {
				left = func() int64 { return f.db.Int(c.left) }
				release = f.hold(c.blocked)
			}
			holdEverything(t, f, c.request, left, release)
		})
	}
}

// 250 process instances, and 250 orphan tasks with documents. Files are deleted only while no other session has the
// advisory lock 1 of the record.
func heldForms(t *testing.T, on engine, inFiles bool) *fixture {
	t.Helper()
	var files []string
	for i := range 250 {
		if inFiles {
			files = append(files, fmt.Sprintf("doc%d", i), fmt.Sprintf("doc%d.session_wfattach%d", i, i+1001))
		}
	}
	f := bareFormsOn(t, on, files...)
	f.clear("tb_dm_chunk", "tb_dm_session_reference")
	n := f.numbers(250)
	f.db.Do("INSERT INTO tb_process_instance SELECT i, 'i', 2 FROM " + n)
	f.db.Do("INSERT INTO tb_task SELECT i + 1000, 1, 'P0', 0 FROM " + n)
	f.db.Do("INSERT INTO tb_dm_chunk SELECT CONCAT('dead', i), 0, 'x' FROM " + n)
	f.db.Do("INSERT INTO tb_dm_session_reference SELECT CONCAT('dead', i), CONCAT('_wfattach', i) FROM " + n)
	f.record.Do(
		`CREATE FUNCTION wait() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END';
		CREATE TRIGGER wait BEFORE INSERT ON cleanupd.erasure_file FOR EACH ROW EXECUTE FUNCTION wait()`,
	)
	if !inFiles {
		f.config.Folder, f.config.InDatabase = "", true
		f.open()
	}
	return f
}

func holdEverything(t *testing.T, f *fixture, request userdata.Request, left func() int64, release func()) {
	t.Helper()
	held := errors.New("everything is on hold")
	var isHeld atomic.Bool
	asked := make(chan struct{}, 1000)
	f.config.Held = func(context.Context) error {
		if !isHeld.Load() {
			return nil
		}
		asked <- struct{}{}
		return held
	}
	f.open()
	id, err := f.Start(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	f.work()
	waiting, in := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND wait_event_type = 'Lock'`, database(f.record)
	if f.on == onMySQL && f.config.InDatabase {
		waiting, in = "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist ON "+
			"processlist.id = trx_mysql_thread_id WHERE db = DATABASE() AND trx_state = 'LOCK WAIT'", f.db
	}
	// InnoDB caches its transactions for 100 ms
	for end := time.Now().Add(time.Minute); in.Int(waiting) == 0; time.Sleep(150 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the work does not wait")
		}
	}
	isHeld.Store(true)
	conn, err := f.record.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	released := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { release(); close(released) })
	if _, err := conn.Exec(
		t.Context(), fmt.Sprintf("SELECT pg_advisory_lock(%[1]d), pg_advisory_unlock(%[1]d)", advisory.Erasing),
	); err != nil {
		t.Fatal(err)
	}
	<-released
	before := left()
	receive(t, asked, 3)
	if now := left(); now != before || now == 0 {
		t.Errorf("%d are left of %d when the hold was in force", now, before)
	}
	isHeld.Store(false)
	events, receipt := f.watch(id)
	if !receipt.Succeeded || left() != 0 || !slices.ContainsFunc(events, func(e userdata.Event) bool {
		return e.Log != nil && e.Log.Message == held.Error()+"; the erasure will then be resumed"
	}) {
		t.Errorf("%d are left: %+v", left(), receipt)
	}
}
