package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// shortTimeout is how long a short transaction of the service's own may take, or half the lease if that is shorter: a
// connection that does not answer must not block a replica forever.
const shortTimeout = 10 * time.Second

// claim is a run that this replica holds.
type claim struct {
	id              string
	epoch           int64
	dryRun          bool
	continueOnError bool
	plan            string       // the dry run that it does; empty: none
	accepted        []guard.Trip // the guards that it may pass
	whatIf          map[string]int
	referenceTime   time.Time
	chosen          []string // the names of its tasks, in order
	todo            []string // those still to be done
	begun           bool     // the first of those has been started
	succeeded       map[string]bool
	failed          bool            // a task of it has
	unmet           map[string]bool // its tasks that have failed, or were not run for want of another
	gaveUp          bool            // after too many failed attempts
	cursor          purge.Cursor
	resumed         bool        // someone had it before
	failedAttempts  int         // how often in a row it was resumed without progress
	reason          string      // why it was last resumed
	leaseUntil      time.Time   // by the database's clock, as claimed
	progressed      atomic.Bool // here, since it was claimed
	traceParent     string      // the span of the call that requested it
}

// position is a task's place among the chosen ones, from 1.
func (c *claim) position(name string) int { return slices.Index(c.chosen, name) + 1 }

// atWork is the task that was started and has not ended; empty between tasks.
func (c *claim) atWork() string {
	if !c.begun {
		return ""
	}
	return c.todo[0]
}

// What to claim: a run that is queued, or whose replica has fallen silent, of dry ones alone where the database is
// another instance's, but none that this replica is working on, nor one that a newer version has begun with a task that
// this one does not know; or one that was set back here, which may still be locked by a transaction of its own that was
// cut off.
const (
	waiting    = claimable + oldest
	waitingDry = claimable + " AND dry_run" + oldest
	setBack    = "state = 'RUNNING' AND id = $1::text::uuid AND epoch = $2 FOR UPDATE"
)

const oldest = " ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED"

// claimable is the condition of the first of these; $1 are the runs that this replica is working on, $2 patterns of the
// tasks that it knows.
const claimable = `(state = 'QUEUED' OR state = 'RUNNING' AND lease_until < clock_timestamp())
	AND id <> ALL ($1::text[]::uuid[])
	AND NOT EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = run.id AND t.chosen
		AND t.name NOT LIKE ALL ($2::text[]))`

// newEpoch begins an epoch of a run, in an UPDATE of it. No two have the same number, not even those of two histories
// of the database, as after a failover to a standby that lagged, or a restore: what only one of them has was written by
// a worker of that one.
const newEpoch = "epoch = greatest(epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), " +
	"server_start = pg_postmaster_start_time()"

// held is the condition that a run is still in the epoch in which it was taken ($2), on the server where it was: a
// worker that finds another server behind its connections may have done there what this one never heard of. A server's
// history does not change while it runs, and every role may ask for its start, also where timelines are not shown.
const held = "id = $1::text::uuid AND epoch = $2 AND server_start = pg_postmaster_start_time()"

// take claims a run that waits for a replica; nil when there is none.
func (m *Manager) take(ctx context.Context) (*claim, error) {
	m.mu.Lock()
	atWork := slices.AppendSeq([]string{}, maps.Keys(m.atWork))
	m.mu.Unlock()
	var waits bool
	if err := m.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleanupd.run WHERE "+claimable+")", atWork, m.known()).
		Scan(&waits); err != nil ||
		!waits {
		return nil, err
	}
	if err := m.writable(ctx); err != nil { // or the claim would stand, and nothing follow
		return nil, err
	}
	which := waiting
	if ours, err := m.owns(ctx); err != nil {
		return nil, err
	} else if !ours {
		which = waitingDry
	}
	return m.claim(ctx, which, "", "", atWork, m.known())
}

// claim makes a run this replica's, and says so in the run's log; nil when there is none. reason is why the run is
// resumed; empty: another replica had it. One that was told last is not told again. args are the two parameters of
// which.
func (m *Manager) claim(ctx context.Context, which, reason, told string, args ...any) (*claim, error) {
	asked := time.Now()
	var c *claim
	err := m.within(ctx, m.shortTimeout, func(ctx context.Context) (err error) {
		c, err = m.tryClaim(ctx, which, reason, told, args...)
		return err
	})
	if err != nil && c != nil {
		err = m.verify(ctx, c, asked.Add(m.lease), err)
	}
	if err != nil {
		return nil, err
	}
	if c != nil && c.reason != told {
		m.metrics.failedAttempts.Inc()
	}
	return c, nil
}

// verify finds out whether a claim stands of which the COMMIT was not answered, for as long as its lease lasts. It
// returns nil, or the claim's error.
func (m *Manager) verify(ctx context.Context, c *claim, until time.Time, err error) error {
	errMine := errors.New("it stands")
	for time.Now().Before(until) && ctx.Err() == nil {
		found := m.within(ctx, m.shortTimeout, func(ctx context.Context) error {
			// which ends in a ROLLBACK: a COMMIT might wait as well
			return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
				var mine bool
				// The lock waits until the claim's transaction has ended.
				err := tx.QueryRow(ctx, "SELECT epoch = $2 AND holder = $3 AND lease_until = $4 FROM cleanupd.run "+
					"WHERE id = $1::text::uuid FOR UPDATE", c.id, c.epoch, m.replica, c.leaseUntil).
					Scan(&mine)
				if mine {
					return errMine
				}
				return cmp.Or(err, pgx.ErrNoRows)
			})
		})
		switch {
		case errors.Is(found, errMine):
			m.log.Warn("a claim stands, though its COMMIT was not answered", "run_id", c.id, "error", err)
			return nil
		case errors.Is(found, pgx.ErrNoRows):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.lease / 50):
		}
	}
	return err
}

