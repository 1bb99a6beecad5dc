package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func database(t *testing.T) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "notify", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, campaigndb.Schema)
		return errors.Join(err, store.Migrate(ctx, conn))
	})
}

type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []Event
	status int // of the responses
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var e Event
		body, err := io.ReadAll(req.Body)
		if err := errors.Join(err, json.Unmarshal(body, &e)); err != nil {
			t.Errorf("%v %s", err, body)
		}
		r.events = append(r.events, e)
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) respond(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// take returns the ids of the events that were received since it was last called.
func (r *receiver) take() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		ids = append(ids, e.ID)
	}
	r.events = nil
	return ids
}

type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(_, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[outcome]++
}

// A Notifier whose clock stands still, with its log and counts.
type fixture struct {
	*Notifier
	t      *testing.T
	clock  time.Time
	log    *bytes.Buffer
	counts *counts
}

func newFixture(t *testing.T, db *pgtest.DB, addresses ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: time.Now(), log: &bytes.Buffer{}, counts: &counts{}}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	f.Notifier = &Notifier{
		Config: Config{Bounds: DefaultBounds},
		Pool:   db.Pool,
		Owner:  store.NewOwner("", log),
		Count:  f.counts.add,
		Log:    log,
		Clock:  func(context.Context) (time.Time, error) { return f.clock, nil },
	}
	for _, address := range addresses {
		f.Targets = append(f.Targets, target(t, address, Options{}))
	}
	return f
}

// step stores the notifications that are due, and makes one attempt for each target.
func (f *fixture) step() {
	f.t.Helper()
	if err := f.Collect(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	for _, target := range f.Targets {
		if err := f.Deliver(f.t.Context(), target); err != nil {
			f.t.Fatal(err)
		}
	}
}

// insertRun stores a run that has ended, with its tasks in these states. Runs are stored in the order of their
// creation.
func insertRun(t *testing.T, db *pgtest.DB, state store.State, tasks ...string) string {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	db.Do(
		`INSERT INTO cleanupd.run (id, slot, state, dry_run, continue_on_error, requested_by, end_time)
			VALUES ($1::text::uuid, 0, $2, false, true, 'ann', clock_timestamp())`, id.String(), string(state),
	)
	for i, task := range tasks {
		name, taskState, _ := strings.Cut(task, " ")
		db.Do(
			`INSERT INTO cleanupd.task (run_id, position, name, kind, chosen, state)
				VALUES ($1::text::uuid, $2::int, $3, 'BUILT_IN', $4 <> '', COALESCE(NULLIF($4, ''), 'SKIPPED'))`,
			id.String(), i+1, name, taskState,
		)
	}
	return id.String()
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A receiver that fails gets the same event again, after longer and longer pauses, until it accepts the event.
func TestRetries(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL+"/PLANTED")
	id := insertRun(t, db, store.Failed, "sessions FAILED") + "/run.failed"
	r.respond(http.StatusInternalServerError)
	f.step()
	expect(t, "the first attempt", r.take(), id)
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		f.clock = f.clock.Add(pause - time.Second)
		f.step()
		expect(t, "before the pause ends", r.take())
		f.clock = f.clock.Add(time.Second)
		f.step()
		expect(t, "after the pause", r.take(), id)
	}
	if n := db.Int("SELECT attempts FROM cleanupd.notification WHERE error LIKE '%500 Internal Server Error'"); n != 4 {
		t.Errorf("%d attempts are stored", n)
	}
	r.respond(http.StatusNoContent)
	f.clock = f.clock.Add(80 * time.Second)
	f.step()
	expect(t, "once it works", r.take(), id)
	f.clock = f.clock.Add(23 * time.Hour)
	f.step()
	expect(t, "after it was accepted", r.take())
	if n := db.Int("SELECT count(*) FROM cleanupd.notification WHERE state = 'SENT' AND error = ''"); n != 1 {
		t.Errorf("%d are sent", n)
	}
	if f.counts.n["sent"] != 1 || f.counts.n["failed"] != 4 || f.counts.n["given_up"] != 0 {
		t.Errorf("got %v", f.counts.n)
	}
	if strings.Contains(f.log.String(), "PLANTED") || !strings.Contains(f.log.String(), "attempt=4") {
		t.Errorf("the log has %s", f.log)
	}
}

