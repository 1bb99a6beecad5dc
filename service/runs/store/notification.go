package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// MissedAfter is how late a scheduled run may start before it counts as missed.
const MissedAfter = 10 * time.Minute

// RecordMissed stores the next time of the schedule as missed if it passed longer than grace ago.
func RecordMissed(ctx context.Context, db Execer, grace time.Duration) error {
	_, err := db.Exec(
		ctx,
		`INSERT INTO cleanupd.missed_run (due_time) SELECT next_run_time FROM cleanupd.schedule
			WHERE enabled AND next_run_time <= clock_timestamp() - $1::interval ON CONFLICT DO NOTHING`, grace,
	)
	return err
}

// notNotified is the SQL condition for runs that have ended and whose notifications are not stored yet.
const notNotified = "end_time IS NOT NULL AND NOT dry_run AND NOT notified"

// LockNotNotified locks and reads the oldest run whose notifications are not stored yet; nil if there is none. It
// skips a run that another replica has locked.
func LockNotNotified(ctx context.Context, tx pgx.Tx) (*Run, error) {
	var id uuid.UUID
	err := tx.QueryRow(
		ctx, "SELECT id FROM cleanupd.run WHERE "+notNotified+" ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED",
	).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := readRuns(ctx, tx, Basic, "WHERE id = $1", id)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func SetNotified(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.run SET notified = true WHERE id = $1", id)
	return err
}

// FailedBefore returns those tasks of the run that failed the last time an earlier run executed them. If an earlier
// run failed without a failed task, all its tasks count as failed.
func FailedBefore(ctx context.Context, db campaign.Querier, id uuid.UUID) ([]string, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT t.name FROM cleanupd.run AS r JOIN cleanupd.task AS t ON t.run_id = r.id CROSS JOIN LATERAL (
			SELECT p.state, f.failed_as_a_whole
			FROM cleanupd.run AS b JOIN cleanupd.task AS p ON p.run_id = b.id CROSS JOIN LATERAL (
				SELECT b.state = 'FAILED' AND NOT EXISTS (
					SELECT FROM cleanupd.task WHERE run_id = b.id AND state = 'FAILED')) AS f (failed_as_a_whole)
			WHERE (b.create_time, b.id) < (r.create_time, r.id) AND NOT b.dry_run AND b.restore IS NULL
				AND b.end_time IS NOT NULL
				AND p.name = t.name AND p.chosen
				AND (p.state IN ('SUCCEEDED', 'SKIPPED', 'FAILED') OR f.failed_as_a_whole)
			ORDER BY b.create_time DESC, b.id DESC LIMIT 1) AS last
		WHERE r.id = $1 AND r.restore IS NULL AND t.chosen AND (last.state = 'FAILED' OR last.failed_as_a_whole)
		ORDER BY t.position`, id,
	)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// LockMissed locks and returns the oldest missed time whose notifications are not stored yet; nil if there is none.
// It skips a time that another replica has locked.
func LockMissed(ctx context.Context, tx pgx.Tx) (due *time.Time, err error) {
	err = tx.QueryRow(
		ctx,
		"SELECT due_time FROM cleanupd.missed_run WHERE NOT notified ORDER BY due_time LIMIT 1 FOR UPDATE SKIP LOCKED",
	).Scan(&due)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return due, err
}

func SetMissedNotified(ctx context.Context, tx pgx.Tx, due time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.missed_run SET notified = true WHERE due_time = $1", due)
	return err
}

// SkipNotNotified prevents notifications about runs that ended before the given time, and about missed times that
// were found before it. It returns how many runs and times it skipped.
func SkipNotNotified(ctx context.Context, db Execer, before time.Time) (skipped int64, err error) {
	for _, sql := range []string{
		"UPDATE cleanupd.run SET notified = true WHERE " + notNotified + " AND end_time < $1",
		"UPDATE cleanupd.missed_run SET notified = true WHERE NOT notified AND find_time < $1",
	} {
		tag, err := db.Exec(ctx, sql, before)
		if err != nil {
			return skipped, err
		}
		skipped += tag.RowsAffected()
	}
	return skipped, nil
}

type Notification struct {
	Subject, Cause, Target string
	Event                  json.RawMessage
	CreateTime             time.Time
	Attempts               int
	// Error is the error of the last attempt; "" if there was none.
	Error connection.Text
}

// InsertNotifications queues one notification per target. Calling it again for the same event adds nothing while the
// first is still stored.
func InsertNotifications(
	ctx context.Context, tx pgx.Tx, subject, cause string, event json.RawMessage, targets []string, now time.Time,
) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.notification (subject, cause, target, event, create_time, next_time)
			SELECT @subject, @cause, target, @event, @now, @now FROM unnest(@targets::text[]) AS t (target)
		ON CONFLICT DO NOTHING`,
		pgx.StrictNamedArgs{
			"subject": subject,
			"cause":   cause,
			"event":   event,
			"targets": targets,
			"now":     now,
		},
	)
	return err
}

