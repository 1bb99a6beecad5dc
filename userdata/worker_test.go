package userdata_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
)

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

// A record that lost its latest entries, as in a failover to a standby that lagged, is brought up to date from the
// ledger: its receipt is as exact as without the loss.
func TestRecordThatIsBehind(t *testing.T) {
	mostlyOnPostgres(t, func(t *testing.T, on engine) {
		f := newFormsOn(t, on, 3, 250, false)
		var instances []int64
		for _, row := range f.data.Table("tb_process_instance").Rows {
			instances = append(instances, row[0].(int64))
		}
		stop := f.work()
		_, before := f.erase(userdata.Request{Instances: instances})
		stop()
		f.record.Do(
			`UPDATE cleanupd.erasure SET state = 'RUNNING', end_time = NULL, entries_applied = 1, last_sequence = 100`)
		f.record.Do(
			`DELETE FROM cleanupd.erasure_event WHERE sequence > 100; UPDATE cleanupd.erasure_item
				SET state = 'PENDING' WHERE item_id > 100`,
		)
		f.record.Do(
			`UPDATE cleanupd.erasure_rows SET rows = (SELECT sum((e.body->'Instance'->'Rows'->>relation)::bigint)
				FROM cleanupd.erasure_event e)`,
		)
		f.record.Do(`DELETE FROM cleanupd.erasure_rows WHERE rows IS NULL`)
		f.work()
		_, after := f.watch(before.ID)
		if !before.Succeeded || !after.Succeeded || !slices.Equal(before.Instances, after.Instances) ||
			before.Rows["tb_task"] == 0 {
			t.Fatalf("before %+v, after %+v", before, after)
		}
		if !maps.Equal(before.Rows, after.Rows) {
			t.Errorf("before %v, after %v", before.Rows, after.Rows)
		}
	})
}

// Erasures of another Forms database are left to servers that know it.
func TestErasureOfAnotherDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, on engine) {
		one, other := bareFormsOn(t, on), bareFormsOn(t, on)
		for _, f := range []*fixture{one, other} {
			f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0), (2, 1, 'P0', 0)")
		}
		shared := other.config
		shared.Record = one.config.Record
		both := &fixture{Manager: userdata.New(shared), t: t, db: other.db}
		id, err := one.Start(t.Context(), userdata.Request{Tasks: []int64{1}})
		if err != nil {
			t.Fatal(err)
		}
		both.work()
		if _, receipt := both.erase(userdata.Request{Tasks: []int64{2}}); !receipt.Succeeded ||
			receipt.Rows["tb_task"] != 1 {
			t.Errorf("%+v", receipt)
		}
		if left := other.db.Int("SELECT count(*) FROM tb_task"); left != 1 ||
			one.record.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'RUNNING'") != 1 {
			t.Errorf("%d tasks are left in the other database", left)
		}
		one.work()
		if _, receipt := one.watch(id); !receipt.Succeeded || receipt.Rows["tb_task"] != 1 ||
			one.db.Int("SELECT count(*) FROM tb_task") != 1 {
			t.Errorf("%+v", receipt)
		}
	})
}

// No transaction is idle while a user id is compared with many failed erasures.
func TestManyFailedErasures(t *testing.T) {
	t.Parallel()
	f := bareForms(t, "one", "one.session_wfattach1")
	f.record.Do(
		`WITH e AS (INSERT INTO cleanupd.erasure (id, forms_id, state, requested_by, end_time, user_id_hash, salt)
			SELECT gen_random_uuid(), $1, 'FAILED', 'x', now(), repeat('ab', 32), md5(i::text)
			FROM generate_series(1, 10) i RETURNING id)
		INSERT INTO cleanupd.erasure_session (forms_id, session_id, erasure_id, kind, item_id)
			SELECT $1, '_wftask' || id, id, 'task', 5 FROM e`,
		f.config.Forms.Identity(),
	)
	f.record.Superuser("ALTER DATABASE " + f.record.Name + " SET idle_in_transaction_session_timeout = '200ms'")
	f.record.Reset()
	if _, err := f.Start(t.Context(), userdata.Request{Query: &userdata.Query{UserID: "nobody"}}); err != nil {
		t.Error(err)
	}
}

// The client panics for some process instances, and purges the others.
type panickingServer struct {
	lossyServer
	over string // the last invocation for which it does not panic
}

func (s panickingServer) PurgeProcessInstance(ctx context.Context, invocation string) error {
	if invocation > s.over {
		panic("PLANTED")
	}
	return s.lossyServer.PurgeProcessInstance(ctx, invocation)
}

