package purge

import (
	"errors"
	"sync"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// outcome is what a sweep did and retained. It is not safe for concurrent use.
type outcome struct {
	result   Result         // without its Retained
	before   Retained       // what earlier sweeps of the caller retained
	retained []retainedPart // what this sweep retained
	failures int            // how often rows failed
	raised   int64          // failed rows that are not Kept
}

// retainedPart counts the rows retained between the position of the part before and this one.
type retainedPart struct {
	below int64
	rows  Retained
}

func (o *outcome) retain(below int64, r Retained) {
	if r != (Retained{}) {
		o.retained = append(o.retained, retainedPart{below, r})
	}
}

func (o *outcome) total() (sum Retained) {
	for _, r := range o.retained {
		sum = sum.Plus(r.rows)
	}
	return sum
}

func (o *outcome) below(position int64) (sum Retained) {
	for _, r := range o.retained {
		if r.below <= position {
			sum = sum.Plus(r.rows)
		}
	}
	return sum
}

// fail counts failed rows below a position. logged is set if the error is worth a log line. Rows kept by foreign keys
// of other rows never make the sweep give up.
func (o *outcome) fail(r Retained, below int64, err error) (logged bool) {
	o.retain(below, r)
	o.failures++
	if o.result.FirstError == nil {
		o.result.FirstError = err
	}
	o.raised += r.Failed - r.Kept
	o.result.GaveUp = o.before.Failed-o.before.Kept+o.raised > MaxFailedRows
	return o.failures <= FailedRowsLogged
}

// asFailed returns the counts of rows that a sweep could not delete or update because of an error. Other rows keep none
// from being updated: no key refers to a column that is set.
func (s *Sweep) asFailed(rows int64, err error) Retained {
	if s.Set == nil && sqlstate.Is(err, pgerrcode.ForeignKeyViolation) || errors.Is(err, ErrTookMore) {
		return Retained{Failed: rows, Kept: rows}
	}
	return Retained{Failed: rows}
}

func (o *outcome) ended() bool { return o.result.TableLocked || o.result.GaveUp }

// chunk is the part [from, to) of an axis that a worker still has to do.
type chunk struct{ from, to int64 }

// progress distributes the chunks of an axis to workers, and records their results.
type progress struct {
	unit string

	mu        sync.Mutex
	axis      axis
	next      int64 // the first position that no worker has taken
	end       int64
	undone    map[*chunk]int64 // the first position in each worker's chunk that is not done
	resumable bool             // everything below a cursor is done
	filenode  uint32           // of the table as it was last seen; 0 at first
	limiter   *pace.Limiter
	sizer     pace.Sizer              // the sizer of the worker that committed last
	changed   int64                   // rows deleted or updated in this pass
	counted   int64                   // retained rows below this position were counted before
	failed    map[pgtype.TID]Retained // rows that failed, or that others keep; they are not tried again
	rewritten bool                    // triggers have written rows of the table
	moved     bool                    // in this pass, foreign keys have changed rows, which may now be below the position
	outcome   *outcome
}

func newProgress(unit string, o *outcome) *progress {
	return &progress{unit: unit, outcome: o, undone: map[*chunk]int64{}, failed: map[pgtype.TID]Retained{}}
}

func (p *progress) begin(a axis, from, end int64, resumable bool, l *pace.Limiter, s pace.Sizer) {
	p.axis, p.next, p.end, p.resumable, p.limiter, p.sizer = a, from, end, resumable, l, s
}

// restart starts the sweep over at a position, without any retained rows.
func (p *progress) restart(position int64, filenode uint32) {
	p.next, p.counted, p.filenode = position, position, filenode
	p.outcome.retained, p.outcome.raised, p.moved = nil, 0, false
	clear(p.failed)
}

// startPass begins another pass, for which the rows are found again. Rows that failed are not tried again.
func (p *progress) startPass() {
	p.changed, p.outcome.retained, p.moved = 0, nil, false
	var sum Retained
	for _, r := range p.failed {
		sum = sum.Plus(r)
	}
	p.outcome.retain(0, sum)
}

// handled is how many rows were changed in this pass or failed.
func (p *progress) handled() int64 { return p.changed + int64(len(p.failed)) }

func (p *progress) lastSizer() pace.Sizer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sizer
}

