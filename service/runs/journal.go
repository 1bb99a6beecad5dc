package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

var _ cleanup.Journal = (*attempt)(nil)

// TaskStarted does not start a task again that a previous worker has started.
func (a *attempt) TaskStarted(ctx context.Context, name string) error {
	var t store.StartedTask
	err := a.write(ctx, func(tx pgx.Tx) (_ []store.Event, err error) {
		if t, err = store.StartTask(ctx, tx, a.claim.Epoch, name); err != nil {
			return nil, err
		}
		if err := a.follow(t.Instructions); err != nil || !t.Started {
			return nil, err
		}
		return []store.Event{{
			Kind:     store.TaskStarted,
			Task:     name,
			Position: a.claim.position(name),
			Count:    len(a.claim.chosen),
		}}, nil
	})
	if err == nil {
		a.task.start(name, t.Progress)
	}
	return err
}

func (a *attempt) TaskFinished(ctx context.Context, o cleanup.Outcome) error {
	var (
		run    *store.Run
		result *store.Result
		id     = a.claim.RunID
		task   = a.task.name()
	)
	err := a.write(ctx, func(tx pgx.Tx) ([]store.Event, error) {
		events, err := store.Measure(ctx, tx, id, task)
		if err != nil {
			return nil, err
		}
		if err := store.FinishTask(ctx, tx, a.claim.Epoch, task, o); err != nil {
			return nil, err
		}
		if !a.claim.DryRun && a.claim.Restore == nil {
			if err := store.RecordJudgement(ctx, tx, id, task, o, a.claim.Accepted); err != nil {
				return nil, err
			}
		}
		if run, err = store.GetRun(ctx, tx, id); err != nil {
			return nil, err
		}
		result = run.Result(task)
		a.task.end()
		return append(events, store.Event{Kind: store.TaskFinished, Result: result}), nil
	})
	if err == nil {
		a.progressed()
		if o.State != cleanup.Cancelled { // the end of the run counts it
			a.m.counters.TaskEnded(run, result)
		}
	}
	return err
}

func (a *attempt) At(object string, expected int64) {
	a.task.update(func(t *taskProgress) {
		t.progress.Object, t.progress.Scan, t.expected = object, purge.Scan{}, expected
	})
}

func (a *attempt) Scanning(scan purge.Scan) {
	a.task.update(func(t *taskProgress) { t.progress.Scan = scan })
}

func (a *attempt) Throttled(throttle purge.Throttle) {
	a.task.update(func(t *taskProgress) {
		if t.throttle.Reason != "" {
			a.m.counters.Throttled(t.throttle.Reason, time.Since(t.throttledSince))
		}
		t.throttle, t.throttledSince = throttle, time.Now()
		t.progress.Throttle = throttle
	})
}

func (a *attempt) Retried(state string) { a.m.counters.Retried(state) }

func (a *attempt) Log(ctx context.Context, messages ...message.Message) error {
	return a.write(ctx, func(pgx.Tx) ([]store.Event, error) {
		var events []store.Event
		for _, m := range messages {
			events = append(events, store.LogEvent(a.task.name(), m))
		}
		return events, nil
	})
}

// write runs a transaction and appends the events that do returns. Only one write runs at a time.
func (a *attempt) write(ctx context.Context, do func(tx pgx.Tx) ([]store.Event, error)) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	var events []store.Event
	err := pgx.BeginFunc(ctx, a.m.pool, func(tx pgx.Tx) (err error) {
		if events, err = do(tx); err != nil || len(events) == 0 {
			return err
		}
		return store.AppendEvents(ctx, tx, a.claim.Epoch, events...)
	})
	if err == nil {
		a.m.counters.Logged(events...)
	}
	return err
}

func (a *attempt) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	e := a.newEntry(d)
	trash.Count(b, d)
	b.Queue(e.sql, e.args).QueryRow(func(row pgx.Row) error { return row.Scan(&e.instructions) })
	return e.settle, nil
}

func (a *attempt) Proceed(ctx context.Context) error {
	e := a.newQuestion()
	return e.settle(e.send(ctx))
}

// Count retries the statement after a transient error. Otherwise the caller would blame the table whose rows are
// counted.
func (a *attempt) Count(ctx context.Context, d purge.Delta) error {
	e := a.newEntry(d)
	for try := 1; ; try++ {
		err := e.send(ctx)
		switch attempts := purge.MaxAttempts[sqlstate.Of(err)]; {
		case attempts == 0:
			return e.settle(err)
		case try >= attempts:
			return fmt.Errorf("%w: could not write the counts: %s", cleanup.ErrLost, sqlstate.Explain(err))
		}
	}
}