// After a day a notification is given up, with an error in the log.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	r.respond(http.StatusInternalServerError)
	id := insertRun(t, db, store.Failed, "sessions FAILED")
	begin := f.clock
	for f.clock.Sub(begin) < 23*time.Hour+50*time.Minute {
		f.step()
		f.clock = f.clock.Add(10 * time.Minute)
	}
	if n := len(r.take()); n < 40 || f.counts.n["given_up"] != 0 {
		t.Errorf("%d attempts within a day; %v", n, f.counts.n)
	}
	f.clock = begin.Add(24*time.Hour + 30*time.Minute)
	f.step()
	if f.counts.n["given_up"] != 1 {
		t.Errorf("after a day: got %v", f.counts.n)
	}
	r.take()
	f.clock = f.clock.Add(24 * time.Hour)
	f.step()
	expect(t, "after it was given up", r.take())
	if line := "level=ERROR msg=\"a notification was given up\" target=\"" + f.Targets[0].Name + "\" subject=" + id +
		" cause=run.failed"; !strings.Contains(f.log.String(), line) || strings.Count(
		f.log.String(), "level=ERROR",
	) != 1 {
		t.Errorf("the log has %s", f.log)
	}
}

// If a replica is killed after a receiver has accepted an event, but before this is stored, another replica sends the
// event again with the same id.
func TestKilledBeforeItIsStored(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	id := insertRun(t, db, store.Failed, "sessions FAILED") + "/run.failed"
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	claimed, err := store.ClaimNotification(t.Context(), db.Pool, f.Targets[0].Name, f.clock, f.clock.Add(claim))
	if err != nil || claimed == nil {
		t.Fatal(claimed, err)
	}
	var e Event
	if err := errors.Join(json.Unmarshal(claimed.Event, &e), f.Targets[0].Send(t.Context(), &e)); err != nil {
		t.Fatal(err)
	}
	expect(t, "before it is killed", r.take(), id)
	other := newFixture(t, db, r.URL)
	other.clock = f.clock.Add(claim - time.Second)
	other.step()
	expect(t, "while the first may be sending", r.take())
	other.clock = f.clock.Add(claim)
	other.step()
	expect(t, "by another replica", r.take(), id)
}

