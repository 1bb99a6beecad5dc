package purge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"golang.org/x/sync/errgroup"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Sweep is one statement on one table: which rows leave it, or change.
type Sweep struct {
	// Unit names the sweep in cursors.
	Unit string
	// Name is the table's name for a person.
	Name string
	// Relation is the table's quoted name. Its partitions and children are not visited: each is a sweep of its own.
	Relation string
	// Where is the condition, over the table as r, with the parameters $1, $2 … of Args.
	Where string
	Args  []any
	// Set is what an UPDATE assigns, in the same terms as Where, which must not hold of a row any more when it has
	// been updated; nil: the rows are deleted.
	Set []Assignment
	// SetArgs are the parameters of Set and Also, numbered after those of Where.
	SetArgs []any
	// Limit is the most rows one statement may touch.
	Limit int
	// Older says that Where asks for nothing else, but for the zero record; nil: it asks for more.
	Older *Older
	// Partition says that the table is one of several that the rule's table consists of: one that is older is dropped.
	Partition bool
	// Also is a statement that shares the batch's: it reads the rows that went, or changed, from gone, whose columns
	// are those of Returning; nil: none.
	Also *Also
	// Twin is a table whose rows go in the very statement that deletes those of the same id; nil: none.
	Twin *Twin
}

// Assignment is a column, and the SQL of its new value.
type Assignment struct{ Column, Value string }

// Older is a condition on a date.
type Older struct {
	Column string
	Than   time.Time
	// Key is the column of which 0 is the zero record, which stays; empty: there is none.
	Key string
}

// Also is a data-modifying statement beside that of a sweep.
type Also struct{ Returning, SQL string }

// Twin is a table that shares its ids, one to one, with the table that is swept.
type Twin struct {
	// Relation is its quoted name.
	Relation string
	// Key is its id column, and ID that of the swept table.
	Key, ID string
	// Before are sweeps of the same parameters that come before, and take their twins: those are not counted again.
	Before []Sweep
}

// Result is what a sweep leaves behind.
type Result struct {
	// Locked is how many obsolete rows stayed since someone else held their locks.
	Locked int64
	// TableLocked says that the sweep ended early: someone held a lock that could not be passed over, as on the
	// whole table.
	TableLocked bool
	// Kept is how many obsolete rows stayed though nobody held their locks: a trigger or rule of the application's says no.
	Kept int64
	// Dropped says that the table was a partition that went with all of its rows.
	Dropped bool
}

// Run deletes the rows of the sweep from the cursor on, to the end of the table, or of the index on the way that was
// chosen.
func (e *Engine) Run(ctx context.Context, s Sweep, from Cursor) (result Result, err error) {
	err = e.open(ctx, []Sweep{s}, func(sw *sweep) error {
		err := sw.run(ctx, from)
		if result = sw.result; sqlstate.Is(err, pgerrcode.LockNotAvailable) { // not even its size can be asked
			result.TableLocked, err = true, nil
		}
		return err
	})
	return result, err
}

// open hands sweeps over, one after the other, with a session.
func (e *Engine) open(ctx context.Context, sweeps []Sweep, use func(sw *sweep) error) error {
	session, err := e.session(ctx)
	if err != nil {
		return err
	}
	defer session.end(ctx)
	for _, s := range sweeps {
		if err := use(&sweep{Engine: e, Sweep: s, session: session, axis: blocks, undone: map[*worker]int64{}}); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// run deletes the rows of the sweep.
func (sw *sweep) run(ctx context.Context, from Cursor) error {
	sw.mostRows = sw.Limit
	if sw.MaxRows > 0 {
		sw.mostRows = min(sw.mostRows, sw.MaxRows)
	}
	if sw.Twin != nil { // each row may take another one with it
		sw.mostRows = max(sw.mostRows/2, 1)
	}
	if sw.Older != nil && sw.Partition {
		var err error
		if sw.result.Dropped, err = sw.dropPartition(ctx); sw.result.Dropped || err != nil {
			sw.tellWay("drop of the partition")
			return err
		}
	}
	t, err := sw.look(ctx)
	if err != nil {
		return err
	}
	if t.instead {
		return sw.each(ctx, func(_ context.Context, rows int64) error { sw.result.Kept += rows; return nil })
	}
	done, err := sw.byIndex(ctx, t)
	if !done && err == nil {
		sw.tellWay("table")
		err = sw.byBlock(ctx, from)
	}
	return err
}

// byBlock sweeps the table, from the cursor on.
func (sw *sweep) byBlock(ctx context.Context, from Cursor) error {
	sw.axis, sw.next, sw.result = blocks, 0, Result{}
	if from.Unit == sw.Unit {
		sw.next, sw.filenode = from.Place, from.Filenode
	}
	// The end of the table is read again at the end, for the rows that moved there meanwhile. What stood below the cursor
	// may be anywhere once the table was rewritten.
	for range 2 {
		end, filenode, err := sw.end(ctx)
		if err != nil {
			return err
		}
		if sw.filenode != filenode {
			sw.next, sw.filenode = 0, filenode
		}
		if sw.next < end {
			sw.next = max(sw.next-1, 0) // the last block may have got more rows, too
			if err := sw.to(ctx, end); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) tellWay(way string) {
	if e.Way != nil {
		e.Way(way)
	}
}

// sweep is a sweep at work: its workers take one stretch of the axis after the other.
type sweep struct {
	*Engine
	Sweep
	axis
	session  *session // for questions, and of the first worker
	crowd    *crowd
	mostRows int    // of a statement
	simple   bool   // the plain statement will do
	ruled    bool   // a rule does something beside the command, which then can not be part of a statement
	root     string // where rows that are updated may move to another partition: what is partitioned, quoted; empty: nowhere
	oid      uint32 // of the table

	mu       sync.Mutex
	next     int64             // the first place that no worker has taken yet
	undone   map[*worker]int64 // the first place of each worker's stretch that is not done
	filenode uint32            // of the table as it was last seen; 0: not yet
	gone     int64             // rows, since the sweep began on this axis
	result   Result
	paced    pace // as a worker had it last
}

// to sweeps up to the end of the axis.
func (sw *sweep) to(ctx context.Context, end int64) error {
	workers := 1
	if end-sw.next > sw.stretch && sw.Also == nil { // what goes beside the rows is not known to be disjoint
		workers = max(sw.Workers, 1)
	}
	sw.crowd, sw.paced = newCrowd(workers), newPace(sw.mostRows, sw.axis, sw.Target)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return (&worker{sweep: sw, session: sw.session}).work(ctx, end) })
	for range workers - 1 {
		group.Go(func() error {
			if err := sw.crowd.enter(ctx); err != nil {
				return err
			}
			return (&worker{sweep: sw}).work(ctx, end)
		})
	}
	return group.Wait()
}