type entry struct {
	attempt      *attempt
	delta        purge.Delta
	counted      bool // whether it adds the delta to the exact counts; otherwise it only asks whether to proceed
	sql          string
	args         pgx.StrictNamedArgs
	instructions []string // the result of the statement, for store.ParseInstructions
}

// newEntry returns an entry that adds a batch to the ledger or, if there is nothing to count, one that only asks
// whether to proceed.
func (a *attempt) newEntry(d purge.Delta) *entry {
	if a.task.unchanged(d) {
		e := a.newQuestion()
		e.delta = d
		return e
	}
	e := &entry{attempt: a, delta: d, counted: true}
	e.sql, e.args = store.LedgerStatement(a.claim.Epoch, a.task.knows(), a.task.name(), d)
	return e
}

// newQuestion returns an entry that only asks whether to proceed.
func (a *attempt) newQuestion() *entry {
	e := &entry{attempt: a}
	e.sql, e.args = store.ProceedStatement(a.claim.Epoch, a.task.knows())
	return e
}

func (e *entry) send(ctx context.Context) error {
	return e.attempt.m.pool.QueryRow(ctx, e.sql, e.args).Scan(&e.instructions)
}

// settle counts the batch if the statement succeeded. It fails if the statement failed, or if the run has to stop.
func (e *entry) settle(err error) error {
	if err != nil {
		return store.LedgerError(err)
	}
	a := e.attempt
	a.task.add(e.delta, e.counted)
	if e.counted {
		a.progressed()
	}
	if !a.claim.DryRun {
		a.m.counters.Committed(a.task.name(), e.delta)
	}
	return a.follow(store.ParseInstructions(e.instructions))
}

// follow sets the pace, and fails if this replica or the run has to stop. i is nil if the epoch has ended.
func (a *attempt) follow(i *store.Instructions) error {
	select {
	case <-a.stopping:
		return errStopping
	default:
	}
	switch {
	case i == nil:
		return store.ErrFenced
	case i.Stop == store.StopPaused:
		return errPaused
	case i.Stop != "":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stopReason = i.Stop
		return cleanup.ErrStopped
	}
	a.pace.Set(i.Pace)
	return nil
}

// progressed records that the database accepted a write, so that the run no longer counts as waiting.
func (a *attempt) progressed() {
	if !a.claim.progressed.Swap(true) {
		a.m.setWaits(a.claim.RunID, "")
	}
}

func (a *attempt) Done() int64 { return a.task.done() }

func (a *attempt) DoneByTable(ctx context.Context) ([]purge.Space, error) {
	return store.DoneByTable(ctx, a.m.pool, a.claim.RunID, a.task.name())
}

func (a *attempt) Emptied(ctx context.Context, task string) ([]string, error) {
	return store.Emptied(ctx, a.m.pool, a.claim.RunID, task)
}

func (a *attempt) Holds(ctx context.Context) (rules.Holds, error) {
	holds, last, err := store.EffectiveHolds(ctx, a.m.pool, a.claim.ReferenceTime)
	if err == nil && !a.claim.DryRun {
		a.task.setLastHold(last)
	}
	return holds, err
}

func (a *attempt) PolicyChange(ctx context.Context, t rules.Task) (why *message.Message, err error) {
	if t.Kind != rules.Policy || a.claim.DryRun {
		return nil, nil
	}
	name := strings.TrimPrefix(t.Name, policy.Prefix)
	a.task.setPolicy(name, t.Revision)
	now, err := store.GetPolicy(ctx, a.m.pool, name)
	changed := message.PolicyChanged.With("task", t.Name)
	switch {
	case errors.Is(err, store.ErrNoPolicy):
		changed = message.TaskRemoved.With("task", t.Name)
	case err != nil || now.Revision == t.Revision:
		return nil, err
	case !now.Enabled:
		changed = message.TaskDisabled.With("task", t.Name)
	}
	return &changed, nil
}

func (a *attempt) History(ctx context.Context) (*guard.History, error) {
	h, err := store.GuardHistory(ctx, a.m.pool, a.claim.RunID, a.task.name())
	if err == nil {
		h.Accepted = a.claim.Accepted
	}
	return h, err
}

func (a *attempt) RecordRemote(query sqlexpr.Expr) sqlexpr.Expr {
	return store.RecordRemote(a.claim.RunID, query)
}

