package runs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func receiver(t *testing.T) (address string, events <-chan notify.Event) {
	t.Helper()
	received := make(chan notify.Event, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e notify.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		received <- e
	}))
	t.Cleanup(s.Close)
	return s.URL, received
}

func notifies(t *testing.T, addresses ...string) func(*runs.Config) {
	t.Helper()
	var targets []*notify.Target
	for _, address := range addresses {
		target, err := notify.ParseTarget(address, notify.Options{})
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, target)
	}
	return func(c *runs.Config) { c.Notify = notify.Config{Targets: targets, Bounds: notify.DefaultBounds} }
}

func next(t *testing.T, events <-chan notify.Event) notify.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event was received")
		return notify.Event{}
	}
}

func refuseSessions(db *pgtest.DB) {
	db.Do(
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$; CREATE TRIGGER " +
			"refuse BEFORE DELETE ON XtkSessionInfo EXECUTE FUNCTION refuse()",
	)
}

// A run that fails, a guard that refuses and a success after a failure are each notified once, by one of two replicas.
// A target that does not answer delays neither runs nor other targets.
func TestNotifications(t *testing.T) {
	t.Parallel()
	db := database(t)
	address, events := receiver(t)
	stalled := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stalled }))
	defer silent.Close()
	defer close(stalled)
	configure := notifies(t, address, silent.URL)
	m, work, _ := replica(t, db, "a", configure)
	_, workToo, _ := replica(t, db, "b", configure)
	setGuards(t, m, nil)
	work()
	workToo()

	sessions(db, 1)
	refuseSessions(db)
	run := ended(t, m, runs.Request{Tasks: []string{"sessions"}})
	e := next(t, events)
	if e.ID != run.ID+"/run.failed" || run.State != store.Failed || e.Data.Database != db.Name ||
		e.Data.Run.Tasks[0].Task != "sessions" || !strings.Contains(e.Data.Description, "no") {
		t.Errorf("after a failure: %+v", e)
	}

	db.Do("DROP TRIGGER refuse ON XtkSessionInfo")
	run = ended(t, m, runs.Request{Tasks: []string{"sessions"}})
	if e = next(t, events); e.ID != run.ID+"/run.recovered" || e.Data.Run.Tasks[0].Task != "sessions" {
		t.Errorf("after a success: %+v", e)
	}

	audits(db, 1, 51, "1 year")
	audits(db, 52, 100, "1 day")
	ended(t, m, runs.Request{Tasks: []string{"audit-trail"}, DryRun: true})
	run = ended(t, m, runs.Request{Tasks: []string{"audit-trail"}})
	e = next(t, events)
	if e.ID != run.ID+"/guard.refused" || e.Data.Command != "cleanupd guards" ||
		!strings.Contains(e.Data.Run.Tasks[0].Error, "xtkaudit") {
		t.Errorf("after a guard: %+v", e)
	}
	db.Until("SELECT (count(*) = 3)::int FROM cleanupd.notification WHERE state = 'SENT'")
	if len(events) > 0 {
		t.Errorf("received more: %+v", <-events)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.notification WHERE state = 'PENDING'"); n != 3 {
		t.Errorf("%d are pending for the target that does not answer", n)
	}
	silentTarget, err := notify.ParseTarget(silent.URL, notify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := measured(t, m, "cleanupd_notifications_pending", silentTarget.Name); n != 3 {
		t.Errorf("the metrics have %v as pending", n)
	}
}

// A notification is sent for a scheduled run that starts late, and for one that is not caught up.
func TestMissedRunsAreNotified(t *testing.T) {
	t.Parallel()
	db := database(t)
	address, events := receiver(t)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) {
		keeps(c)
		notifies(t, address)(c)
	})
	db.Do(cleanedByHand)
	work()
	db.Until(stored)
	db.Do(due)
	late := next(t, events)
	if late.Type != "io.github.cleanupd.schedule.missed" || time.Since(*late.Data.DueTime) < 71*time.Hour {
		t.Errorf("got %+v", late)
	}
	db.Until(allEnded)
	run, err := m.Get(t.Context(), readSchedule(t, m).LastRunID)
	if err != nil || run.State != store.Succeeded {
		t.Errorf("%+v, %v", run, err)
	}
	db.Do("UPDATE cleanupd.schedule SET timeline = '000000FF', next_run_time = clock_timestamp() - interval '1 minute'")
	if skipped := next(t, events); skipped.Type != late.Type || skipped.ID == late.ID {
		t.Errorf("got %+v", skipped)
	}
}
