package purge

import (
	"cmp"
	"time"
)

// firstRows is the limit of the first batch.
const firstRows = 1_000

// How many statements a batch may have: what comes with it, such as its account and its COMMIT, is then little beside them.
// Beside others they are half as many, since the application waits for what a batch writes.
const (
	mostAlone  = 8
	mostBeside = 4
)

// pace is how much a batch may take on, so that it takes the time that it should.
type pace struct {
	target       time.Duration
	most         int   // rows of a statement
	limit        int   // rows of a statement that picks them first
	width        int64 // of a statement's window on the sweep's axis
	widest       int64
	together     int64 // statements on windows, one after the other
	mostTogether int64
	exact        bool          // a window has as many rows as it is wide
	least        time.Duration // that a batch takes however small it is; 0: less than the target
	slow         struct {      // the first of the batches in a row that took too long
		took time.Duration
		size float64
	}
}

// newPace begins small.
func newPace(most int, a axis, target time.Duration) pace {
	return pace{target: cmp.Or(target, DefaultTarget), most: most, limit: min(most, firstRows), width: a.first, widest: a.most, together: 1, mostTogether: mostBeside, exact: a.found != nil}
}

// full tells whether a batch took all the rows that it might.
func (p *pace) full(rows int64) bool { return rows >= int64(p.limit) }

// took fits the next batch to the time of this one, to how far it went, and to the most rows that one of its statements
// took: smaller at once, larger slowly, and only after one that went as far as it might. Direct statements on blocks have
// only the width of their windows to keep their rows few.
func (p *pace) took(d time.Duration, width, largest int64, direct bool) {
	size := float64(p.limit)
	if direct {
		size = float64(width)
	}
	d = p.beyond(d, size)
	room := p.widest
	if direct && !p.exact && largest > 0 {
		room = min(room, p.room(min(width, p.width), largest))
	}
	more := 1.25
	if d < p.target/4 {
		more = 2
	}
	switch {
	case d > p.target:
		p.shrink(float64(p.target) / float64(d))
	case d > p.target/2 || width < p.width*p.together && direct:
	case !direct && p.full(largest):
		p.limit = min(int(float64(p.limit)*more)+1, p.most)
	case p.width < room:
		p.width = min(int64(float64(p.width)*more)+1, p.widest)
	case direct:
		p.together = min(int64(float64(p.together)*more)+1, p.mostTogether)
	}
	p.width = max(min(p.width, room), 1)
}

// muchSmaller is how much smaller a batch must be than another one to show what both would take if they did nothing.
const muchSmaller = 0.8

// beyond is how much longer a batch of some size took than one that does nothing would. What is the same for each, such as to
// find the ids of a set, smaller ones would take, too: where that alone is more than the target, to make them smaller would
// only make more of them.
func (p *pace) beyond(d time.Duration, size float64) time.Duration {
	if d < p.least {
		p.least = 0
	}
	part := size / p.slow.size
	switch {
	case d <= p.target+p.least:
		p.slow.size = 0
	case p.slow.size == 0:
		p.slow.took, p.slow.size = d, size
	case part <= muchSmaller:
		if least := time.Duration((float64(d) - part*float64(p.slow.took)) / (1 - part)); least > p.target {
			p.least = least
		}
		p.slow.size = 0
	}
	return d - min(p.least, d)
}

// filled is the part of the most rows that a window is meant to have.
const filled = 0.8

// room is how wide a window may be after one that had so many rows.
func (p *pace) room(width, rows int64) int64 {
	return max(int64(float64(width)*filled*float64(p.most)/float64(rows)), 1)
}

// atOnce settles how many statements the next batches may have.
func (p *pace) atOnce(most int64) {
	p.mostTogether, p.together = most, min(p.together, most)
}

// shrink leaves a part of it, a tenth at least.
func (p *pace) shrink(part float64) {
	part = max(part, 0.1)
	if p.together > 1 {
		p.together = max(int64(float64(p.together)*part), 1)
		return
	}
	p.limit, p.width = max(int(float64(p.limit)*part), 1), max(int64(float64(p.width)*part), 1)
}

// smallest tells whether there is nothing left to make smaller.
func (p *pace) smallest() bool { return p.limit == 1 && p.width == 1 && p.together == 1 }
