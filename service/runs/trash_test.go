package runs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

const dueSQL = "UPDATE cleanupd.trash SET expire_time = now() - interval '1 day'"

// trashed returns a run that deleted n sessions with undo.
func trashed(t *testing.T, m *runs.Manager, db *pgtest.DB, n int) *store.Run {
	t.Helper()
	sessions(db, n)
	hour := time.Hour
	run := ended(t, m, runs.Request{Tasks: []string{"sessions"}, Undo: &hour})
	if got := db.Int("SELECT sum(rows_trashed) FROM cleanupd.trash"); run.State != store.Succeeded || got != int64(n) {
		t.Fatalf("%d rows are in the trash, want %d; the run is %s: %s", got, n, run.State, run.Error)
	}
	return run
}

// What a run restores neither expires nor can be purged meanwhile, nor can another run restore it. A restore that is
// cancelled leaves the rest in the trash, also when the history has forgotten its runs, and the next one brings it
// back.
func TestTrashDuringARestore(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	run := trashed(t, m, db, 40)
	db.Do(`CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; END';
		CREATE TRIGGER wait BEFORE INSERT ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait()`)
	restore := func() *store.Run {
		t.Helper()
		back, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID})
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	back := restore()
	db.Until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
	db.Do(dueSQL)
	if err := runs.ExpireTrash(m, t.Context()); err != nil {
		t.Error(err)
	}
	active := (*store.ActiveError)(nil)
	if _, err := m.PurgeTrash(t.Context(), run.ID, "", 0, nil); !errors.As(err, &active) || active.RunID != back.ID {
		t.Errorf("what a run restores is purged: %v, want an error with the run", err)
	}
	if _, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID}); !errors.As(err, &active) {
		t.Errorf("a second restore starts: %v", err)
	}
	if _, err := m.Cancel(t.Context(), back.ID); err != nil {
		t.Fatal(err)
	}
	db.Do("INSERT INTO released DEFAULT VALUES")
	events := watch(t, m, back.ID)
	if last := events[len(events)-1].Run; last.State != store.Cancelled {
		t.Errorf("the restore is %s: %s", last.State, last.Error)
	}
	left := db.Int("SELECT count(*) FROM XtkSessionInfo")
	if in := db.Int("SELECT sum(rows_trashed - rows_restored) FROM cleanupd.trash WHERE end_time IS NULL"); in+left != 40 {
		t.Errorf("%d rows are in their table, and %d in the trash", left, in)
	}
	db.Do("UPDATE cleanupd.trash SET expire_time = now() + interval '1 hour'; DELETE FROM cleanupd.run")
	events = watch(t, m, restore().ID)
	last, left := events[len(events)-1].Run, db.Int("SELECT count(*) FROM XtkSessionInfo")
	if last.State != store.Succeeded || left != 40 {
		t.Errorf("the second restore is %s: %s; the table has %d rows, want 40", last.State, last.Error, left)
	}
}

