// Package notify sends notifications. It creates events from runs that ended and from missed times of the schedule,
// stores one notification for each target, and sends it by HTTPS or e-mail until the target accepts it or a day has
// passed. Package runs calls Collect and Deliver periodically on every replica with targets; package serve parses the
// targets and calls Test.
package notify

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

const (
	// patience is how long a notification is retried.
	patience = 24 * time.Hour
	// claim is how long a replica that sends a notification keeps the others from sending it.
	claim = 2 * sendTimeout
)

type Config struct {
	// Targets may be empty; the Notifier then does nothing.
	Targets []*Target
	Bounds  Bounds
}

type Notifier struct {
	Config
	Pool   *pgxpool.Pool
	Owner  *store.Owner
	Origin Origin
	// Count counts attempts by target and outcome: sent, failed, or given_up.
	Count func(target, outcome string)
	Log   *slog.Logger
	// Clock must be the same on all replicas; nil means the clock of the database.
	Clock func(context.Context) (time.Time, error)
}

func (n *Notifier) now(ctx context.Context) (time.Time, error) {
	if n.Clock != nil {
		return n.Clock(ctx)
	}
	return store.Now(ctx, n.Pool)
}

func (c Config) Names() (names []string) {
	for _, t := range c.Targets {
		names = append(names, t.Name)
	}
	return names
}

