package purge

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Sweep says which rows of one table are deleted or updated.
type Sweep struct {
	// Unit names the sweep in cursors.
	Unit string
	// Name is the table's name for people.
	Name string
	// Relation is the table's quoted name. Its partitions and children are not visited: each is a sweep of its own.
	Relation string
	// Root is the quoted name of the table that it is, or is a part of.
	Root string
	// Where is the condition, over the table as r, with the parameters $1, $2 … of Args.
	Where string
	Args  []any
	// ReadsOthers says that Where reads other tables, too.
	ReadsOthers bool
	// Set is what an UPDATE assigns, in the same terms as Where, which must no longer match an updated row; nil: the
	// rows are deleted.
	Set []Assignment
	// SetArgs are the parameters of Set, numbered after those of Where.
	SetArgs []any
	// Limit is the most rows one statement may touch.
	Limit int
	// Elsewhere says that TIDs do not serve: rows of the table, or of one that the statements read, are on another
	// server.
	Elsewhere bool
	// ByKey is an integer column to go by then; empty: there is none, and the sweep is refused.
	ByKey string
	// Keys are the only values that rows of the sweep have in ByKey; nil: they may have any.
	Keys []int64
	// Older says that Where is this condition and nothing else, except for the zero record and what Narrowed says; nil:
	// it is not.
	Older *Older
	// Narrowed says that Without or And has added conditions.
	Narrowed bool
	// Partition says that the table is one of the partitions of the rule's table: one that is entirely older is
	// dropped.
	Partition bool
	// Key is the integer column that names a row for people; empty: its TID does.
	Key string
	// Companion is part of the batch's statement: it reads the deleted or updated rows from gone, which has the columns of
	// Returning; nil: none.
	Companion *Companion
	// Paired is a table whose rows are deleted in the same statement as those of the same id; nil: none.
	Paired *Paired
}

// Assignment is a column, and the SQL of its new value.
type Assignment struct{ Column, Value string }

// Older is a condition on a date.
type Older struct {
	Column string
	Than   time.Time
	// Key is the column that is 0 in the zero record, which stays; empty: there is none.
	Key string
}

// Companion is a data-modifying statement that accompanies that of a sweep. Its parameters are numbered after those of Set.
type Companion struct {
	Returning, SQL string
	Args           []any
}

// Paired is a table that shares its ids, one to one, with the swept table.
type Paired struct {
	// Relation is its quoted name.
	Relation string
	// Key is its id column, and ID that of the swept table.
	Key, ID string
	// Before are earlier sweeps with the same parameters, whose paired rows are not counted again.
	Before []Sweep
}

// Result is what a sweep could not delete, and whether it dropped the table.
type Result struct {
	Retained
	// FirstError is the first error by which a row refused here; nil: none did.
	FirstError error
	// TableLocked says that the sweep ended early because of a lock that could not be skipped, such as one on the whole
	// table.
	TableLocked bool
	// GaveUp says that the sweep ended early because more rows than MostRefused refused.
	GaveUp bool
	// Dropped says that the table was a partition that went with all of its rows.
	Dropped bool
}

// Run deletes or updates the rows of the sweep, from the cursor on if it sweeps the table.
func (e *Engine) Run(ctx context.Context, s Sweep, from Cursor) (result Result, err error) {
	err = e.open(ctx, []Sweep{s}, func(sw *sweep) error {
		sw.before = from.Before
		err := sw.run(ctx, from)
		result = sw.result
		result.Retained = sw.left()
		if sqlstate.Is(err, pgerrcode.LockNotAvailable) { // not even its size can be read
			result.TableLocked, err = true, nil
		}
		return err
	})
	return result, err
}