const notificationColumns = "subject, cause, target, event, create_time, attempts, error"

// ClaimNotification returns the oldest notification for the target that is due, or nil if there is none. No replica
// can claim it again before the time until.
func ClaimNotification(
	ctx context.Context, db campaign.Querier, target string, now, until time.Time,
) (*Notification, error) {
	rows, _ := db.Query(
		ctx,
		`UPDATE cleanupd.notification SET attempts = attempts + 1, next_time = @until
		WHERE (subject, cause, target) = (SELECT subject, cause, target FROM cleanupd.notification
			WHERE state = 'PENDING' AND target = @target AND next_time <= @now
			ORDER BY create_time, subject, cause LIMIT 1 FOR UPDATE SKIP LOCKED)
		RETURNING `+notificationColumns,
		pgx.StrictNamedArgs{"target": target, "now": now, "until": until},
	)
	n, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByPos[Notification])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return n, err
}

func SetSent(ctx context.Context, db Execer, n *Notification, now time.Time) error {
	return setNotification(ctx, db, n, "state = 'SENT', end_time = @time, error = @error", now, "")
}

func SetRetry(ctx context.Context, db Execer, n *Notification, next time.Time, failure error) error {
	return setNotification(ctx, db, n, "next_time = @time, error = @error", next, failure.Error())
}

func SetGivenUp(ctx context.Context, db Execer, n *Notification, now time.Time, failure error) error {
	return setNotification(ctx, db, n, "state = 'GIVEN_UP', end_time = @time, error = @error", now, failure.Error())
}

// setNotification records a failure only if no other replica has claimed the notification in the meantime.
func setNotification(
	ctx context.Context, db Execer, n *Notification, assignments string, at time.Time, failure string,
) error {
	_, err := db.Exec(
		ctx,
		"UPDATE cleanupd.notification SET "+assignments+` WHERE subject = @subject AND cause = @cause
			AND target = @target AND state = 'PENDING' AND (attempts = @attempts OR @error = '')`,
		pgx.StrictNamedArgs{
			"subject":  n.Subject,
			"cause":    n.Cause,
			"target":   n.Target,
			"attempts": n.Attempts,
			"time":     at,
			"error":    connection.Text(failure),
		},
	)
	return err
}

// GiveUpOthers gives up the notifications that were stored before the given time for targets that are not listed,
// and returns them.
func GiveUpOthers(
	ctx context.Context, db campaign.Querier, targets []string, before, now time.Time,
) ([]*Notification, error) {
	rows, _ := db.Query(
		ctx,
		`UPDATE cleanupd.notification SET state = 'GIVEN_UP', end_time = @now
		WHERE state = 'PENDING' AND create_time < @before AND next_time <= @now AND target <> ALL (@targets::text[])
		RETURNING `+notificationColumns,
		pgx.StrictNamedArgs{"targets": targets, "before": before, "now": now},
	)
	return pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Notification])
}

func PendingNotifications(ctx context.Context, db campaign.Querier) (map[string]float64, error) {
	rows, _ := db.Query(ctx,
		"SELECT target, count(*)::float8 FROM cleanupd.notification WHERE state = 'PENDING' GROUP BY target")
	var (
		target  string
		n       float64
		pending = map[string]float64{}
	)
	_, err := pgx.ForEachRow(rows, []any{&target, &n}, func() error { pending[target] = n; return nil })
	return pending, err
}

// PruneNotifications deletes the notifications that were sent or given up longer ago than history, and the missed
// times that were found longer ago and were notified.
func PruneNotifications(ctx context.Context, db Execer, history time.Duration) error {
	for _, sql := range []string{
		"DELETE FROM cleanupd.notification WHERE end_time < clock_timestamp() - $1::interval",
		`DELETE FROM cleanupd.missed_run AS m WHERE notified AND find_time < clock_timestamp() - $1::interval
			AND NOT EXISTS (SELECT FROM cleanupd.schedule WHERE next_run_time = m.due_time)`,
	} {
		if _, err := db.Exec(ctx, sql, history); err != nil {
			return err
		}
	}
	return nil
}
