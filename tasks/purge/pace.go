package purge

import "time"

// firstRows is the limit of the first batch.
const firstRows = 1_000

// pace is how much a batch may take on, so that it takes the time that it should.
type pace struct {
	target time.Duration
	most   int   // rows
	limit  int   // rows
	width  int64 // of the sweep's axis
	widest int64
}

// newPace begins small.
func newPace(most int, a axis, target time.Duration) pace {
	return pace{target: orDefault(target, 50*time.Millisecond), most: most, limit: min(most, firstRows), width: a.first, widest: a.most}
}

// full tells whether a batch took all the rows that it might.
func (p *pace) full(rows int64) bool { return rows >= int64(p.limit) }

// took fits the next batch to the time of this one and its rows: smaller at once, larger slowly. One that picked no rows
// first, of blocks, has only its width to keep them few.
func (p *pace) took(d time.Duration, rows int64, direct bool) {
	room := p.widest
	if direct && rows > 0 {
		room = min(room, int64(float64(p.width)*filled*float64(p.most)/float64(rows)))
	}
	more := 1.25
	if d < p.target/4 {
		more = 2
	}
	switch {
	case d > p.target:
		p.shrink(float64(p.target) / float64(d))
	case d > p.target/2:
	case !direct && p.full(rows):
		p.limit = min(int(float64(p.limit)*more)+1, p.most)
	default:
		p.width = min(int64(float64(p.width)*more)+1, p.widest)
	}
	p.width = max(min(p.width, room), 1)
}

// filled is the part of the most rows that a window is meant to have.
const filled = 0.8

// narrow makes room after a window that had too many rows.
func (p *pace) narrow(rows int64) {
	p.width = max(int64(float64(p.width)*filled*float64(p.most)/float64(rows)), 1)
}

// shrink leaves a part of it, a tenth at least.
func (p *pace) shrink(part float64) {
	part = max(part, 0.1)
	p.limit, p.width = max(int(float64(p.limit)*part), 1), max(int64(float64(p.width)*part), 1)
}

// smallest tells whether there is nothing left to make smaller.
func (p *pace) smallest() bool { return p.limit == 1 && p.width == 1 }
