package purge

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
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
	// been updated; empty: the rows are deleted.
	Set string
	// SetArgs are the parameters of Set and Also, numbered after those of Where.
	SetArgs []any
	// Limit is the most rows one statement may touch.
	Limit int
	// Also is a statement that shares the batch's: it reads the rows that went, or changed, from gone, whose columns
	// are those of Returning; nil: none.
	Also *Also
	// Twin is a table whose rows go in the very statement that deletes those of the same id; nil: none.
	Twin *Twin
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
	// Kept is how many times a full batch of rows matched and none of them went (a trigger of the application's
	// that says no), so that the sweep left their window.
	Kept int
}

// idleBatches is how many batches in a row may find rows and delete none before the sweep leaves their window.
const idleBatches = 3

// state is a sweep at work.
type state struct {
	*Engine
	Sweep
	limit  int
	blocks int64 // the window's width
	cursor Cursor
	// skipLocked passes over rows that someone else has locked, in this window only.
	skipLocked bool
	idle       int
	result     Result
}

// Run deletes the rows of the sweep from the cursor on, to the end of the table.
func (e *Engine) Run(ctx context.Context, s Sweep, from Cursor) (Result, error) {
	st := &state{Engine: e, Sweep: s, limit: s.Limit, blocks: windowBlocks, cursor: from}
	if e.MaxRows > 0 {
		st.limit = min(st.limit, e.MaxRows)
	}
	if s.Twin != nil { // each row may take another one with it
		st.limit = max(st.limit/2, 1)
	}
	if from.Unit != s.Unit {
		st.cursor = Cursor{Unit: s.Unit}
	}
	// The end of the table is read again at the end, for the rows that moved there meanwhile.
	for range 2 {
		end, err := e.end(ctx, s)
		for err == nil && st.cursor.Block < end {
			err = st.step(ctx, end)
		}
		// Passing over locked rows takes the right to lock them (UPDATE), which the role may not have.
		if hasState(err, lockNotAvailable) || st.skipLocked && hasState(err, insufficientPrivilege) {
			st.result.TableLocked = true
			return st.result, nil
		}
		if err != nil {
			return st.result, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return st.result, nil
}

// step runs one batch and answers to what stopped it.
func (st *state) step(ctx context.Context, end int64) error {
	err := st.Retry(ctx, st.Name, func() error { return st.batch(ctx, end) })
	switch {
	case hasState(err, queryCanceled) && (st.blocks > 1 || st.limit > 1):
		st.blocks, st.limit = max(st.blocks/2, 1), max(st.limit/2, 1)
		st.Warn(fmt.Sprintf("%s: a batch took too long; going on with half of it: %d rows of %d blocks at most", st.Name, st.limit, st.blocks))
		return nil
	case hasState(err, lockNotAvailable) && !st.skipLocked:
		st.skipLocked = true
		return nil
	}
	return err
}

// batch deletes at most limit rows of the window at the cursor, in a transaction, and moves the cursor on when
// the window has no more.
func (st *state) batch(ctx context.Context, end int64) error {
	tx, err := st.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	next := min(st.cursor.Block+st.blocks, end)
	var picked, gone, twins int64
	if err := tx.QueryRow(ctx, st.batchSQL(), slices.Concat(st.Args, st.SetArgs, []any{tid(st.cursor.Block), tid(next), st.limit})...).Scan(&picked, &gone, &twins); err != nil {
		return err
	}
	// Asked after the DELETE, which locks the table against being rewritten.
	cursor := st.cursor
	if err := tx.QueryRow(ctx, "SELECT pg_relation_filenode($1::text::regclass)", st.Relation).Scan(&cursor.Filenode); err != nil {
		return err
	}
	idle, kept := 0, 0
	if picked > 0 && gone == 0 {
		idle = st.idle + 1
	}
	done := picked < int64(st.limit)
	if idle == idleBatches && !done {
		idle, kept, done = 0, 1, true
	}
	switch {
	case st.cursor.Filenode != 0 && st.cursor.Filenode != cursor.Filenode:
		cursor.Block, done = 0, false // rewritten: what was below the cursor may be anywhere
	case done:
		cursor.Block = next
	}
	var locked int64
	if done && st.skipLocked {
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE", st.Relation, window(len(st.Args)), st.Where),
			slices.Concat(st.Args, []any{tid(st.cursor.Block), tid(next)})...).Scan(&locked); err != nil {
			return err
		}
	}
	d := Delta{Deleted: gone + twins, Cursor: cursor}
	if st.Set != "" {
		d.Deleted, d.Updated = 0, gone
	}
	if err := st.Commit(ctx, tx, d); err != nil {
		return err
	}
	st.cursor, st.idle = cursor, idle
	st.result.Locked += locked
	st.result.Kept += kept
	st.skipLocked = st.skipLocked && !done
	return nil
}

// batchSQL is the statement of a batch: it picks rows of the window, deletes or updates those that still match,
// and their twins with them, and counts all three. IS TRUE keeps the planner from using an index on the condition, since the
// window is what bounds the work. The rows picked, not those gone, say whether the window may hold more: one that
// the application changed in between stays.
func (st *state) batchSQL() string {
	id, lock, free, chosen, twins := "0", "", "", "SELECT place FROM pick", "SELECT 1 WHERE false"
	returning, args := "", len(st.Args)+len(st.SetArgs)
	if st.skipLocked {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	if t := st.Twin; t != nil {
		id = "r." + t.ID
		twins = fmt.Sprintf("DELETE FROM %[1]s AS t USING gone WHERE t.%[2]s = gone.id AND t.%[2]s <> 0 RETURNING 1", t.Relation, t.Key)
		if st.skipLocked { // a row whose twin is locked stays with it
			free = fmt.Sprintf(" free AS MATERIALIZED (SELECT t.%[2]s AS id FROM %[1]s AS t WHERE t.%[2]s = ANY (ARRAY(SELECT id FROM pick)) FOR UPDATE SKIP LOCKED),", t.Relation, t.Key)
			chosen += fmt.Sprintf(" AS p WHERE p.id IN (SELECT id FROM free) OR NOT EXISTS (SELECT FROM %s AS t WHERE t.%s = p.id)", t.Relation, t.Key)
		}
	}
	if st.Also != nil {
		returning, twins = ", "+st.Also.Returning, st.Also.SQL+" RETURNING 1"
	}
	verb := "DELETE FROM ONLY " + st.Relation + " AS r"
	if st.Set != "" {
		verb = "UPDATE ONLY " + st.Relation + " AS r SET " + st.Set
	}
	return fmt.Sprintf(`WITH pick AS MATERIALIZED (SELECT r.ctid AS place, %[4]s AS id FROM ONLY %[1]s AS r WHERE %[2]s AND (%[3]s) IS TRUE LIMIT $%[5]d%[6]s),%[7]s
gone AS (%[10]s WHERE r.ctid = ANY (ARRAY(%[8]s)) AND (%[3]s) RETURNING %[4]s AS id%[11]s),
twins AS (%[9]s)
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone), (SELECT count(*) FROM twins)`,
		st.Relation, window(args), st.Where, id, args+3, lock, free, chosen, twins, verb, returning)
}

// window is the condition that a row stands in the window, whose ends are the parameters after so many others.
func window(after int) string {
	return fmt.Sprintf("r.ctid >= $%d AND r.ctid < $%d", after+1, after+2)
}

func tid(block int64) pgtype.TID { return pgtype.TID{BlockNumber: uint32(block), Valid: true} }

// end is the number of blocks the table has now.
func (e *Engine) end(ctx context.Context, s Sweep) (blocks int64, err error) {
	err = e.read(ctx, s, []any{&blocks}, "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint", s.Relation)
	return blocks, err
}

// read scans the one row of a query about a sweep's table, under the timeouts of a batch.
func (e *Engine) read(ctx context.Context, s Sweep, dest []any, sql string, args ...any) error {
	return e.Retry(ctx, s.Name, func() error {
		tx, err := e.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		return tx.QueryRow(ctx, sql, args...).Scan(dest...)
	})
}
