package worker

import (
	"sync"
	"time"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// writeEvery is how often the ledger is written even if no row was deleted, so that another worker need not scan a long
// stretch of retained rows again.
const writeEvery = time.Second

// current is the state of the current task. Workers of its sweeps use it concurrently.
type current struct {
	mu       sync.Mutex
	task     string // "" between tasks
	progress store.Progress
	changed  bool      // since progress was last reported
	expected int64     // the rows of the task; negative if unknown
	since    time.Time // when the task was started here
	before   int64     // the rows it had deleted and updated by then
	written  time.Time // when the ledger was last written
	cursor   purge.Cursor
	known    store.Known

	throttle       purge.Throttle // as last reported
	throttledSince time.Time
}

// start makes a task the current one. p has what previous workers have counted of it.
func (c *current) start(task string, p store.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task, c.progress, c.changed, c.expected = task, p, true, -1
	c.since, c.before, c.written, c.cursor = time.Now(), p.RowsDeleted+p.RowsUpdated, time.Time{}, purge.Cursor{}
	c.known.Policy, c.known.Revision = nil, nil
}

// end makes no task the current one.
func (c *current) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task = ""
}

// name returns the name of the current task; "" between tasks.
func (c *current) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.task
}

// setLastHold sets the number of the last hold that the task has read.
func (c *current) setLastHold(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.LastHold = &number
}

// setPolicy sets which revision the task has read of its policy.
func (c *current) setPolicy(name, revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Policy, c.known.Revision = &name, &revision
}

// knows returns what the task has read that may change.
func (c *current) knows() store.Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// unchanged reports whether a batch changed nothing that has to be written now.
func (c *current) unchanged(d purge.Delta) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.Empty() && d.Recorded == 0 && d.Space == nil && d.Cursor.Unit == c.cursor.Unit &&
		d.Cursor.Pending == nil &&
		c.cursor.Pending == nil &&
		time.Since(c.written) < writeEvery
}

// add adds a batch to the progress. counted says that the ledger was written.
func (c *current) add(d purge.Delta, counted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counted {
		c.written, c.cursor = time.Now(), d.Cursor
	}
	p := &c.progress
	p.RowsDeleted += d.Deleted
	p.RowsUpdated += d.Updated
	p.RowsCascaded += d.Cascaded
	p.TablesDropped += d.Dropped
	p.Batches += store.Batches(d)
	c.changed = c.changed || !d.Empty()
}

// update changes what the next report has of the task.
func (c *current) update(change func(c *current)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
	c.changed = true
}

// done returns how many rows the task has deleted and updated.
func (c *current) done() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress.RowsDeleted + c.progress.RowsUpdated
}

// report returns an event with the progress of the task; ok is false between tasks, or if nothing has changed, unless
// always is set. No rows are expected once more were deleted.
func (c *current) report(always bool) (e store.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task == "" || (!c.changed && !always) {
		return e, false
	}
	c.changed = false
	p := c.progress
	done := p.RowsDeleted + p.RowsUpdated
	if expected := c.expected; expected >= done {
		p.RowsExpected = &expected
	}
	if elapsed := time.Since(c.since).Seconds(); elapsed > 0 {
		p.RowsPerSecond = float64(done-c.before) / elapsed
	}
	return store.Event{Kind: store.TaskProgress, Task: c.task, Progress: &p}, true
}
