package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// checkEvery is how often the account is written even if nothing was deleted, so that a successor need not scan a long
// stretch of rows that stay again.
const checkEvery = time.Second

// Write implements purge.Ledger.
func (j *journal) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	a := j.account(d)
	b.Queue(a.sql, a.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&a.reason) })
	return a.settled, nil
}

// Count implements pipeline.Counts. It retries a statement after a transient error: otherwise the caller would take the
// error for one of the table whose rows are counted.
func (j *journal) Count(ctx context.Context, d purge.Delta) error {
	a := j.account(d)
	for try := 1; ; try++ {
		err := j.m.pool.QueryRow(ctx, a.sql, a.args...).Scan(&a.reason)
		switch attempts := purge.MaxAttempts[sqlstate.Of(err)]; {
		case attempts == 0:
			return a.settled(err)
		case try >= attempts:
			return fmt.Errorf("%w: the count could not be written: %s", pipeline.ErrLost, sqlstate.Explain(err))
		}
	}
}

// Proceed fails if the run must stop.
func (j *journal) Proceed(ctx context.Context) error {
	a := j.asks()
	err := j.m.pool.QueryRow(ctx, a.sql, a.args...).Scan(&a.reason)
	return a.settled(err)
}

// idle reports whether a batch changed nothing that has to be written now.
func (j *journal) idle(d purge.Delta) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return d.Empty() && d.Recorded == 0 && d.Space == nil && d.Cursor.Unit == j.cursor.Unit &&
		d.Cursor.Pending == nil &&
		j.cursor.Pending == nil &&
		time.Since(j.written) < checkEvery
}

// fenced is the SQLSTATE of a statement whose run is not held any more.
const fenced = "CU001"

// heldMeanwhile is the SQLSTATE of a statement before which a hold was created.
const heldMeanwhile = "CU002"

// orFails selects the reason to stop of a run that is held, while no hold was created after one with the number in a
// parameter; otherwise the statement fails, and with it the transaction.
func orFails(holds int, from string) string {
	return fmt.Sprintf(
		"SELECT CASE WHEN count(reason) <> 1 THEN cleanupd.fenced() WHEN (SELECT max(number) FROM cleanupd.hold) > "+
			"$%d::bigint THEN cleanupd.held_meanwhile() ELSE max(reason) END FROM %s",
		holds,
		from,
	)
}

// askSQL returns the reason to stop; accountSQL also writes a batch's account.
var askSQL = orFails(3, "(SELECT "+stopReason+" AS reason) AS asked")

var accountSQL = withSpace + `, account AS (
  UPDATE cleanupd.task SET rows_deleted = rows_deleted + $4, rows_updated = rows_updated + $5,
    tables_dropped = tables_dropped + $6, batches = batches + $7, cursor = $8,
      remote_deliveries_left = remote_deliveries_left + $15,
    rows_refused = $16, rows_locked = $17, rows_kept = $18, rows_bound = $19, rows_held = $20, tables_left = $21
  WHERE run_id = $1::text::uuid AND epoch = $2 AND name = $3 AND state = 'RUNNING' RETURNING ` + stopReason + ` AS reason)
` + orFails(22, "account")

// leftArgs are the parameters for the rows that a task left.
func leftArgs(l purge.Retained) []any {
	return []any{l.Failed, l.Locked, l.Suppressed, l.Dependent, l.OnHold, l.Tables}
}

// account is that of a batch: the statement that writes it, if there is anything to write, and returns the reason to
// stop.
type account struct {
	j      *journal
	delta  purge.Delta
	idle   bool
	sql    string
	args   []any
	reason *string
}

func (j *journal) account(d purge.Delta) *account {
	a := j.asks()
	a.delta = d
	if !j.idle(d) {
		holds := a.args[2]
		a.idle, a.sql = false, accountSQL
		a.args = slices.Concat(
			a.args[:2],
			[]any{j.task, d.Deleted, d.Updated, d.Dropped, batches(d), d.Cursor},
			spaceArgs(d.Space),
			[]any{d.Recorded},
			leftArgs(d.Cursor.TotalRetained()),
			[]any{holds},
		)
	}
	return a
}

// asks is the account of nothing, by which a run learns whether it may go on.
func (j *journal) asks() *account {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &account{j: j, idle: true, sql: askSQL, args: []any{j.claim.id, j.claim.epoch, j.holds}}
}

// settled counts the batch if its account was written, and fails if not, or if the run must stop.
func (a *account) settled(err error) error {
	switch {
	case sqlstate.Is(err, fenced):
		return errFenced
	case sqlstate.Is(err, heldMeanwhile):
		return pipeline.ErrHoldCreated
	case err != nil:
		return err
	}
	a.j.add(a.delta, !a.idle)
	return a.j.halt(a.reason)
}

// progressed says that the database took what the run wrote: it waits for nothing any more.
func (j *journal) progressed() {
	if !j.claim.progressed.Swap(true) {
		j.m.waits(j.claim.id, "")
	}
}

func batches(d purge.Delta) int64 {
	if d.Empty() {
		return 0
	}
	return max(d.Statements, 1)
}

func (j *journal) add(d purge.Delta, written bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if written {
		j.written, j.cursor = time.Now(), d.Cursor
		j.progressed()
	}
	p := &j.progress
	p.RowsDeleted += d.Deleted
	p.RowsUpdated += d.Updated
	p.TablesDropped += d.Dropped
	p.Batches += batches(d)
	j.changed = j.changed || !d.Empty()
	if !j.claim.dryRun {
		j.m.metrics.committed(j.task, d)
	}
}