// Trash that is due expires, but not on a copy of the database, nor while a hold may be about its rows, under whatever
// name.
func TestTrashExpires(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	run := trashed(t, m, db, 5)
	db.Do(`CREATE TABLE now_named (); CREATE TABLE log (id int) PARTITION BY RANGE (id); CREATE TABLE "a""b.c" ();
		CREATE TABLE "b.c" (); CREATE TABLE unrelated ();
		INSERT INTO cleanupd.trash (run_id, task, kind, root, columns, relation, keep, rows_trashed, expire_time)
		SELECT gen_random_uuid(), 'a', kind, root, '[]', relation::json, '1 hour', 7, now() - interval '1 day' FROM (VALUES
			('ROWS', '"public"."named_before"', NULL), ('PARTITION', '"public"."log_1"', '{"parent": "public.log"}'),
			('ROWS', '"public"."a""b.c"', NULL)) AS v (kind, root, relation)`)
	const expired = "SELECT COALESCE(sum(rows_expired), 0)::bigint FROM cleanupd.trash " +
		"WHERE root = $1 AND end_time IS NOT NULL"
	expire := func() {
		t.Helper()
		if err := runs.ExpireTrash(m, t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for table, root := range map[string]string{
		"now_named": `"public"."named_before"`, "log": `"public"."log_1"`, `a"b.c`: `"public"."a""b.c"`,
	} {
		hold, err := m.CreateHold(t.Context(), store.Hold{Kind: store.HoldTable, Table: table, Reason: "a test"})
		if err != nil {
			t.Fatal(table, err)
		}
		expire()
		if rows := db.Int(expired, root); rows != 0 {
			t.Errorf("%d rows of %s expired despite a hold of %s", rows, root, table)
		}
		if refused := (*failure.Refusal)(nil); table != "now_named" {
			_, err := m.PurgeTrash(t.Context(), "", table, 0, nil)
			if !errors.As(err, &refused) {
				t.Errorf("%s is purged despite a hold: %v", table, err)
			}
		}
		db.Do("UPDATE cleanupd.trash SET end_time = NULL, rows_expired = 0") // of the others
		if _, err := m.ReleaseHold(t.Context(), hold.ID, "me"); err != nil {
			t.Fatal(err)
		}
	}
	const sessionsTable = `"public"."xtksessioninfo"`
	db.Do(dueSQL)
	db.Do("UPDATE cleanupd.instance SET system_identifier = '1' || system_identifier")
	expire()
	if rows := db.Int(expired, sessionsTable); rows != 0 {
		t.Errorf("%d rows expired on a copy of the database", rows)
	}
	if _, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID}); !isForeign(err) {
		t.Errorf("a copy is restored into: %v", err)
	}
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	expire()
	if rows := db.Int(expired, sessionsTable); rows != 5 {
		t.Errorf("%d rows expired, want 5", rows)
	}
	if left := db.Int("SELECT count(*) FROM pg_class WHERE relnamespace = 'cleanupd_trash'::regnamespace"); left > 0 {
		t.Errorf("%d relations are left in the trash", left)
	}
}