// An erasure that panics fails, reports it, and is not resumed; the next one is carried out. The log has the stack.
func TestErasureThatPanics(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do(
		"INSERT INTO tb_process_instance VALUES (1, 'a', 2), (2, 'b', 2), (3, 'c', 2); INSERT INTO tb_task VALUES " +
			"(7, 1, 'P0', 0)",
	)
	f.config.Server = panickingServer{lossyServer{f.record}, "a"}
	f.Manager = userdata.New(f.config)
	var log bytes.Buffer
	stop := f.workAnd(slog.New(slog.NewTextHandler(&log, nil)))
	events, receipt := f.erase(userdata.Request{Instances: []int64{1, 2, 3}})
	if receipt.Succeeded || receipt.EndTime == nil || len(receipt.Problems) != 1 ||
		!strings.Contains(receipt.Problems[0], "ended early") ||
		strings.Contains(receipt.Problems[0], "PLANTED") ||
		events[0].Instance == nil {
		t.Errorf("%+v", receipt)
	}
	if states := f.record.Strings("SELECT state FROM cleanupd.erasure_item ORDER BY item_id"); !slices.Equal(
		states, []string{"DONE", "FAILED", "FAILED"},
	) {
		t.Errorf("its items are %v", states)
	}
	if _, receipt := f.erase(userdata.Request{Tasks: []int64{7}}); !receipt.Succeeded || receipt.Rows["tb_task"] != 1 {
		t.Errorf("the next one: %+v", receipt)
	}
	stop()
	if strings.Count(log.String(), "panic=PLANTED") != 1 ||
		!strings.Contains(log.String(), "panickingServer.PurgeProcessInstance") {
		t.Errorf("logged: %s", log.String())
	}
}

// Panics once when a certain statement is sent.
type panicOnce struct {
	on   string // a part of the statement
	done bool
}

func (s *panicOnce) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !s.done && strings.Contains(strings.Join(strings.Fields(data.SQL), " "), s.on) {
		s.done = true
		panic("PLANTED")
	}
	return ctx
}

func (s *panicOnce) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A panic in an erasure's transaction rolls it back; a panic elsewhere does not stop the replica.
func TestPanicsInTransactions(t *testing.T) {
	t.Parallel()
	for on, ok := range map[string]bool{
		"SET end_time":                  false,
		"SELECT pg_try_advisory_lock":   false,
		"SELECT pg_advisory_unlock_all": true,
	} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			f := bareForms(t)
			f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0)")
			config, err := pgxpool.ParseConfig(f.record.URL())
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.Tracer = &panicOnce{on: on}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			id, err := f.Start(t.Context(), userdata.Request{Tasks: []int64{1}})
			if err != nil {
				t.Fatal(err)
			}
			(&fixture{Manager: onPools(t, f.config, pool, f.record.For(campaigndb.Role).Pool), t: t}).work()
			_, receipt := f.watch(id)
			if receipt.Succeeded != ok {
				t.Errorf("%+v", receipt)
			}
		})
	}
}

// While the record belongs to another instance, or everything is on hold, no erasure is requested, and no waiting
// erasure is begun.
func TestErasureThatMayNotBe(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*userdata.Config) *func(context.Context) error{
		"another instance's": func(c *userdata.Config) *func(context.Context) error { return &c.Own },
		"held":               func(c *userdata.Config) *func(context.Context) error { return &c.Held },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mayNotErase(t, refuse)
		})
	}
}

func mayNotErase(t *testing.T, refuse func(*userdata.Config) *func(context.Context) error) {
	f := newForms(t, 1, 3, false)
	waits, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	var may atomic.Bool
	asked := make(chan struct{}, 100)
	*refuse(&f.config) = func(context.Context) error {
		if may.Load() {
			return nil
		}
		asked <- struct{}{}
		return refused
	}
	f.open()
	before := f.db.Int("SELECT count(*) FROM tb_process_instance")
	f.work()
	if _, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}}); !errors.Is(err, refused) {
		t.Errorf("an erasure is requested: %v", err)
	}
	receive(t, asked, 3) // Start asked, and the replica has skipped the erasure when it asks again
	if n := f.db.Int("SELECT count(*) FROM tb_process_instance"); n != before {
		t.Errorf("%d instances are left of %d", n, before)
	}
	may.Store(true)
	if _, receipt := f.watch(waits); !receipt.Succeeded {
		t.Errorf("%+v", receipt)
	}
}

// A hold of everything that is created during an erasure or a sweep waits for the running transaction. Nothing more is
// deleted until the hold is released, and the rest afterwards.
func TestHoldOfEverything(t *testing.T) { mostlyOnPostgres(t, testHoldOfEverything) }

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
