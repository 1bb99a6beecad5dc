package purge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Sweep deletes or updates all rows of the sweep. It continues at the cursor if that belongs to this sweep.
func (e *Engine) Sweep(ctx context.Context, s Sweep, from Cursor) (result Result, err error) {
	err = e.open(ctx, []Sweep{s}, func(t *table) error {
		o := &outcome{before: from.Before}
		var err error
		if s.NoTIDs {
			err = asOtherServerError((&keySweep{table: t, outcome: o}).run(ctx, from))
		} else {
			err = (&localSweep{table: t, progress: newProgress(s.Unit, o)}).run(ctx, from)
		}
		result = o.result
		result.Retained = o.total()
		if sqlstate.Is(err, pgerrcode.LockNotAvailable) { // not even its size can be read
			result.TableLocked, err = true, nil
		}
		return err
	})
	return result, err
}

// localSweep sweeps a table on this server: workers take one chunk of the axis after another.
type localSweep struct {
	table    *table
	progress *progress
	info     tableInfo
	maxRows  int // the most rows of a statement
}

func (l *localSweep) run(ctx context.Context, from Cursor) error {
	s, r := l.table.sweep, l.table.engine.Recorder
	l.maxRows = s.maxRows(l.table.engine.MaxRows)
	if s.Removes() {
		removed, problem, err := l.table.removePartition(ctx, from.Before)
		result := &l.progress.outcome.result
		if s.Partitions == DetachPartitions {
			result.Detached, result.NotDetached = removed, problem
			return err
		}
		if removed || err != nil {
			result.Dropped = removed
			r.Scanning(Scan{Method: PartitionDrop})
			return err
		}
	}
	var err error
	if l.info, err = l.table.inspect(ctx); err != nil {
		return err
	}
	if l.info.instead {
		return l.suppress(ctx)
	}
	done, err := l.byGroup(ctx)
	if !done && err == nil {
		done, err = l.byIndex(ctx)
	}
	if !done && err == nil {
		r.Scanning(Scan{Method: TableScan})
		err = l.byBlock(ctx, from)
	}
	if err == nil && l.progress.rewritten && !l.progress.ended() {
		err = l.recount(ctx)
	}
	return err
}

// recount counts the rows that still match after a sweep during which triggers wrote rows of the table. A row may have
// been counted before it moved, after it moved, or not at all. Those that neither failed nor were locked are counted as
// suppressed.
func (l *localSweep) recount(ctx context.Context) error {
	s, rows := l.table.sweep, int64(0)
	query := sqlexpr.Format("SELECT count(*) FROM %s", s.matchSQL())
	if s.Newest != nil {
		rows := sqlexpr.Format("ONLY %s AS r WHERE %s", s.Relation, s.Newest.Rest)
		query = sqlexpr.Format("SELECT count(*) FROM (%s) AS obsolete", s.Newest.among(rows))
	}
	err := l.table.find(ctx, func(tx pgx.Tx) error { return query.QueryRow(ctx, tx).Scan(&rows) })
	if errors.Is(err, errSlow) {
		rows, err = l.table.count(ctx)
	}
	counted := l.progress.outcome.total()
	suppressed := max(rows-counted.Failed-counted.Locked-counted.Dependent, 0)
	l.progress.outcome.retain(0, Retained{Suppressed: suppressed - counted.Suppressed})
	return err
}

func (l *localSweep) suppress(ctx context.Context) error {
	rows, err := l.table.count(ctx)
	l.progress.outcome.retain(0, Retained{Suppressed: rows})
	if rows > 0 && len(l.info.bypassed) > 0 {
		l.table.engine.Recorder.Warn(
			message.RowsBypassTrigger.With("table", l.table.sweep.Name, "parents", strings.Join(l.info.bypassed, ", ")))
	}
	return err
}

func (l *localSweep) byBlock(ctx context.Context, from Cursor) error {
	p := l.progress
	p.restart(0, 0)
	if from.Unit == p.unit {
		p.restart(from.Place, from.Filenode)
		p.outcome.retain(from.Place, from.Retained)
	}
	// A row whose foreign key the sweep itself has cleared moves to wherever there is room, perhaps to a part that was
	// already swept.
	err := l.toTheEnd(ctx)
	for err == nil && p.moved && !p.ended() {
		p.restart(0, p.filenode)
		err = l.toTheEnd(ctx)
	}
	return err
}

// toTheEnd sweeps the blocks from the position to the end of the table. It reads the end again when it is reached,
// because rows may have moved there during the sweep. After the table was rewritten, rows from below the cursor may be
// anywhere.
func (l *localSweep) toTheEnd(ctx context.Context) error {
	p, resumable := l.progress, !l.table.sweep.Cascade.clearsItself()
	for range 2 {
		end, filenode, err := l.table.size(ctx)
		if err != nil {
			return err
		}
		if p.filenode != filenode {
			p.restart(0, filenode)
		}
		if p.next >= end {
			continue
		}
		p.counted = p.next
		// the last block may have got more rows in the meantime
		if err := l.traverse(ctx, l.table.sweep, blockAxis{}, max(p.next-1, 0), end, resumable); err != nil {
			return err
		}
	}
	return nil
}

