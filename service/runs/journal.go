package runs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/execute"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Progress is reported one to four times a second: at every tick when something changed, otherwise at every other one.
const (
	progressTick  = 300 * time.Millisecond
	progressQuiet = 2
)

// checkEvery is how often the account is written even if nothing was deleted, so that a successor need not scan a long
// stretch of rows that stay again.
const checkEvery = time.Second

// errHandover says that this replica is stopping and the run continues elsewhere; errFenced that this replica does not hold the run
// any more.
var (
	errHandover = fmt.Errorf("%w: this replica is stopping", execute.ErrLost)
	errFenced   = fmt.Errorf("%w: another replica has it, it has ended, or the database server was restarted or replaced", execute.ErrLost)
)

// journal is the account of a run while this replica holds it.
type journal struct {
	m     *Manager
	claim *claim
	// stopping is closed when this replica is to stop after the current batch.
	stopping <-chan struct{}
	// stop is why the run was stopped.
	stop string

	// events serializes writes, so that events are in the order of what happened: no progress of a task after its end.
	events sync.Mutex

	mu       sync.Mutex
	task     string // the current one; empty between tasks
	progress Progress
	changed  bool
	expected int64
	since    time.Time // when the task began here
	before   int64     // rows that it had deleted and updated by then
	written  time.Time
	waiting  time.Time    // when the reason why a batch waits was last reported
	cursor   purge.Cursor // as last written
	holds    *int64       // the last hold that was created when the task at work read them; nil: it obeys none
}

var _ execute.Journal = (*journal)(nil)

// write runs a transaction and appends its events, one at a time.
func (j *journal) write(ctx context.Context, fn func(tx pgx.Tx) ([]Event, error)) error {
	j.events.Lock()
	defer j.events.Unlock()
	return pgx.BeginFunc(ctx, j.m.pool, func(tx pgx.Tx) error {
		events, err := fn(tx)
		if err != nil || len(events) == 0 {
			return err
		}
		return appendEvents(ctx, tx, j.claim.id, j.claim.epoch, events...)
	})
}

// stopReason is the SQL for why a run must stop; empty: it need not; NULL: it is not held any more.
const stopReason = `(SELECT CASE WHEN cancel_requested THEN '` + stopCancelled + `'
	WHEN clock_timestamp() >= start_time + max_duration THEN '` + stopMaxDuration + `' ELSE '' END FROM cleanupd.run WHERE ` + held + `)`

// halt turns a reason to stop into an error. No reason at all (nil) means that the run is not held any more.
func (j *journal) halt(reason *string) error {
	select {
	case <-j.stopping:
		return errHandover
	default:
	}
	switch {
	case reason == nil:
		return errFenced
	case *reason != "":
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stop = *reason
		return execute.ErrStopped
	}
	return nil
}

// TaskStarted implements execute.Journal. A task that a previous worker started is not started again.
func (j *journal) TaskStarted(ctx context.Context, name string) error {
	var (
		reason *string
		p      Progress
	)
	err := j.write(ctx, func(tx pgx.Tx) ([]Event, error) {
		var begins bool
		if err := tx.QueryRow(ctx, `
			WITH begun AS (UPDATE cleanupd.task SET state = 'RUNNING', start_time = clock_timestamp()
				WHERE run_id = $1::text::uuid AND name = $3 AND epoch = $2 AND state <> 'RUNNING' RETURNING name)
			SELECT `+stopReason+`, EXISTS (SELECT FROM begun), rows_deleted, rows_updated, tables_dropped, batches FROM cleanupd.task
			WHERE run_id = $1::text::uuid AND name = $3`, j.claim.id, j.claim.epoch, name).
			Scan(&reason, &begins, &p.RowsDeleted, &p.RowsUpdated, &p.TablesDropped, &p.Batches); err != nil {
			return nil, err
		}
		if err := j.halt(reason); err != nil || !begins {
			return nil, err
		}
		return []Event{{Kind: TaskStarted, Task: name, Position: j.claim.position(name), Count: len(j.claim.chosen)}}, nil
	})
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.task, j.progress, j.changed, j.expected = name, p, true, -1
	j.since, j.before, j.written, j.cursor = time.Now(), p.RowsDeleted+p.RowsUpdated, time.Time{}, purge.Cursor{}
	return nil
}