// Collect stores notifications about runs that ended and about missed times. Each is stored only once, even if
// several replicas call Collect at the same time.
func (n *Notifier) Collect(ctx context.Context) error {
	if owns, err := n.Owner.Owns(ctx, n.Pool); err != nil || !owns {
		return err
	}
	now, err := n.now(ctx)
	if err != nil {
		return err
	}
	if err := store.RecordMissed(ctx, n.Pool, store.MissedAfter); err != nil {
		return err
	}
	if err := n.dropOld(ctx, now); err != nil {
		return err
	}
	for _, collect := range []func(context.Context, pgx.Tx, time.Time) (bool, error){n.collectRun, n.collectMissed} {
		for found := true; found; {
			err := pgx.BeginFunc(ctx, n.Pool, func(tx pgx.Tx) (err error) {
				found, err = collect(ctx, tx, now)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// dropOld gives up on what is more than a day old: events that were not stored yet, and notifications for targets that
// are no longer configured.
func (n *Notifier) dropOld(ctx context.Context, now time.Time) error {
	before := now.Add(-patience)
	skipped, err := store.SkipNotNotified(ctx, n.Pool, before)
	if err != nil {
		return err
	}
	if skipped > 0 {
		n.Log.Warn("skipped notifications for runs that ended or were missed more than a day ago", "runs", skipped)
	}
	dropped, err := store.GiveUpOthers(ctx, n.Pool, n.Names(), before, now)
	for _, d := range dropped {
		n.givenUp(d, errors.New("the target is no longer configured"))
	}
	return err
}

func (n *Notifier) collectRun(ctx context.Context, tx pgx.Tx, now time.Time) (found bool, err error) {
	run, err := store.LockNotNotified(ctx, tx)
	if err != nil || run == nil {
		return false, err
	}
	failedBefore, err := store.FailedBefore(ctx, tx, run.UUID())
	if err != nil {
		return false, err
	}
	for _, what := range judge(run, failedBefore, n.Bounds) {
		if err := n.insert(ctx, tx, run.ID, what.cause, n.Origin.runEvent(run, what), now); err != nil {
			return false, err
		}
	}
	return true, store.SetNotified(ctx, tx, run.UUID())
}

func (n *Notifier) collectMissed(ctx context.Context, tx pgx.Tx, now time.Time) (found bool, err error) {
	due, err := store.LockMissed(ctx, tx)
	if err != nil || due == nil {
		return false, err
	}
	event := n.Origin.missedEvent(*due, now)
	if err := n.insert(ctx, tx, missedSubject(*due), ScheduleMissed, event, now); err != nil {
		return false, err
	}
	return true, store.SetMissedNotified(ctx, tx, *due)
}

func (n *Notifier) insert(ctx context.Context, tx pgx.Tx, subject string, cause Cause, e Event, now time.Time) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return store.InsertNotifications(ctx, tx, subject, string(cause), body, n.Names(), now)
}

// Deliver sends the notifications that are due to the target, one after the other.
func (n *Notifier) Deliver(ctx context.Context, t *Target) error {
	for {
		if owns, err := n.Owner.Owns(ctx, n.Pool); err != nil || !owns {
			return err
		}
		now, err := n.now(ctx)
		if err != nil {
			return err
		}
		next, err := store.ClaimNotification(ctx, n.Pool, t.Name, now, now.Add(claim))
		if err != nil || next == nil {
			return err
		}
		if err := n.attempt(ctx, t, next); err != nil {
			return err
		}
	}
}

// attempt tries once. If the context ends before the target has answered, the notification is sent again after the
// claim has expired.
func (n *Notifier) attempt(ctx context.Context, t *Target, next *store.Notification) error {
	var e Event
	if err := json.Unmarshal(next.Event, &e); err != nil {
		return err
	}
	failure := t.Send(ctx, &e)
	if failure != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	now, err := n.now(ctx)
	if err != nil {
		return err
	}
	switch {
	case failure == nil:
		n.Count(t.Name, "sent")
		n.Log.Info("a notification was sent", "target", t.Name, "event", e.ID)
		return store.SetSent(ctx, n.Pool, next, now)
	case now.Sub(next.CreateTime) >= patience:
		n.Count(t.Name, "failed")
		if err := store.SetGivenUp(ctx, n.Pool, next, now, failure); err != nil {
			return err
		}
		n.givenUp(next, failure)
		return nil
	}
	n.Count(t.Name, "failed")
	pause := backoff(next.Attempts)
	n.Log.Warn("could not send a notification", "target", t.Name, "event", e.ID, "attempt", next.Attempts,
		"next_in", pause, "error", failure)
	return store.SetRetry(ctx, n.Pool, next, now.Add(pause), failure)
}

func (n *Notifier) givenUp(d *store.Notification, failure error) {
	n.Count(d.Target, "given_up")
	n.Log.Error("a notification was given up", "target", d.Target, "subject", d.Subject, "cause", d.Cause,
		"attempts", d.Attempts, "error", failure)
}

// backoff returns the pause after an attempt: 10 seconds after the first one, then twice as long each time, up to
// half an hour.
func backoff(attempts int) time.Duration {
	const first, most = 10 * time.Second, 30 * time.Minute
	return min(first<<min(max(attempts-1, 0), 8), most)
}

func Test(ctx context.Context, t *Target, o Origin) error {
	e := o.testEvent(time.Now())
	return t.Send(ctx, &e)
}

// Cause is the kind of an event. The type and the id of the event end with it.
type Cause string

const (
	RunFailed      Cause = "run.failed"
	GuardRefused   Cause = "guard.refused"
	RowsRetained   Cause = "rows.retained"
	RunRecovered   Cause = "run.recovered"
	ScheduleMissed Cause = "schedule.missed"
	TestRequested  Cause = "test"
)

// Bounds say which runs are reported.
type Bounds struct {
	// Rows and Tables are the lowest numbers of retained ones that make an event; 0 means never.
	Rows, Tables int64
	// OnlyScheduled leaves out the runs that callers have started.
	OnlyScheduled bool
}

var DefaultBounds = Bounds{Rows: 1000, Tables: 1}

// occurrence is something to report about the given tasks of a run, or about the whole run if it has none.
type occurrence struct {
	cause Cause
	tasks []store.Result
}

// judge returns what to report about a run. failedBefore are the tasks that failed when an earlier run last executed
// them. A run that failed only because of guards is not reported as failed as well.
func judge(run *store.Run, failedBefore []string, bounds Bounds) (found []occurrence) {
	if bounds.OnlyScheduled && run.RequestedBy != store.RequestedBySchedule {
		return nil
	}
	var failed, refusals, retained, recovered []store.Result
	var rows, tables int64
	for _, r := range run.Results {
		switch {
		case r.State == cleanup.Failed && r.Reason == failure.ReasonGuard:
			refusals = append(refusals, r)
		case r.State == cleanup.Failed:
			failed = append(failed, r)
		}
		if r.RowsRetained > 0 || r.TablesRetained > 0 {
			retained = append(retained, r)
			rows += r.RowsRetained
			tables += r.TablesRetained
		}
	}
	for _, name := range failedBefore {
		if r := run.Result(name); r != nil {
			recovered = append(recovered, *r)
		}
	}
	guarded := len(refusals) > 0 || run.Cause == store.CauseGuarded // some guards refuse the whole run
	if run.State == store.Failed && (len(failed) > 0 || !guarded) {
		found = append(found, occurrence{RunFailed, failed})
	}
	if guarded {
		found = append(found, occurrence{GuardRefused, refusals})
	}
	if reaches(rows, bounds.Rows) || reaches(tables, bounds.Tables) {
		found = append(found, occurrence{RowsRetained, retained})
	}
	if run.State == store.Succeeded && len(recovered) > 0 {
		found = append(found, occurrence{RunRecovered, recovered})
	}
	return found
}

func reaches(n, bound int64) bool { return bound > 0 && n >= bound }