// A replica that is stopped while a receiver does not answer stores no failure.
func TestStoppedWhileSending(t *testing.T) {
	t.Parallel()
	db := database(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	f := newFixture(t, db, s.URL)
	insertRun(t, db, store.Failed, "sessions FAILED")
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Deliver(ctx, f.Targets[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.notification WHERE state = 'PENDING' AND error = ''"); n != 1 ||
		f.counts.n["failed"] != 0 {
		t.Errorf("%d are pending; %v", n, f.counts.n)
	}
}

// However many replicas there are, each target gets each event once.
func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	db, a, b := database(t), startReceiver(t), startReceiver(t)
	var want []string
	for range 20 {
		want = append(want, insertRun(t, db, store.Failed, "sessions FAILED")+"/run.failed")
	}
	var wg sync.WaitGroup
	for range 4 {
		f := newFixture(t, db, a.URL, b.URL)
		wg.Go(func() {
			for range 5 {
				if err := f.Collect(t.Context()); err != nil {
					t.Error(err)
				}
				for _, target := range f.Targets {
					if err := f.Deliver(t.Context(), target); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, r := range []*receiver{a, b} {
		got := r.take()
		slices.Sort(got)
		slices.Sort(want)
		expect(t, "events", got, want...)
	}
}

// A failover to a standby that lagged may lose the record of a notification. The event is then created again with the
// same id; if it is still stored, it is not.
func TestFailover(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	id := insertRun(t, db, store.Failed, "sessions FAILED") + "/run.failed"
	f.step()
	expect(t, "before", r.take(), id)
	db.Do("UPDATE cleanupd.run SET notified = false")
	f.step()
	expect(t, "with the notification", r.take())
	db.Do("UPDATE cleanupd.run SET notified = false; DELETE FROM cleanupd.notification")
	f.step()
	expect(t, "without the notification", r.take(), id)
}

// The first success of a task after its failure is reported, once. A success of other tasks is not.
func TestRecovery(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	for _, c := range []struct {
		what  string
		state store.State
		tasks []string
		want  string
	}{
		{"the first success", store.Succeeded, []string{"a SUCCEEDED", "b SUCCEEDED"}, ""},
		{"a failure", store.Failed, []string{"a FAILED", "b NOT_RUN"}, "/run.failed"},
		{"the other task alone", store.Succeeded, []string{"a", "b SUCCEEDED"}, ""},
		{"a cancelled run", store.Cancelled, []string{"a CANCELLED", "b NOT_RUN"}, ""},
		{"the task alone, with nothing to do", store.Succeeded, []string{"a SKIPPED", "b"}, "/run.recovered"},
		{"all tasks", store.Succeeded, []string{"a SUCCEEDED", "b SUCCEEDED"}, ""},
		{"a failure as a whole", store.Failed, []string{"a NOT_RUN", "b NOT_RUN"}, "/run.failed"},
		{"a success after that", store.Succeeded, []string{"a SUCCEEDED", "b SUCCEEDED"}, "/run.recovered"},
		{"one more", store.Succeeded, []string{"a SUCCEEDED", "b SUCCEEDED"}, ""},
	} {
		id := insertRun(t, db, c.state, c.tasks...)
		f.step()
		var want []string
		if c.want != "" {
			want = append(want, id+c.want)
		}
		expect(t, c.what, r.take(), want...)
	}
	db.Do("UPDATE cleanupd.run SET notified = false, dry_run = true")
	f.step()
	expect(t, "dry runs", r.take())
}

// A scheduled run that did not start in time is reported once, also if no replica keeps the schedule.
func TestMissedSchedule(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	db.Do(`INSERT INTO cleanupd.schedule (cron, time_zone, enabled, next_run_time)
		VALUES ('0 4 * * *', 'UTC', true, clock_timestamp() - interval '9 min')`)
	f.step()
	expect(t, "nine minutes late", r.take())
	db.Do("UPDATE cleanupd.schedule SET next_run_time = '2026-03-01 04:00Z', enabled = false")
	f.step()
	expect(t, "disabled", r.take())
	db.Do("UPDATE cleanupd.schedule SET enabled = true")
	f.step()
	expect(t, "missed", r.take(), "schedule/2026-03-01T04:00:00Z/schedule.missed")
	if err := store.PruneNotifications(t.Context(), db.Pool, 0); err != nil {
		t.Fatal(err)
	}
	f.step()
	expect(t, "a second time", r.take())
	db.Do("UPDATE cleanupd.schedule SET next_run_time = '2026-03-02 04:00Z'")
	f.step()
	expect(t, "the next night", r.take(), "schedule/2026-03-02T04:00:00Z/schedule.missed")
}

// When notifications are configured, events that are older than a day are not reported, and the log says so.
func TestOldRuns(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	insertRun(t, db, store.Failed, "sessions FAILED")
	db.Do("INSERT INTO cleanupd.missed_run (due_time) VALUES ('2026-03-01 04:00Z')")
	f.clock = f.clock.Add(25 * time.Hour)
	f.step()
	expect(t, "old runs", r.take())
	if !strings.Contains(f.log.String(), "missed more than a day ago\" runs=2") {
		t.Errorf("the log has %s", f.log)
	}
}

// Notifications for a target that is not configured any more are given up after a day.
func TestRemovedTarget(t *testing.T) {
	t.Parallel()
	db, r, removed := database(t), startReceiver(t), startReceiver(t)
	removed.respond(http.StatusInternalServerError)
	f := newFixture(t, db, r.URL, removed.URL)
	insertRun(t, db, store.Failed, "sessions FAILED")
	f.step()
	f.Targets = f.Targets[:1]
	f.clock = f.clock.Add(23 * time.Hour)
	f.step()
	if f.counts.n["given_up"] != 0 {
		t.Errorf("within a day: got %v", f.counts.n)
	}
	f.clock = f.clock.Add(2 * time.Hour)
	f.step()
	if f.counts.n["given_up"] != 1 || !strings.Contains(f.log.String(), "is no longer configured") {
		t.Errorf("after a day: got %v %s", f.counts.n, f.log)
	}
}

// A service that does not own the database, such as one with a copy of it, sends nothing.
func TestCopyOfTheDatabase(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	insertRun(t, db, store.Failed, "sessions FAILED")
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Do("UPDATE cleanupd.instance SET database_oid = 1")
	insertRun(t, db, store.Failed, "sessions FAILED")
	f.step()
	expect(t, "in a copy", r.take())
	if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE NOT notified"); n != 1 {
		t.Errorf("%d runs are not notified", n)
	}
}

// Texts that JSON or PostgreSQL cannot store do not stop notifications.
func TestHostileNamesAreStored(t *testing.T) {
	t.Parallel()
	db, r := database(t), startReceiver(t)
	f := newFixture(t, db, r.URL)
	f.Origin = Origin{Database: "x\x00\xff", Instance: "\\u0000'\""}
	id := insertRun(t, db, store.Failed, fmt.Sprintf("%s FAILED", `"\u0000';--`))
	f.step()
	expect(t, "events", r.take(), id+"/run.failed")
}