// A hold of rows keeps the trash of the tables that may have such rows, or rows that belong to these, and no other.
func TestHoldsKeepTrash(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	db.Do(`CREATE TABLE shop_order (id int PRIMARY KEY, customer int, at timestamptz);
		CREATE TABLE shop_item (id int PRIMARY KEY, order_id int REFERENCES shop_order ON DELETE CASCADE, at timestamptz);
		CREATE TABLE shop_event (id int, at timestamptz) PARTITION BY RANGE (id);
		CREATE TABLE shop_event_1 PARTITION OF shop_event FOR VALUES FROM (0) TO (10)`)
	for _, table := range []string{"shop_order", "shop_item", "shop_event"} {
		name := strings.ReplaceAll(table, "_", "-")
		p := policy.Policy{
			Name: name, Table: table, Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		}
		if _, err := m.SetPolicy(t.Context(), runs.PolicyChange{
			Name: name, Make: func(*policy.Policy) (policy.Policy, error) { return p, nil },
		}); err != nil {
			t.Fatal(err)
		}
	}
	const all = "nmsbroadlogrcp shop_event shop_item shop_order xtksessioninfo"
	for _, test := range []struct {
		hold store.Hold
		kept string
	}{
		{store.Hold{Kind: store.HoldRecipients, IDs: []int64{17}}, "nmsbroadlogrcp"},
		{store.Hold{Kind: store.HoldDeliveries, IDs: []int64{17}}, "nmsbroadlogrcp"},
		{store.Hold{Kind: store.HoldRows, Rows: &rules.HeldRows{
			Table: "shop_order", Columns: []rules.HeldColumn{{Column: "customer", Value: "17"}},
		}}, "shop_item shop_order"},
		{store.Hold{Kind: store.HoldTable, Table: "shop_event_1"}, "shop_event"},
		{store.Hold{Kind: store.HoldEverything}, all},
	} {
		test.hold.Reason = "a test"
		hold, err := m.CreateHold(t.Context(), test.hold)
		if err != nil {
			t.Fatal(test.hold.Kind, err)
		}
		db.Do("DELETE FROM cleanupd.trash")
		db.Do(`INSERT INTO cleanupd.trash
			(run_id, task, kind, root, columns, keep, rows_trashed, expire_time)
			SELECT gen_random_uuid(), 'a', 'ROWS', '"public"."' || root || '"', '[]', '1 hour', 7, now() - interval '1 day'
			FROM unnest(string_to_array($1, ' ')) AS root`, all)
		if err := runs.ExpireTrash(m, t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := db.Strings(`SELECT COALESCE(string_agg(split_part(root, '"', 4), ' ' ORDER BY root), '')
			FROM cleanupd.trash WHERE end_time IS NULL`)[0]
		if kept != test.kept {
			t.Errorf("with a hold of %s, %q stay in the trash, want %q", test.hold.Kind, kept, test.kept)
		}
		if _, err := m.ReleaseHold(t.Context(), hold.ID, "me"); err != nil {
			t.Fatal(err)
		}
	}
}

// Where all tables are published, nothing goes to the trash, and nothing comes back: both fail with what helps.
func TestPublishedTrash(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	first := trashed(t, m, db, 3)
	db.Superuser("CREATE PUBLICATION everything FOR ALL TABLES")
	db.Do("ALTER TABLE XtkSessionInfo REPLICA IDENTITY FULL")
	sessions(db, 3)
	hour := time.Hour
	back, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: first.ID})
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, m, back.ID)
	for _, run := range []*store.Run{
		events[len(events)-1].Run, ended(t, m, runs.Request{Tasks: []string{"sessions"}, Undo: &hour}),
	} {
		if run.State != store.Failed || !strings.Contains(run.Error, "everything") {
			t.Errorf("the run is %s: %s; want it to fail with the publication's name", run.State, run.Error)
		}
	}
	if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 3 {
		t.Errorf("the table has %d rows, want 3", n)
	}
	_, err = m.PurgeTrash(t.Context(), first.ID, "xtksessioninfo", 0, map[string]string{"skey": "1"})
	if err == nil || !strings.Contains(err.Error(), "everything") {
		t.Errorf("purging one row: %v, want an error with the publication's name", err)
	}
}

// A run deletes nothing while the trash is full, and does when some of it is purged.
func TestTrashThatIsFull(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", nil)
	work()
	first := trashed(t, m, db, 2000)
	stop()
	m, work, _ = replica(t, db, "b", func(c *runs.Config) { c.UndoMaxBytes = 64 << 10 })
	work()
	sessions(db, 10)
	hour := time.Hour
	again := runs.Request{Tasks: []string{"sessions"}, Undo: &hour}
	run := ended(t, m, again)
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left != 10 || run.Cause != failure.ReasonTrashFull {
		t.Errorf("%d rows are left, want 10; the run is %s, %s: %s", left, run.State, run.Cause, run.Error)
	}
	if purged, err := m.PurgeTrash(t.Context(), first.ID, "", 0, nil); err != nil || purged.Rows != 2000 {
		t.Errorf("%+v is purged, %v; want 2000 rows", purged, err)
	}
	if run = ended(t, m, again); run.State != store.Succeeded || db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
		t.Errorf("the run is %s: %s", run.State, run.Error)
	}
}

