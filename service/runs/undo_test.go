package runs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/policy"
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

// The trash keeps rows for as long as the run's request says, or else the task's policy, the schedule, or the service.
func TestHowLongTheTrashKeeps(t *testing.T) {
	t.Parallel()
	hours := func(n time.Duration) *time.Duration { return new(n * time.Hour) }
	for name, c := range map[string]struct {
		run, policy, scheduled *time.Duration
		isScheduled            bool
		service                time.Duration
		want                   string // how long the trash keeps the rows of the policy, and of the task sessions
	}{
		"nobody":                {want: ""},
		"the service":           {service: time.Hour, want: "01:00:00 01:00:00"},
		"the policy":            {policy: hours(2), want: "02:00:00 -"},
		"the policy first":      {service: time.Hour, policy: hours(2), want: "02:00:00 01:00:00"},
		"the policy never":      {service: time.Hour, policy: hours(0), want: "- 01:00:00"},
		"the run first":         {service: time.Hour, policy: hours(2), run: hours(3), want: "03:00:00 03:00:00"},
		"the run never":         {service: time.Hour, policy: hours(2), run: hours(0), want: ""},
		"the schedule":          {isScheduled: true, scheduled: hours(4), policy: hours(2), want: "02:00:00 04:00:00"},
		"the schedule never":    {isScheduled: true, scheduled: hours(0), service: time.Hour, want: ""},
		"the schedule, unsaid":  {isScheduled: true, service: time.Hour, want: "01:00:00 01:00:00"},
		"schedule and a policy": {isScheduled: true, scheduled: hours(0), policy: hours(2), want: "02:00:00 -"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "the policy first", "the run never", "schedule and a policy")
			t.Parallel()
			db := database(t)
			sessions(db, 5)
			db.Do(cleanedByHand + "; CREATE TABLE event (at timestamptz); INSERT INTO event VALUES ('2001-01-01')")
			m, work, _ := replica(t, db, "a", func(r *runs.Config) { r.Undo, r.KeepSchedule = c.service, c.isScheduled })
			p := policy.Policy{
				Name: "p", Table: "event", Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}, Undo: c.policy,
			}
			_, err := m.SetPolicy(t.Context(), runs.PolicyChange{
				Name: "p", Make: func(*policy.Policy) (policy.Policy, error) { return p, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			stored, err := m.Policy(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			db.Do("UPDATE cleanupd.policy SET proven_basis = $1", stored.Basis())
			work()
			if c.isScheduled {
				setSchedule(t, m, schedule.Schedule{Enabled: true, ContinueOnError: true, Undo: c.scheduled})
				db.Do(due)
			} else {
				start(t, m, runs.Request{Tasks: []string{"sessions", "policy/p"}, Undo: c.run})
			}
			db.Until(allEnded)
			kept := func(task string) string {
				return db.Strings("SELECT COALESCE(string_agg(keep::text, ' '), '-') FROM cleanupd.trash WHERE task = $1", task)[0]
			}
			got := strings.TrimSpace(strings.ReplaceAll(kept("policy/p")+" "+kept("sessions"), "- -", ""))
			if got != c.want {
				t.Errorf("the trash keeps the policy's rows and those of sessions for %q, want %q", got, c.want)
			}
		})
	}
}

// Everything that a run of all tasks deleted comes back, except what its log says cannot be undone.
func TestUndo(t *testing.T) {
	t.Parallel()
	db := database(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = campaigndb.Fill(t.Context(), conn.Conn(), suite.Size(suite.Long, 1_000, 5_000), 1, time.Now())
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
	if r := run.Result("lists-to-delete"); r.RowsDeleted == 0 || r.RowsSuppressed > 0 {
		t.Errorf("%d lists were deleted, and %d suppressed", r.RowsDeleted, r.RowsSuppressed)
	}
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

// A run that follows a plan keeps deleted rows in the trash if the plan was made with undo. If it is refused because
// the trash is too small, the plan stays valid, so that it can run without undo.
func TestUndoOfAPlan(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 100) i")
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.UndoMaxBytes = 1 })
	work()
	ended := func(req runs.Request) *store.Run {
		t.Helper()
		id := start(t, m, req).ID
		watch(t, m, id)
		run, err := m.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	hour, none := time.Hour, time.Duration(0)
	dry := ended(runs.Request{DryRun: true, Undo: &hour, Tasks: []string{"sessions"}})
	if r := dry.Result("sessions"); dry.Undo != hour || len(r.Preview) != 1 || r.Preview[0].TrashBytes == 0 ||
		!strings.Contains(r.Detail, "a run with undo would be refused") {
		t.Fatalf("the dry run has undo %s, the preview %+v and says %q", dry.Undo, r.Preview, r.Detail)
	}
	refused := ended(runs.Request{Plan: dry.ID})
	if refused.Undo != hour || refused.Cause != store.CauseTrashFull {
		t.Errorf("the run of the plan has undo %s and the cause %q (%s), want that the trash is too small", refused.Undo,
			refused.Cause, refused.Error)
	}
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left != 100 {
		t.Fatalf("%d rows are left, want all", left)
	}
	done := ended(runs.Request{Plan: dry.ID, Undo: &none})
	if done.State != store.Succeeded || db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
		t.Errorf("the run without undo is %s: %s", done.State, done.Error)
	}
}

