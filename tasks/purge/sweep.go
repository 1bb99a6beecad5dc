package purge

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
		if result = sw.result; hasState(err, lockNotAvailable) { // not even its size can be asked
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
		if err := use(&sweep{Engine: e, Sweep: s, session: session, axis: blocks, open: map[*worker]int64{}}); err != nil {
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
	open     map[*worker]int64 // the first place of each worker's stretch that is not done
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

// take gives a worker its next stretch; it is not ok when there is none.
func (sw *sweep) take(w *worker, end int64) bool {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.next >= end || sw.result.TableLocked {
		return false
	}
	w.from, w.to = sw.next, sw.next+sw.share(end)
	sw.next, sw.open[w] = w.to, w.from
	return true
}

// share is how much a worker takes of what is left: less near the end where several are at work, so that all come to it at
// about the same time.
func (sw *sweep) share(end int64) int64 {
	left := end - sw.next
	most := min(sw.stretch, left)
	if workers := sw.crowd.places(); workers > 1 {
		return min(max(left/int64(2*workers), sw.axis.first), most)
	}
	return most
}

// extend makes a worker's stretch longer when it is too short for a batch, and what comes next is nobody's.
func (sw *sweep) extend(w *worker, end int64) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if w.to == sw.next && w.to-w.from < w.width*w.together {
		w.to += sw.share(end)
		sw.next = w.to
	}
}

// cursor is the place that the sweep has come to when a worker's stretch is done up to a place: the lowest that is not.
// Of a table that was rewritten the blocks are begun again, since what was below the cursor may be anywhere.
func (sw *sweep) cursor(w *worker, done int64, filenode uint32) Cursor {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.found != nil || sw.part {
		return Cursor{Unit: sw.Unit}
	}
	if sw.filenode != 0 && sw.filenode != filenode {
		sw.next = 0
	}
	sw.filenode = filenode
	c := Cursor{Unit: sw.Unit, Filenode: filenode, Place: sw.next}
	for other, first := range sw.open {
		if other != w {
			c.Place = min(c.Place, first)
		} else if done < w.to {
			c.Place = min(c.Place, done)
		}
	}
	return c
}

// pacing is how a worker begins.
func (sw *sweep) pacing() pace {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return sw.paced
}

// committed notes that a worker's stretch is done up to a place, how many rows went, and how many obsolete ones are left
// below it.
func (sw *sweep) committed(w *worker, done, gone, left int64) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.gone, sw.paced = sw.gone+gone, w.pace
	if w.passesOver() {
		sw.result.Locked += left
	} else {
		sw.result.Kept += left
	}
	if w.from = done; done < w.to {
		sw.open[w] = done
	} else {
		delete(sw.open, w)
	}
}

// table is what a sweep's table is like.
type table struct {
	instead bool    // a rule does something instead of the command
	blocks  int64   // its size
	enough  float64 // rows a block that make it worth to visit every block
}

// lookSQL asks whether a rule of what is named ($2) does something instead of a command ($3, as pg_rewrite has it), or beside it,
// whether a table has triggers, and what refers to it by a foreign key without an index; then for its size, and for how many
// rows a block make it worth to visit every block: so many that hardly a block has none, or half of those that a block of large
// rows has.
const lookSQL = `
SELECT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND is_instead),
  EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND NOT is_instead AND ev_action::text <> '<>'),
  EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND (NOT tgisinternal OR tgparentid <> 0 AND tgconstraint = 0)),
  ARRAY(SELECT format('%s (%s)', f.conrelid::regclass, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place)
      FROM unnest(f.conkey) WITH ORDINALITY AS k (number, place) JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.number))
    FROM pg_constraint f WHERE f.contype = 'f' AND f.confrelid = c.oid AND NOT EXISTS (
      SELECT FROM pg_index i WHERE i.indrelid = f.conrelid AND i.indkey[0] = ANY (f.conkey) AND i.indpred IS NULL AND i.indisvalid)
    ORDER BY 1),
  pg_relation_size(c.oid) / current_setting('block_size')::bigint, least(2, greatest(reltuples, 1) / greatest(relpages, 1) / 2)
FROM pg_class c WHERE c.oid = $1::text::regclass`

// look finds out what the table is like, and whether the plain statement will do: nothing goes beside the rows, and no
// trigger may keep them. Where a rule does something beside what goes beside the rows, they stay as where it does something
// instead. It warns of what makes each row dear.
func (sw *sweep) look(ctx context.Context) (t table, err error) {
	command := "4"
	if sw.Set != nil {
		command = "2"
		if err := sw.movesTo(ctx); err != nil {
			return t, err
		}
	}
	var (
		triggers  bool
		unindexed []string
	)
	if err := sw.read(ctx, []any{&t.instead, &sw.ruled, &triggers, &unindexed, &t.blocks, &t.enough}, lookSQL, sw.Relation, cmp.Or(sw.root, sw.Relation), command); err != nil {
		return t, err
	}
	if sw.Set == nil {
		for _, key := range unindexed {
			sw.Warn(fmt.Sprintf("%s: a foreign key refers to it without an index, all of that table is read for each row that goes: create an index on %s", sw.Name, key))
		}
	}
	t.instead = t.instead || sw.ruled && (sw.Twin != nil || sw.Also != nil)
	sw.simple = !triggers && sw.Twin == nil && sw.Also == nil && sw.root == ""
	return t, nil
}

// rootSQL asks for the root of the partitions of which a table is one, if it or one below it is partitioned by one of some
// columns ($2), or by an expression.
const rootSQL = `
SELECT c.oid, COALESCE((SELECT format('%I.%I', n.nspname, r.relname) FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
  WHERE r.oid = pg_partition_root(c.oid) AND EXISTS (SELECT FROM pg_partition_ancestors(c.oid) AS a JOIN pg_partitioned_table p ON p.partrelid = a.relid
    WHERE 0 = ANY (p.partattrs::int2[]) OR EXISTS (SELECT FROM pg_attribute k WHERE k.attrelid = a.relid AND k.attnum = ANY (p.partattrs::int2[]) AND k.attname = ANY ($2::text[])))), '')
FROM pg_class c WHERE c.oid = $1::text::regclass`

// movesTo finds out whether rows that are updated may have to move to another partition, which they do only when the statement
// names what is partitioned.
func (sw *sweep) movesTo(ctx context.Context) error {
	var columns []string
	for _, a := range sw.Set {
		columns = append(columns, strings.ToLower(a.Column))
	}
	return sw.read(ctx, []any{&sw.oid, &sw.root}, rootSQL, sw.Relation, columns)
}

// end is the number of blocks the table has now, and the file that they are in.
func (sw *sweep) end(ctx context.Context) (blocks int64, filenode uint32, err error) {
	err = sw.read(ctx, []any{&blocks, &filenode}, "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint, pg_relation_filenode($1::text::regclass)", sw.Relation)
	return blocks, filenode, err
}

// read scans the one row of a query about the sweep's table.
func (sw *sweep) read(ctx context.Context, dest []any, sql string, args ...any) error {
	return sw.Retry(ctx, sw.Name, func() error { return sw.session.conn.QueryRow(ctx, sql, args...).Scan(dest...) })
}