// foundAtOnce is how many rows a search by an index finds at a time: 16 MB of TIDs.
const foundAtOnce = 2_000_000

// byIndex finds the rows by an index if the planner would do so. If they are close together, it sweeps their
// blocks; otherwise it deletes the rows in TID order, so that each block is visited once. done is false if the
// table has to be swept instead.
func (l *localSweep) byIndex(ctx context.Context) (done bool, err error) {
	t, p := l.table, l.progress
	index, about, err := t.chooseIndex(ctx, l.info)
	if err != nil || index == "" {
		return false, err
	}
	t.engine.Recorder.Scanning(Scan{IndexScan, index})
	// If the blocks had as many rows as there are in total, none has to be searched for elsewhere. The rows are
	// counted beforehand, because an index retains the entries of deleted rows for a while, and skipping these takes
	// longer.
	if about.dense(l.info.dense) && !t.sweep.Narrowed {
		rows, err := t.countOlder(ctx)
		if err == nil {
			err = l.visitBlocks(ctx, about)
		}
		if err != nil || p.handled() == rows || p.ended() {
			return true, err
		}
	}
	return l.passes(func(limit int64) (int64, error) {
		x, err := t.extent(ctx)
		p.startPass()
		if err == nil && x.rows > 0 {
			err = l.visit(ctx, x, limit)
		}
		return x.rows, err
	})
}

// passes finds and visits rows, up to a limit at a time, until all were handled. pass returns how many rows there
// are, or some number above the limit if there are more. done is false if the table has to be swept instead.
func (l *localSweep) passes(pass func(limit int64) (rows int64, err error)) (done bool, err error) {
	p, limit := l.progress, int64(cmp.Or(l.table.engine.findAtOnce, foundAtOnce))
	// Rows that others changed in the meantime have moved. They are searched for again.
	for again := true; ; {
		rows, err := pass(limit)
		switch {
		case errors.Is(err, errSlow):
			return false, nil
		case err != nil || p.handled() == rows || p.ended():
			return true, err
		case p.moved, p.changed > 0 && rows > limit: // continue with the next rows
		case again:
			again = false
		default: // if there are more than the limit, retained rows may hide others
			return rows <= limit, nil
		}
	}
}

// visit sweeps the blocks of the extent if it is dense, or else its rows in TID order, up to a limit.
func (l *localSweep) visit(ctx context.Context, x extent, limit int64) error {
	if x.dense(l.info.dense) {
		return l.visitBlocks(ctx, x)
	}
	t := l.table
	found, err := t.tids(ctx, min(x.rows, limit))
	if err != nil {
		return err
	}
	found = l.notFailed(found)
	return l.traverse(ctx, t.sweep, rowAxis{found, l.maxRows}, 0, int64(len(found)), false)
}

func (l *localSweep) notFailed(rows []pgtype.TID) []pgtype.TID {
	return slices.DeleteFunc(rows, l.progress.hasFailed)
}

func (l *localSweep) visitBlocks(ctx context.Context, x extent) error {
	from := int64(x.first.BlockNumber)
	return l.traverse(ctx, l.table.sweep, blockAxis{}, from, from+x.blocks(), false)
}

// traverse lets workers sweep the axis from one position to another. resumable is set if everything below a
// position is done, so that a later sweep can continue there.
func (l *localSweep) traverse(ctx context.Context, s *Sweep, a axis, from, end int64, resumable bool) error {
	e := l.table.engine
	workers := 1
	// Several workers would hinder each other if companion statements change the same rows, or if families of a
	// circular sweep overlap.
	if end-from > a.chunk() && s.Companion == nil && !s.Cascade.Circular() {
		workers = max(e.Workers, 1)
	}
	limiter := pace.NewLimiter(workers)
	sizer := pace.NewSizer(l.maxRows, a.windows(), cmp.Or(e.Target, DefaultTarget))
	l.progress.begin(a, from, end, resumable, limiter, sizer)
	group, ctx := errgroup.WithContext(ctx)
	spawn := func(work func() error) { group.Go(func() error { return failure.Catch(work) }) }
	newWorker := func(session *session) *worker {
		w := &worker{
			table:      &table{e, session, s},
			statements: &statements{sweep: s, axis: a, root: l.info.root, triggers: l.info.triggers},
			progress:   l.progress,
			limiter:    limiter,
			info:       l.info,
			maxRows:    l.maxRows,
		}
		w.findsKept = w.mayFindKept() && !l.info.fires && !l.info.also
		return w
	}
	spawn(func() error { return newWorker(l.table.session).sweepChunks(ctx) })
	for range workers - 1 {
		spawn(func() error {
			if err := limiter.Acquire(ctx); err != nil {
				return err
			}
			return newWorker(nil).sweepChunks(ctx)
		})
	}
	return group.Wait()
}