// Write implements execute.Journal.
func (j *journal) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	a := j.account(d)
	b.Queue(a.sql, a.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&a.reason) })
	return a.settled, nil
}

// Count implements execute.Journal.
func (j *journal) Count(ctx context.Context, d purge.Delta) error {
	a := j.account(d)
	return a.settled(j.m.pool.QueryRow(ctx, a.sql, a.args...).Scan(&a.reason))
}

// Proceed implements execute.Journal.
func (j *journal) Proceed(ctx context.Context) error {
	a := j.asks()
	err := j.m.pool.QueryRow(ctx, a.sql, a.args...).Scan(&a.reason)
	return a.settled(err)
}

// idle reports whether a batch changed nothing that has to be written now.
func (j *journal) idle(d purge.Delta) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return d.Empty() && d.Recorded == 0 && d.Space == nil && d.Cursor.Unit == j.cursor.Unit && d.Cursor.Pending == nil && j.cursor.Pending == nil && time.Since(j.written) < checkEvery
}

// fenced is the SQLSTATE of a statement whose run is not held any more.
const fenced = "CU001"

// heldMeanwhile is the SQLSTATE of a statement before which a hold was created.
const heldMeanwhile = "CU002"

// orFails selects the reason to stop of a run that is held, while no hold was created after one with the number in a parameter; otherwise the
// statement fails, and with it the transaction.
func orFails(holds int, from string) string {
	return fmt.Sprintf("SELECT CASE WHEN count(reason) <> 1 THEN cleanupd.fenced() WHEN (SELECT max(number) FROM cleanupd.hold) > $%d::bigint THEN cleanupd.held_meanwhile() ELSE max(reason) END FROM %s", holds, from)
}

// askSQL returns the reason to stop; accountSQL also writes a batch's account.
var askSQL = orFails(3, "(SELECT "+stopReason+" AS reason) AS asked")

var accountSQL = withSpace + `, account AS (
  UPDATE cleanupd.task SET rows_deleted = rows_deleted + $4, rows_updated = rows_updated + $5,
    tables_dropped = tables_dropped + $6, batches = batches + $7, cursor = $8, remote_deliveries_left = remote_deliveries_left + $15,
    rows_refused = $16, rows_locked = $17, rows_kept = $18, rows_bound = $19, rows_held = $20, tables_left = $21
  WHERE run_id = $1::text::uuid AND epoch = $2 AND name = $3 AND state = 'RUNNING' RETURNING ` + stopReason + ` AS reason)
` + orFails(22, "account")

// leftArgs are the parameters for the rows that a task left.
func leftArgs(l purge.Left) []any {
	return []any{l.Refused, l.Locked, l.Kept, l.Bound, l.Held, l.Tables}
}

// account is that of a batch: the statement that writes it, if there is anything to write, and returns the reason to stop.
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
		a.args = slices.Concat(a.args[:2], []any{j.task, d.Deleted, d.Updated, d.Dropped, batches(d), d.Cursor}, spaceArgs(d.Space), []any{d.Recorded}, leftArgs(d.Cursor.Stays()), []any{holds})
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
		return execute.ErrHeld
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

// At implements execute.Journal.
func (j *journal) At(object string, expected int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress.Object, j.progress.Way, j.expected, j.changed = object, "", expected, true
}

// ScanMethod implements execute.Journal.
func (j *journal) ScanMethod(way string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress.Way, j.changed = way, true
}

// Throttled implements execute.Journal.
func (j *journal) Throttled(reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if waits := j.progress.ThrottledBy; waits != "" {
		j.m.metrics.throttled.WithLabelValues(waits).Add(time.Since(j.waiting).Seconds())
	}
	j.progress.ThrottledBy, j.changed, j.waiting = reason, true, time.Now()
}

