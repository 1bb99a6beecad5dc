package runs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// errHandover says that this replica is stopping and the run continues elsewhere; errFenced that this replica does not
// hold the run any more.
var (
	errHandover = fmt.Errorf("%w: this replica is stopping", pipeline.ErrLost)
	errFenced   = fmt.Errorf(
		"%w: another replica has it, it has ended, or the database server was restarted or replaced",
		pipeline.ErrLost,
	)
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
	throttle purge.Throttle // why a batch waits, as last reported
	waiting  time.Time      // when that was
	cursor   purge.Cursor   // as last written
	holds    *int64         // the last hold that was created when the task at work read them; nil: it obeys none
}

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
		return pipeline.ErrStopped
	}
	return nil
}

// TaskStarted implements pipeline.Tasks. A task that a previous worker started is not started again.
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
			SELECT `+stopReason+`, EXISTS (SELECT FROM begun), rows_deleted, rows_updated, tables_dropped, batches
				FROM cleanupd.task
			WHERE run_id = $1::text::uuid AND name = $3`, j.claim.id, j.claim.epoch, name).
			Scan(&reason, &begins, &p.RowsDeleted, &p.RowsUpdated, &p.TablesDropped, &p.Batches); err != nil {
			return nil, err
		}
		if err := j.halt(reason); err != nil || !begins {
			return nil, err
		}
		return []Event{
			{Kind: TaskStarted, Task: name, Position: j.claim.position(name), Count: len(j.claim.chosen)},
		}, nil
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

// Log implements pipeline.Progress.
func (j *journal) Log(ctx context.Context, level severity.Level, messages ...string) error {
	return j.write(ctx, func(pgx.Tx) ([]Event, error) {
		var events []Event
		for _, text := range messages {
			events = append(events, Event{Kind: LogLine, Level: level, Task: j.task, Message: text})
		}
		return events, nil
	})
}

// TaskFinished implements pipeline.Tasks.
func (j *journal) TaskFinished(ctx context.Context, o pipeline.Outcome) error {
	var run *Run
	var result *Result
	err := j.write(ctx, func(tx pgx.Tx) ([]Event, error) {
		events, err := measure(ctx, tx, j.claim.id, j.task)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(
			ctx,
			`UPDATE cleanupd.task
				SET state = $4, error = $5, detail = $6, rows_refused = $7, rows_locked = $8, rows_kept = $9,
				rows_bound = $10, rows_held = $11, tables_left = $12,
				preview = $13, planned = $14, reason = $15, metadata = $16, end_time = clock_timestamp()
			WHERE run_id = $1::text::uuid AND name = $2 AND epoch = $3`,
			slices.Concat(
				[]any{
					j.claim.id,
					j.task,
					j.claim.epoch,
					string(o.State),
					connection.Text(o.Problem),
					connection.Text(o.Detail),
				},
				leftArgs(o.Retained),
				plannedArgs(o),
			)...); err != nil {
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
func plannedArgs(o pipeline.Outcome) []any {
	var preview, planned, metadata any // NULL
	if o.Preview != nil {
		preview, planned = o.Preview.Tables, o.Preview
	}
	if o.Metadata != nil {
		metadata = o.Metadata
	}
	return []any{preview, planned, o.Reason, metadata}
}

// DoneByTable implements pipeline.Counts.
func (j *journal) DoneByTable(ctx context.Context) ([]purge.Space, error) {
	rows, err := j.m.pool.Query(
		ctx,
		"SELECT relation, root, rows_deleted, rows_updated FROM cleanupd.space WHERE run_id = $1::text::uuid AND "+
			"task = $2",
		j.claim.id,
		j.task,
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s purge.Space, err error) {
		return s, row.Scan(&s.Relation, &s.Root, &s.Rows, &s.Updated)
	})
}