func (a *attempt) RemoteIDs(ctx context.Context, account string) ([]int64, error) {
	holds, _, err := store.EffectiveHolds(ctx, a.m.pool, a.claim.ReferenceTime)
	if err != nil || holds.Everything {
		return nil, err
	}
	return store.RemoteIDs(ctx, a.m.pool, account, holds.Deliveries)
}

func (a *attempt) ForgetRemote(ctx context.Context, account string, ids []int64) error {
	return store.ForgetRemote(ctx, a.m.pool, account, ids)
}

// Progress is checked every progressTick. It is reported if something has changed, and after progressQuiet ticks in
// any case, which makes one to four reports a second.
const (
	progressTick  = 300 * time.Millisecond
	progressQuiet = 2
)

// writeProgress ignores errors, because the next batch would fail for the same reason and report it.
func (a *attempt) writeProgress(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	for quiet := 1; ; quiet++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = a.write(ctx, func(pgx.Tx) ([]store.Event, error) {
			e, ok := a.task.report(quiet >= progressQuiet)
			if !ok {
				return nil, nil
			}
			quiet = 0
			e.Progress.Pace = a.pace.Get()
			return []store.Event{e}, nil
		})
	}
}

// writeEvery is how often the ledger is written even if no row was deleted. Without this, another worker would have
// to scan a long stretch of retained rows again.
const writeEvery = time.Second

// taskProgress is the state of the current task. The task's concurrent workers share it.
type taskProgress struct {
	mu       sync.Mutex
	task     string // "" between tasks
	progress store.Progress
	changed  bool      // whether it changed since progress was last reported
	expected int64     // what progress.Done is expected to reach; negative if unknown
	byKeys   int64     // rows that foreign keys have updated since then, which expected leaves out
	since    time.Time // when this attempt started the task
	before   int64     // progress.Done at that time
	written  time.Time // when the ledger was last written
	cursor   purge.Cursor
	known    store.Known

	throttle       purge.Throttle // the throttle that was reported last
	throttledSince time.Time
}

// start begins a task; p has the counts of previous workers.
func (t *taskProgress) start(task string, p store.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.task, t.progress, t.changed, t.expected, t.byKeys = task, p, true, -1, 0
	t.since, t.before, t.written, t.cursor = time.Now(), p.Done(), time.Time{}, purge.Cursor{}
	t.known.Policy, t.known.Revision = nil, nil
}

func (t *taskProgress) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.task = ""
}

// name returns "" between tasks.
func (t *taskProgress) name() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.task
}

func (t *taskProgress) setLastHold(number int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known.LastHold = &number
}

func (t *taskProgress) setPolicy(name, revision string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known.Policy, t.known.Revision = &name, &revision
}

func (t *taskProgress) knows() store.Known {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// unchanged reports whether the ledger need not be written after a batch with this delta.
func (t *taskProgress) unchanged(d purge.Delta) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.Empty() && d.Recorded == 0 && d.Space == nil && d.Cursor.Unit == t.cursor.Unit &&
		d.Cursor.Pending == nil &&
		t.cursor.Pending == nil &&
		time.Since(t.written) < writeEvery
}

// add adds a batch to the progress. counted means that the ledger was written.
func (t *taskProgress) add(d purge.Delta, counted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if counted {
		t.written, t.cursor = time.Now(), d.Cursor
	}
	p := &t.progress
	p.RowsDeleted += d.Deleted
	p.RowsUpdated += d.Updated
	p.RowsCascaded += d.Cascaded
	p.RowsRestored += d.RowsRestored()
	p.TablesDropped += d.Dropped
	p.PartitionsRemoved += d.Partitions
	p.Batches += store.Batches(d)
	t.byKeys -= d.Cascaded
	for _, s := range d.Space {
		t.byKeys += s.Cascaded
	}
	t.changed = t.changed || !d.Empty()
}

func (t *taskProgress) update(change func(t *taskProgress)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
	t.changed = true
}

func (t *taskProgress) done() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.progress.Done()
}

// report returns a progress event. ok is false between tasks, and if nothing has changed unless always is set. Its
// RowsExpected is nil if the number is unknown or has been exceeded.
func (t *taskProgress) report(always bool) (e store.Event, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.task == "" || (!t.changed && !always) {
		return e, false
	}
	t.changed = false
	p := t.progress
	done := p.Done()
	if expected := t.expected + t.byKeys; t.expected >= 0 && expected >= done {
		p.RowsExpected = &expected
	}
	if elapsed := time.Since(t.since).Seconds(); elapsed > 0 {
		p.RowsPerSecond = float64(done-t.before) / elapsed
	}
	return store.Event{Kind: store.TaskProgress, Task: t.task, Progress: &p}, true
}