// A row does not come back if another row has got the key of its parent since.
func TestUndoOfAReusedKey(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	work()
	db.Do(cleanedByHand + `; CREATE TABLE visit (id int PRIMARY KEY, at timestamptz, patient int);
		CREATE TABLE finding (visit int REFERENCES visit ON DELETE CASCADE, word text);
		INSERT INTO visit SELECT i, '2001-01-01', i FROM generate_series(1, 3) i;
		INSERT INTO finding SELECT 1 + i % 3, 'word ' || i FROM generate_series(1, 6) i`)
	p := policy.Policy{
		Name: "p", Table: "visit", Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
		Undo: new(time.Hour),
	}
	if _, err := m.SetPolicy(t.Context(), runs.PolicyChange{
		Name: "p", Make: func(*policy.Policy) (policy.Policy, error) { return p, nil },
	}); err != nil {
		t.Fatal(err)
	}
	stored, err := m.Policy(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	db.Do("UPDATE cleanupd.policy SET proven_basis = $1", stored.Basis())
	run := ended(t, m, runs.Request{Tasks: []string{"policy/p"}})
	if left := db.Int("SELECT count(*) FROM finding"); run.State != store.Succeeded || left != 0 {
		t.Fatalf("%d findings are left; the run is %s: %s", left, run.State, run.Error)
	}
	db.Do("INSERT INTO visit VALUES (2, now(), 77)")
	restored := func(req runs.RestoreRequest) store.Result {
		t.Helper()
		req.Run = run.ID
		back, err := m.StartRestore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		events := watch(t, m, back.ID)
		return events[len(events)-1].Run.Results[0]
	}
	const first = `it refers to a row of "public"."visit" that is still in the trash: restore that first`
	r := restored(runs.RestoreRequest{Tables: []string{"finding"}})
	if of := db.Int("SELECT count(*) FROM finding"); of != 0 || r.RowsFailed != 6 || !strings.Contains(r.Detail, first) {
		t.Errorf("without their visits, %d findings came back; %+v", of, r)
	}
	r = restored(runs.RestoreRequest{})
	if of := db.Int("SELECT count(*) FROM finding WHERE visit = 2"); of != 0 || r.RowsRestored != 6 ||
		r.RowsExisting != 1 || r.RowsFailed != 2 {
		t.Errorf("%d findings belong to another visit; %+v", of, r)
	}
	if in := db.Int("SELECT sum(rows_trashed - rows_restored) FROM cleanupd.trash WHERE end_time IS NULL"); in != 3 {
		t.Errorf("%d rows are in the trash, want 3", in)
	}
	// Nor do the findings stay behind if the visit is deleted for good.
	purge := func() (runs.Purged, error) {
		return m.PurgeTrash(t.Context(), "", "visit", 0, map[string]string{"id": "2"})
	}
	hold, err := m.CreateHold(t.Context(), store.Hold{Kind: "TABLE", Table: "finding", Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	if purged, err := purge(); err == nil || purged.Rows > 0 {
		t.Errorf("%+v was purged, although findings are on hold", purged)
	}
	if _, err := m.ReleaseHold(t.Context(), hold.ID, "a test"); err != nil {
		t.Fatal(err)
	}
	purged, err := purge()
	slices.Sort(purged.Tables)
	if err != nil || purged.Rows != 3 || !slices.Equal(purged.Tables, []string{`"public"."finding"`, `"public"."visit"`}) {
		t.Errorf("%+v was purged, want a visit and its two findings: %v", purged, err)
	}
}

// A role can list the rights for undo before it has any of them, also if keys form a circle. Undo refuses such a policy
// anyway, so that the right to lock rows would not help.
func TestRightsForUndoOfACircle(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, _, _ := replica(t, db, "a", nil)
	owner := db.Role("clinic")
	db.Superuser(`CREATE SCHEMA lab; CREATE TABLE lab.sample (id int PRIMARY KEY, at timestamptz);
		CREATE TABLE lab.message (id int PRIMARY KEY, at timestamptz, reply_to int REFERENCES lab.message ON DELETE CASCADE,
			sample int REFERENCES lab.sample ON DELETE CASCADE);
		ALTER TABLE lab.message OWNER TO ` + owner + "; ALTER TABLE lab.sample OWNER TO " + owner)
	for table, want := range map[string]string{"sample": owner, "message": `"lab"."message"`} {
		grants, err := m.PolicyGrants(t.Context(), policy.Policy{
			Name: "p", Table: "lab." + table, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}, Undo: new(time.Hour),
		})
		if got := strings.Join(grants, "\n"); err != nil || !strings.Contains(got, want) ||
			!strings.Contains(got, `GRANT USAGE ON SCHEMA "lab"`) || strings.Contains(got, "UPDATE") {
			t.Errorf("the rights for %s are %s: %v", table, got, err)
		}
	}
}

// A policy without its own undo needs the rights for the undo of the service.
func TestRightsForUndoOfTheService(t *testing.T) {
	t.Parallel()
	for undo, want := range map[time.Duration][]string{
		0:         {"GRANT SELECT, DELETE ON", "GRANT SELECT ON"},
		time.Hour: {"GRANT SELECT, DELETE ON", "GRANT SELECT, UPDATE ON"},
	} {
		db := database(t)
		m, _, _ := replica(t, db, "a", func(c *runs.Config) { c.Undo = undo })
		db.Superuser(`CREATE TABLE shop_order (id int PRIMARY KEY, at timestamptz);
			CREATE TABLE shop_item (order_id int REFERENCES shop_order ON DELETE CASCADE);
			GRANT SELECT, DELETE ON shop_order TO neolane; GRANT SELECT ON shop_item TO neolane`)
		p := policy.Policy{Name: "p", Table: "shop_order", OlderThan: &policy.OlderThan{Column: "at", Days: new(30)}}
		grants, err := m.PolicyGrants(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for i, table := range []string{"shop_order", "shop_item"} {
			if grant := want[i] + ` "public"."` + table + `" TO "neolane"`; !slices.Contains(grants, grant) {
				t.Errorf("undo %v: %s is not in %q", undo, grant, grants)
			}
		}
		p.Unreferenced = true // no item goes with the orders
		grants, err = m.PolicyGrants(t.Context(), p)
		if err != nil || !slices.Contains(grants, `GRANT SELECT ON "public"."shop_item" TO "neolane"`) {
			t.Errorf("undo %v: the rights for unreferenced rows are %q: %v", undo, grants, err)
		}
		p.Unreferenced = false
		_, err = m.SetPolicy(t.Context(), runs.PolicyChange{
			Name: "p", Make: func(*policy.Policy) (policy.Policy, error) { return p, nil },
		})
		const grant = `execute: GRANT UPDATE ON "public"."shop_item"`
		if refused := err != nil && strings.Contains(err.Error(), grant); (undo > 0) != refused ||
			(undo == 0 && err != nil) {
			t.Errorf("undo %v: %v", undo, err)
		}
	}
}
