package worker

import (
	"sync"
	"time"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// writeEvery is how often the ledger is written even if no row was deleted. Without this, another worker would have
// to scan a long stretch of retained rows again.
const writeEvery = time.Second

// current is the state of the current task. The concurrent workers of its sweeps share it.
type current struct {
	mu       sync.Mutex
	task     string // "" between tasks
	progress store.Progress
	changed  bool      // whether it changed since progress was last reported
	expected int64     // how many rows the task is expected to delete or update; negative if unknown
	byKeys   int64     // how many more foreign keys have updated since then, which nobody expected
	since    time.Time // when this attempt started the task
	before   int64     // how many rows the task had deleted and updated by then
	written  time.Time // when the ledger was last written
	cursor   purge.Cursor
	known    store.Known

	throttle       purge.Throttle // the throttle that was reported last
	throttledSince time.Time
}

// start begins a task; p is what previous workers have counted of it.
func (c *current) start(task string, p store.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task, c.progress, c.changed, c.expected, c.byKeys = task, p, true, -1, 0
	c.since, c.before, c.written, c.cursor = time.Now(), p.RowsDeleted+p.RowsUpdated, time.Time{}, purge.Cursor{}
	c.known.Policy, c.known.Revision = nil, nil
}

func (c *current) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task = ""
}

// name returns "" between tasks.
func (c *current) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.task
}

func (c *current) setLastHold(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.LastHold = &number
}

func (c *current) setPolicy(name, revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Policy, c.known.Revision = &name, &revision
}

func (c *current) knows() store.Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// unchanged reports whether the ledger need not be written after such a batch.
func (c *current) unchanged(d purge.Delta) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.Empty() && d.Recorded == 0 && d.Space == nil && d.Cursor.Unit == c.cursor.Unit &&
		d.Cursor.Pending == nil &&
		c.cursor.Pending == nil &&
		time.Since(c.written) < writeEvery
}

// add adds a batch to the progress. counted means that the ledger was written.
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
	p.PartitionsRemoved += d.Partitions
	p.Batches += store.Batches(d)
	c.byKeys -= d.Cascaded
	for _, s := range d.Space {
		c.byKeys += s.Cascaded
	}
	c.changed = c.changed || !d.Empty()
}

func (c *current) update(change func(c *current)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
	c.changed = true
}

func (c *current) done() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress.RowsDeleted + c.progress.RowsUpdated
}

// report returns a progress event. ok is false between tasks, and if nothing has changed unless always is set. The
// event has no expected number of rows once more rows were deleted or updated than expected.
func (c *current) report(always bool) (e store.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task == "" || (!c.changed && !always) {
		return e, false
	}
	c.changed = false
	p := c.progress
	done := p.RowsDeleted + p.RowsUpdated
	if expected := c.expected + c.byKeys; c.expected >= 0 && expected >= done {
		p.RowsExpected = &expected
	}
	if elapsed := time.Since(c.since).Seconds(); elapsed > 0 {
		p.RowsPerSecond = float64(done-c.before) / elapsed
	}
	return store.Event{Kind: store.TaskProgress, Task: c.task, Progress: &p}, true
}
