package runs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// contents returns, by table of the application, its rows and a sum of their hashes.
func contents(db *pgtest.DB) map[string]string {
	all := map[string]string{}
	for _, table := range db.Strings(`SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
		AND relkind IN ('r', 'p') AND NOT relispartition`) {
		all[table] = db.Strings(fmt.Sprintf(
			"SELECT concat_ws(' ', count(*), sum(('x' || substr(md5(t::text), 1, 12))::bit(48)::bigint)) FROM %s AS t",
			table))[0]
	}
	return all
}

// What a run of all tasks deleted comes back, but for what its log says cannot be undone.
func TestUndo(t *testing.T) {
	t.Parallel()
	db := database(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = campaigndb.Fill(t.Context(), conn.Conn(), 5_000, 1, time.Now())
	conn.Release()
	if err != nil {
		t.Fatal(err)
	}
	db.Do(`CREATE TABLE trail (log bigint REFERENCES NmsBroadLogRcp (iBroadLogId) ON DELETE CASCADE, id int PRIMARY KEY);
		CREATE TABLE step (trail int REFERENCES trail ON DELETE CASCADE, at timestamptz DEFAULT now(), word text);
		CREATE INDEX ON trail (log); CREATE INDEX ON step (trail);
		INSERT INTO trail SELECT iBroadLogId, row_number() OVER () FROM NmsBroadLogRcp WHERE iBroadLogId <> 0 LIMIT 1000;
		INSERT INTO step SELECT id, now(), md5(i::text) FROM trail, generate_series(1, 3) i`)
	before := contents(db)
	m, work, _ := replica(t, db, "a", nil)
	work()
	hour := time.Hour
	run := start(t, m, runs.Request{Undo: &hour, ContinueOnError: true})
	notUndone := map[string]bool{"xtkjoblog": true, "xtkoption": true} // tasks write to these
	for _, e := range watch(t, m, run.ID) {
		if strings.Contains(e.Message, "cannot be undone") {
			notUndone[strings.ToLower(strings.Split(e.Message, ":")[0])] = true
		}
	}
	run, err = m.Get(t.Context(), run.ID)
	if err != nil || run.State != store.Succeeded {
		t.Fatalf("the run is %s: %s (%v)", run.State, run.Error, err)
	}
	var deleted, trashed int64
	for _, r := range run.Results {
		deleted += r.RowsDeleted + r.RowsCascaded
	}
	trashed = db.Int("SELECT sum(rows_trashed) FROM cleanupd.trash WHERE kind IN ('ROWS', 'PARTITION')")
	if deleted == 0 || trashed > deleted {
		t.Errorf("the run deleted %d rows, and the trash has %d", deleted, trashed)
	}
	for _, name := range db.Strings("SELECT name FROM cleanupd.trash WHERE kind <> 'VIEW'") {
		in, want := db.Int("SELECT count(*) FROM cleanupd_trash."+name),
			db.Int("SELECT rows_trashed FROM cleanupd.trash WHERE name = $1", name)
		if in != want {
			t.Errorf("%s has %d rows, and its entry counts %d", name, in, want)
		}
	}
	back, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range watch(t, m, back.ID) {
		if e.Kind == store.LogLine && strings.Contains(e.Message, "stay") {
			t.Error(e.Message)
		}
	}
	if back, err = m.Get(t.Context(), back.ID); err != nil || back.State != store.Succeeded {
		t.Fatalf("the restore is %s: %s (%v)", back.State, back.Error, err)
	}
	after := contents(db)
	for table, was := range before {
		if after[table] != was && !notUndone[table] {
			t.Errorf("%s has rows and a sum of %s, want %s as before", table, after[table], was)
		}
	}
	if left := db.Int("SELECT count(*) FROM pg_class WHERE relnamespace = 'cleanupd_trash'::regnamespace"); left > 0 {
		t.Errorf("%d relations are left in the trash", left)
	}
}