// take gives a worker the next chunk; it returns false if there is none.
func (p *progress) take(c *chunk) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next >= p.end || p.outcome.ended() {
		return false
	}
	c.from, c.to = p.next, p.next+p.chunkSize()
	p.next, p.undone[c] = c.to, c.from
	return true
}

// chunkSize is the size of the next chunk. If several workers run, chunks are smaller near the end, so that all
// workers reach it at about the same time.
func (p *progress) chunkSize() int64 {
	rest := p.end - p.next
	size := min(p.axis.chunk(), rest)
	if workers := p.limiter.Allowed(); workers > 1 {
		return min(max(rest/int64(2*workers), p.axis.windows().First), size)
	}
	return size
}

// extend makes a worker's chunk longer if it is too short for a batch and no worker has taken the next one.
func (p *progress) extend(c *chunk, span int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.to == p.next && c.to-c.from < span {
		c.to += p.chunkSize()
		p.next = c.to
	}
}

// cursor returns the lowest position that is not done, given that a worker's chunk is done up to a position. If the
// table was rewritten, the sweep starts over, since rows from below the cursor may be anywhere.
func (p *progress) cursor(c *chunk, done int64, filenode uint32) Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.resumable {
		return Cursor{Unit: p.unit, Before: p.outcome.before}
	}
	if p.filenode != 0 && p.filenode != filenode {
		p.restart(0, filenode)
	}
	p.filenode = filenode
	cursor := Cursor{Unit: p.unit, Filenode: filenode, Place: p.next, Before: p.outcome.before}
	for other, first := range p.undone {
		if other != c {
			cursor.Place = min(cursor.Place, first)
		} else if done < c.to {
			cursor.Place = min(cursor.Place, done)
		}
	}
	cursor.Retained = p.outcome.below(cursor.Place)
	return cursor
}

func (p *progress) committed(c *chunk, done int64, n batchResult, r Retained, s pace.Sizer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed, p.sizer = p.changed+n.changed, s
	p.moved = p.moved || n.moved
	p.outcome.retain(done, r)
	p.outcome.result.addAffected(n.affected)
	if c.from = done; done < c.to {
		p.undone[c] = done
	} else {
		delete(p.undone, c)
	}
}

// fail records that a row failed and is skipped. logged is set if the error is worth a log line.
func (p *progress) fail(row pgtype.TID, as Retained, err error) (logged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed[row] = as
	position := p.axis.position(row)
	return position >= p.counted && p.outcome.fail(p.failed[row], position+1, err)
}

// keep records that other rows keep a row by foreign keys, so that it is not tried.
func (p *progress) keep(row pgtype.TID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, has := p.failed[row]; has {
		return
	}
	p.failed[row] = Retained{Dependent: 1}
	if position := p.axis.position(row); position >= p.counted {
		p.outcome.retain(position+1, p.failed[row])
	}
}

func (p *progress) hasFailed(row pgtype.TID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.failed[row]
	return has
}

func (p *progress) failedBetween(from, to int64) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for row := range p.failed {
		if position := p.axis.position(row); from <= position && position < to {
			n++
		}
	}
	return n
}

// uncounted returns the position, not before from, where counting retained rows must begin.
func (p *progress) uncounted(from int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(from, p.counted)
}

func (p *progress) rewrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewritten = true
}

func (p *progress) isRewritten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rewritten
}

// lockTable ends the sweep because of a lock that cannot be skipped.
func (p *progress) lockTable() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcome.result.TableLocked = true
}

func (p *progress) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outcome.ended()
}