// Retried implements execute.Journal.
func (j *journal) Retried(state string) { j.m.metrics.retries.WithLabelValues(state).Inc() }

// Log implements execute.Journal.
func (j *journal) Log(ctx context.Context, level severity.Level, messages ...string) error {
	return j.write(ctx, func(pgx.Tx) ([]Event, error) {
		var events []Event
		for _, text := range messages {
			events = append(events, Event{Kind: LogLine, Level: level, Task: j.task, Message: text})
		}
		return events, nil
	})
}

// Done implements execute.Journal.
func (j *journal) Done() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progress.RowsDeleted + j.progress.RowsUpdated
}

// TaskFinished implements execute.Journal.
func (j *journal) TaskFinished(ctx context.Context, o execute.Outcome) error {
	var run *Run
	var result *Result
	err := j.write(ctx, func(tx pgx.Tx) ([]Event, error) {
		events, err := measure(ctx, tx, j.claim.id, j.task)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, `UPDATE cleanupd.task SET state = $4, error = $5, detail = $6, rows_refused = $7, rows_locked = $8, rows_kept = $9, rows_bound = $10, rows_held = $11, tables_left = $12,
				preview = $13, planned = $14, reason = $15, metadata = $16, end_time = clock_timestamp()
			WHERE run_id = $1::text::uuid AND name = $2 AND epoch = $3`,
			slices.Concat([]any{j.claim.id, j.task, j.claim.epoch, string(o.State), o.Problem, o.Detail}, leftArgs(o.Left), plannedArgs(o))...); err != nil {
			return nil, err
		}
		if err := j.judged(ctx, tx, o); err != nil {
			return nil, err
		}
		if run, err = get(ctx, tx, j.claim.id); err != nil {
			return nil, err
		}
		result = run.Result(j.task)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.task = ""
		return append(events, Event{Kind: TaskFinished, Result: result}), nil
	})
	if err == nil {
		j.progressed()
		j.m.metrics.taskEnded(run, result)
	}
	return err
}

// plannedArgs are the parameters for what a dry run has found, and for why a task was refused.
func plannedArgs(o execute.Outcome) []any {
	var preview, planned, metadata any // NULL
	if o.Planned != nil {
		preview, planned = o.Planned.Preview, o.Planned
	}
	if o.Metadata != nil {
		metadata = o.Metadata
	}
	return []any{preview, planned, o.Reason, metadata}
}

// Gone implements execute.Journal.
func (j *journal) Gone(ctx context.Context) ([]purge.Space, error) {
	rows, err := j.m.pool.Query(ctx, "SELECT relation, root, rows_deleted, rows_updated FROM cleanupd.space WHERE run_id = $1::text::uuid AND task = $2", j.claim.id, j.task)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s purge.Space, err error) {
		return s, row.Scan(&s.Relation, &s.Root, &s.Rows, &s.Updated)
	})
}

// writeProgress writes progress events until the context ends. One that cannot be written does not end the run: the next batch finds
// out why.
func (j *journal) writeProgress(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	for quiet := 1; ; quiet++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = j.write(ctx, func(pgx.Tx) ([]Event, error) {
			j.mu.Lock()
			defer j.mu.Unlock()
			if j.task == "" || !j.changed && quiet < progressQuiet {
				return nil, nil
			}
			quiet, j.changed = 0, false
			return []Event{{Kind: TaskProgress, Task: j.task, Progress: j.snapshot()}}, nil
		})
	}
}

// snapshot is the progress as reported. It has no expectation once more rows are gone than were expected.
func (j *journal) snapshot() *Progress {
	p := j.progress
	done := p.RowsDeleted + p.RowsUpdated
	if expected := j.expected; expected >= done {
		p.RowsExpected = &expected
	}
	if elapsed := time.Since(j.since).Seconds(); elapsed > 0 {
		p.RowsPerSecond = float64(done-j.before) / elapsed
	}
	return &p
}