// progressNow is the SQL for a hash of a run's progress. The column progress has that of when its worker confirmed its
// start; it is empty if none did since the run was claimed.
//
// An attempt has made progress if it ended tasks, changed rows, or moved a cursor. In a dry run the counts of the
// current task are not progress, since the next attempt counts that task again.
const progressNow = `(SELECT md5(string_agg(concat_ws(' ', t.state, CASE WHEN NOT run.dry_run OR t.state <> 'RUNNING'
	THEN concat_ws(' ', t.rows_deleted, t.rows_updated, t.tables_dropped, t.cursor) END), ',' ORDER BY t.position))
		FROM cleanupd.task t WHERE t.run_id = run.id)`

// tryClaim is a claim's transaction. It returns the claim even if only the COMMIT fails, or is not answered.
func (m *Manager) tryClaim(ctx context.Context, which, reason, told string, args ...any) (c *claim, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		got := &claim{}
		var state State
		var holder string
		// A run that its replica released was not set back; nor was one whose replica has not confirmed its start.
		err := tx.QueryRow(ctx, `
			WITH waiting AS (SELECT id, state, holder, epoch AS before FROM cleanupd.run WHERE `+which+`)
			UPDATE cleanupd.run SET state = 'RUNNING', `+newEpoch+`,
				lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond', holder = $4,
				start_time = COALESCE(start_time, now()), reference_time = COALESCE(reference_time, now()),
				setbacks = CASE WHEN waiting.holder = '' THEN 0 WHEN progress = '' THEN setbacks
					WHEN progress = `+progressNow+` THEN setbacks + 1 ELSE 1 END, progress = ''
			FROM waiting WHERE run.id = waiting.id
			RETURNING run.id::text, epoch, before > 0, lease_until, dry_run, continue_on_error, reference_time,
				setbacks, trace_parent, COALESCE(plan::text, ''), what_if, accepted, waiting.state, waiting.holder`,
			append(args, m.lease.Microseconds(), m.replica)...).
			Scan(
				&got.id,
				&got.epoch,
				&got.resumed,
				&got.leaseUntil,
				&got.dryRun,
				&got.continueOnError,
				&got.referenceTime,
				&got.failedAttempts,
				&got.traceParent,
				&got.plan,
				&got.whatIf,
				&got.accepted,
				&state,
				&holder,
			)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if !got.dryRun { // by now the database may be another one
			if err := m.Own(ctx, tx); err != nil {
				return err
			}
		}
		if err := got.takeTasks(ctx, tx); err != nil {
			return err
		}
		if got.dryRun { // has no cursor: the current task is counted again from its beginning
			if _, err := tx.Exec(
				ctx,
				`UPDATE cleanupd.task
					SET rows_deleted = 0, rows_updated = 0, tables_dropped = 0, batches = 0, remote_deliveries_left = 0,
				rows_refused = 0, rows_locked = 0, rows_kept = 0, rows_bound = 0, rows_held = 0, tables_left = 0
				WHERE run_id = $1::text::uuid AND state = 'RUNNING'`,
				got.id,
			); err != nil {
				return err
			}
		}
		event := Event{
			Kind:    LogLine,
			Level:   severity.Info,
			Task:    got.atWork(),
			Message: fmt.Sprintf("replica %s goes on after the last committed batch", m.replica),
		}
		switch {
		case state == Queued:
			run, err := get(ctx, tx, got.id)
			if err != nil {
				return err
			}
			event = Event{Kind: RunStarted, Run: run}
		case holder != "":
			if got.reason = cmp.Or(reason, "replica "+holder+" fell silent"); got.reason == told {
				c = got
				return nil
			}
			event.Level = severity.Warning
			event.Message = fmt.Sprintf(
				"%s; %s (without progress: %d of at most %d times)",
				got.reason,
				event.Message,
				got.failedAttempts,
				maxFailedAttempts,
			)
		}
		if err := appendEvents(ctx, tx, got.id, got.epoch, event); err != nil {
			return err
		}
		c = got
		return nil
	})
	return c, err
}

// takeTasks sets the epoch of the run's tasks, and reads them. It waits for a batch that the previous worker is just
// committing.
func (c *claim) takeTasks(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(
		ctx,
		`WITH task AS (UPDATE cleanupd.task SET epoch = $2 WHERE run_id = $1::text::uuid RETURNING *)
		SELECT name, state, cursor FROM task WHERE chosen ORDER BY position`,
		c.id,
		c.epoch,
	)
	if err != nil {
		return err
	}
	var (
		name   string
		state  pipeline.State
		cursor purge.Cursor
	)
	c.succeeded, c.unmet = map[string]bool{}, map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&name, &state, &cursor}, func() error {
		c.chosen = append(c.chosen, name)
		c.succeeded[name] = state == pipeline.Succeeded
		c.failed = c.failed || state == pipeline.Failed
		c.unmet[name] = state == pipeline.Failed || state == pipeline.NotRun
		if state == pipeline.Running {
			c.begun, c.cursor = true, cursor
		}
		if state == pipeline.Running || state == pipeline.Pending {
			c.todo = append(c.todo, name)
		}
		return nil
	})
	return err
}