// Rows come back into a schema of this role only: another one's owner could have made a table for them.
func TestSchemaOfAnotherRole(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	run := trashed(t, m, db, 3)
	other := db.Role("trash_other")
	db.Superuser(fmt.Sprintf("CREATE SCHEMA restored AUTHORIZATION %s; GRANT ALL ON SCHEMA restored TO PUBLIC", other))
	db.For(other).Do("CREATE TABLE restored.xtksessioninfo (skey text, suserinfo text, tsexpiration timestamptz); " +
		"GRANT ALL ON restored.xtksessioninfo TO PUBLIC")
	_, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID, Into: "restored"})
	if err == nil || !strings.Contains(err.Error(), "belongs to another role") {
		t.Errorf("the restore began: %v", err)
	}
	back, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID, Into: "of_ours"})
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, m, back.ID)
	if r := events[len(events)-1].Run; r.State != store.Succeeded || r.Results[0].RowsRestored != 3 {
		t.Errorf("the restore is %s: %s, with %d rows, want 3", r.State, r.Error, r.Results[0].RowsRestored)
	}
}

// A restore that brings nothing back because the table refuses all rows fails, with the reason. One that finds all keys
// in use again succeeds.
func TestRestoreOfNothing(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	for _, c := range []struct {
		name, change, undo string
		state              store.State
		why                string
	}{
		{
			"refused", "ALTER TABLE XtkSessionInfo ADD CONSTRAINT no CHECK (false)",
			"ALTER TABLE XtkSessionInfo DROP CONSTRAINT no", store.Failed, "nothing came back: new row for",
		},
		{
			"a part refused", "ALTER TABLE XtkSessionInfo ADD CONSTRAINT few CHECK (sKey IN ('1', '2'))",
			"ALTER TABLE XtkSessionInfo DROP CONSTRAINT few", store.Succeeded, "",
		},
		{
			"all in use",
			"INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() + '1 day' FROM generate_series(1, 3) i",
			"", store.Succeeded, "",
		},
		{"renamed", "ALTER TABLE XtkSessionInfo RENAME TO other", "", store.Failed, "no longer exists"},
	} {
		run := trashed(t, m, db, 3)
		db.Do(c.change)
		back, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID})
		if err != nil {
			t.Fatal(c.name, err)
		}
		events := watch(t, m, back.ID)
		if r := events[len(events)-1].Run; r.State != c.state || !strings.Contains(r.Error, c.why) {
			t.Errorf("%s: the restore is %s: %s; want %s: %s", c.name, r.State, r.Error, c.state, c.why)
		}
		if c.name != "renamed" { // so that the next run begins with the same table and an empty trash
			db.Do(c.undo + "; TRUNCATE XtkSessionInfo")
			if _, err := m.PurgeTrash(t.Context(), run.ID, "", 0, nil); err != nil {
				t.Fatal(c.name, err)
			}
			db.Do("DELETE FROM cleanupd.trash")
		}
	}
}

// A key that is not in the trash starts no restore. If the trash is too large to tell, the run says so.
func TestRestoreOfUnknownKeys(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	run := trashed(t, m, db, 5)
	req := runs.RestoreRequest{Run: run.ID, Keys: []string{"2", "7", "9"}}
	const want = `the trash of the run has no row of "public"."xtksessioninfo" with the key 7, or 9`
	if _, err := m.StartRestore(t.Context(), req); err == nil || err.Error() != want {
		t.Errorf("the restore began: %v, want %s", err, want)
	}
	db.Do(`CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN NEW.restore = jsonb_set(NEW.restore, '{keys}', '["2", "7", "9"]'); RETURN NEW; END $$;
		CREATE TRIGGER other BEFORE INSERT ON cleanupd.run FOR EACH ROW EXECUTE FUNCTION other()`)
	req.Keys = req.Keys[:1]
	back, err := m.StartRestore(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, m, back.ID)
	if got := events[len(events)-1].Run; got.State != store.Failed || !strings.Contains(got.Error, want) {
		t.Errorf("the restore is %s: %s, want that it failed: %s", got.State, got.Error, want)
	}
	if back := db.Int("SELECT count(*) FROM XtkSessionInfo"); back != 0 {
		t.Errorf("%d rows came back, want none", back)
	}
}