// open calls use with one sweep after another, and a session.
func (e *Engine) open(ctx context.Context, sweeps []Sweep, use func(sw *sweep) error) error {
	session, err := e.session(ctx)
	if err != nil {
		return err
	}
	defer session.end(ctx)
	durable := *e
	durable.Durable = true // what another server has committed must not be lost here
	for _, s := range sweeps {
		engine := e
		if s.Elsewhere {
			engine = &durable
		}
		if err := use(
			&sweep{
				Engine:  engine,
				Sweep:   s,
				session: session,
				axis:    blocks,
				undone:  map[*worker]int64{},
				refused: map[pgtype.TID]bool{},
			},
		); err != nil {
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
	if sw.Paired != nil { // each row may take another one with it
		sw.mostRows = max(sw.mostRows/2, 1)
	}
	if sw.Elsewhere {
		return refused(sw.byKey(ctx, from))
	}
	if sw.Older != nil && !sw.Narrowed && sw.Partition {
		var err error
		if sw.result.Dropped, err = sw.dropPartition(ctx); sw.result.Dropped || err != nil {
			sw.Recorder.ScanMethod("drop of the partition")
			return err
		}
	}
	t, err := sw.inspect(ctx)
	if err != nil {
		return err
	}
	if t.instead {
		return sw.each(
			ctx,
			func(_ context.Context, rows int64) error { sw.leave(0, Retained{Suppressed: rows}); return nil },
		)
	}
	done, err := sw.byIndex(ctx, t)
	if !done && err == nil {
		sw.Recorder.ScanMethod("table")
		err = sw.byBlock(ctx, from)
	}
	return err
}

// byBlock sweeps the table, from the cursor on.
func (sw *sweep) byBlock(ctx context.Context, from Cursor) error {
	sw.axis, sw.next = blocks, 0
	sw.forget()
	if from.Unit == sw.Unit {
		sw.next, sw.filenode, sw.stays, sw.counted = from.Place, from.Filenode, []stay{
			{from.Place, from.Retained},
		}, from.Place
	}
	// The end of the table is read again when it is reached, for rows that moved there in the meantime. After a
	// rewrite, rows from below the cursor may be anywhere.
	for range 2 {
		end, filenode, err := sw.end(ctx)
		if err != nil {
			return err
		}
		if sw.filenode != filenode {
			sw.next, sw.filenode = 0, filenode
			sw.forget()
		}
		if sw.next < end {
			sw.next, sw.counted = max(sw.next-1, 0), sw.next // the last block may have got more rows, too
			if err := sw.to(ctx, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep is a running Sweep: its workers take one chunk of the axis after another.
type sweep struct {
	*Engine
	Sweep
	axis
	session  *session // for queries, and of the first worker
	limiter  *pace.Limiter
	mostRows int    // of a statement
	simple   bool   // the plain statement will do
	slow     string // what may make each row slow; empty if nothing is known
	ruled    bool   // there is a DO ALSO rule, so that the command cannot be part of a WITH query
	root     string // the partitioned table, quoted, if updated rows may move to another partition; empty: they do not
	oid      uint32 // of the table
	stuck    bool   // its rows cannot move to another partition, though they may have to

	mu       sync.Mutex
	next     int64             // the first position that no worker has taken yet
	undone   map[*worker]int64 // the first position of each worker's chunk that is not done
	filenode uint32            // of the table as it was last seen; 0: not yet
	gone     int64             // rows, since the sweep began on this axis
	before   Retained          // what earlier sweeps of the caller left
	stays    []stay
	named    int                 // how many rows that refused were counted here
	counted  int64               // below this position what stays was counted before
	refused  map[pgtype.TID]bool // rows that refused
	result   Result              // but for what is left
	sized    pace.Sizer          // as a worker had it last
}

// to sweeps up to the end of the axis.
func (sw *sweep) to(ctx context.Context, end int64) error {
	workers := 1
	if end-sw.next > sw.chunk && sw.Companion == nil { // what Also changes may overlap between workers
		workers = max(sw.Workers, 1)
	}
	sw.limiter, sw.sized = pace.NewLimiter(
		workers,
	), pace.NewSizer(
		sw.mostRows,
		sw.windows(),
		cmp.Or(sw.Target, DefaultTarget),
	)
	group, ctx := errgroup.WithContext(ctx)
	spawn := func(work func() error) { group.Go(func() error { return rescue.Call(work) }) }
	spawn(func() error { return (&worker{sweep: sw, session: sw.session}).work(ctx, end) })
	for range workers - 1 {
		spawn(func() error {
			if err := sw.limiter.Acquire(ctx); err != nil {
				return err
			}
			return (&worker{sweep: sw}).work(ctx, end)
		})
	}
	return group.Wait()
}
