package purge

import (
	"cmp"
	"time"
)

// firstRows is the limit of the first batch.
const firstRows = 1_000

// How many statements a batch may have, so that its fixed cost, such as the account and the COMMIT, is small beside
// them. While other sessions are active they are half as many, since the application waits for what a batch writes.
const (
	mostAlone  = 8
	mostBeside = 4
)

// batchSizer adapts the size of batches to the time that they should take.
type batchSizer struct {
	target         time.Duration
	most           int   // rows of any statement
	limit          int   // rows of a statement that picks them first
	width          int64 // of a statement's window on the sweep's axis
	widest         int64
	statements     int64 // statements of a batch, on consecutive windows
	mostStatements int64
	exact          bool          // a window has as many rows as it is wide
	fixed          time.Duration // the fixed cost of a statement, whatever its size
	learned        bool          // fixed is known
	other          struct {      // the last statement of a different size
		took   time.Duration
		size   float64
		direct bool
	}
}

// newBatchSizer begins with small batches.
func newBatchSizer(most int, a axis, target time.Duration) batchSizer {
	return batchSizer{
		target:         cmp.Or(target, DefaultTarget),
		most:           most,
		limit:          min(most, firstRows),
		width:          a.first,
		widest:         a.most,
		statements:     1,
		mostStatements: mostBeside,
		exact:          a.found != nil,
	}
}

// full reports whether a batch took all the rows that it might.
func (p *batchSizer) full(rows int64) bool { return rows >= int64(p.limit) }

// observe sizes the next batch by how long this one took, how far it went, and the most rows that one of its statements
// touched: it shrinks at once, but grows slowly, and only after a batch that went as far as it might. The rows of
// direct statements on blocks are limited only by the width of their windows.
func (p *batchSizer) observe(d time.Duration, width, largest int64, direct bool) {
	size, statements := float64(p.limit), int64(1)
	if direct {
		statements = (width + p.width - 1) / p.width
		size = float64(width) / float64(statements)
	}
	p.learn(d/time.Duration(statements), size, direct)
	d -= min(p.fixed, d)
	target := max(p.target, p.fixed) // a fixed cost varies, too
	room := p.widest
	if direct && !p.exact && largest > 0 {
		room = min(room, p.room(min(width, p.width), largest))
	}
	more := 1.25
	if d < target/4 {
		more = 2
	}
	switch {
	case d > target:
		p.shrink(float64(target)/float64(d), direct)
	case (d > target/2 && p.learned) || (width < p.width*p.statements && direct):
	case !direct && p.full(largest):
		p.limit = min(int(float64(p.limit)*more)+1, p.most)
	case p.width < room:
		p.width = min(int64(float64(p.width)*more)+1, p.widest)
	case direct:
		p.statements = min(int64(float64(p.statements)*more)+1, p.mostStatements)
	}
	p.width = max(min(p.width, room), 1)
}

// Two statements whose sizes differ by this factor show their fixed cost. While sizes stay about the same the estimate
// fades with each statement, so that the size changes in the end and the cost is estimated anew.
const (
	different = 1.25
	fading    = 0.98
)

// learn estimates the fixed cost of a statement, such as hashing the ids of a set, or the parents of possible orphans.
// Shrinking statements does not reduce it, but makes more of them.
func (p *batchSizer) learn(took time.Duration, size float64, direct bool) {
	ratio := size / p.other.size
	switch {
	case p.other.size == 0 || p.other.direct != direct:
		p.fixed = min(p.fixed, took)
	case ratio < different && ratio > 1/different:
		p.fixed = min(time.Duration(float64(p.fixed)*fading), took)
		return
	default:
		fixed := (float64(took) - ratio*float64(p.other.took)) / (1 - ratio)
		p.fixed, p.learned = min(time.Duration(max(fixed, 0)), took, p.other.took), true
	}
	p.other.took, p.other.size, p.other.direct = took, size, direct
}

// filled is the share of the most rows that a window should have.
const filled = 0.8

// room is how wide a window may be, given the width of one and its number of rows.
func (p *batchSizer) room(width, rows int64) int64 {
	return max(int64(float64(width)*filled*float64(p.most)/float64(rows)), 1)
}

// limitStatements sets how many statements the next batches may have.
func (p *batchSizer) limitStatements(most int64) {
	p.mostStatements, p.statements = most, min(p.statements, most)
}

// shrink reduces the next batch to a part of this one, a tenth at least.
func (p *batchSizer) shrink(part float64, direct bool) {
	part = max(part, 0.1)
	if p.statements > 1 {
		p.statements = max(int64(float64(p.statements)*part), 1)
		return
	}
	p.width = max(int64(float64(p.width)*part), 1)
	if !direct {
		p.limit = max(int(float64(p.limit)*part), 1)
	}
}

// smallest reports whether batches cannot shrink further.
func (p *batchSizer) smallest() bool { return p.limit == 1 && p.width == 1 && p.statements == 1 }
