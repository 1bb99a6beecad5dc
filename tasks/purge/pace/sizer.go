package pace

import "time"

const firstRows = 1_000

// The maximum number of statements in a batch. Several statements share the batch's fixed cost, such as the ledger
// and the COMMIT. While other sessions are active, the maximum is half as high, since the application waits for the
// locks of a batch.
const (
	MaxStatementsIdle = 8
	MaxStatementsBusy = 4
)

// Windows are the parts of a sweep's axis, one for each statement.
type Windows struct {
	First, Max int64 // the width of the first window, and of the widest
	// Exact is set if a window has as many rows as it is wide.
	Exact bool
}

// Sizer adapts batches to the time that they should take.
type Sizer struct {
	Rows       int   // the most rows of a statement that picks rows first
	Width      int64 // the width of a statement's window
	Statements int64 // the number of statements of a batch, on consecutive windows

	windows       Windows
	target        time.Duration
	maxRows       int // the most rows of any statement
	maxStatements int64
	fixed         time.Duration // the cost of a statement that does not depend on its size
	learned       bool          // fixed is known
	other         struct {      // the last statement that had a different size
		took   time.Duration
		size   float64
		direct bool
	}
}

func FirstRows(maxRows int) int { return min(maxRows, firstRows) }

// NewSizer returns a Sizer whose first batches are small. No statement may touch more than maxRows.
func NewSizer(maxRows int, w Windows, target time.Duration) Sizer {
	return Sizer{
		Rows:          FirstRows(maxRows),
		Width:         w.First,
		Statements:    1,
		windows:       w,
		target:        target,
		maxRows:       maxRows,
		maxStatements: MaxStatementsBusy,
	}
}

func (s *Sizer) Span() int64 { return s.Width * s.Statements }

// Observe sizes the next batch from the duration and the span of the last one, and from the most rows that one of
// its statements touched. Batches shrink at once, but grow slowly, and only after a batch of full size. The rows of
// direct statements on blocks are limited only by the width of their windows.
func (s *Sizer) Observe(d time.Duration, span, largest int64, direct bool) {
	size, statements := float64(s.Rows), int64(1)
	if direct {
		statements = (span + s.Width - 1) / s.Width
		size = float64(span) / float64(statements)
	}
	s.learn(d/time.Duration(statements), size, direct)
	d -= min(s.fixed, d)
	target := max(s.target, s.fixed) // a fixed cost also varies
	room := s.windows.Max
	if direct && !s.windows.Exact && largest > 0 {
		room = min(room, s.room(min(span, s.Width), largest))
	}
	growth := 1.25
	if d < target/4 {
		growth = 2
	}
	switch {
	case d > target:
		s.Shrink(float64(target)/float64(d), direct)
	case (d > target/2 && s.learned) || (span < s.Span() && direct):
	case !direct && largest >= int64(s.Rows):
		s.Rows = min(int(float64(s.Rows)*growth)+1, s.maxRows)
	case s.Width < room:
		s.Width = min(int64(float64(s.Width)*growth)+1, s.windows.Max)
	case direct:
		s.Statements = min(int64(float64(s.Statements)*growth)+1, s.maxStatements)
	}
	s.Width = max(min(s.Width, room), 1)
}

// Two statements whose sizes differ by a factor of minRatio show their fixed cost. While sizes are about the same,
// the estimate fades with each statement; in the end the size changes, and the cost is estimated again.
const (
	minRatio = 1.25
	fading   = 0.98
)

// learn estimates the fixed cost of a statement, such as hashing a set of ids, or the parents of possible orphans.
// Smaller statements do not lower that cost, but incur it more often.
func (s *Sizer) learn(took time.Duration, size float64, direct bool) {
	ratio := size / s.other.size
	switch {
	case s.other.size == 0 || s.other.direct != direct:
		s.fixed = min(s.fixed, took)
	case ratio < minRatio && ratio > 1/minRatio:
		s.fixed = min(time.Duration(float64(s.fixed)*fading), took)
		return
	default:
		fixed := (float64(took) - ratio*float64(s.other.took)) / (1 - ratio)
		s.fixed, s.learned = min(time.Duration(max(fixed, 0)), took, s.other.took), true
	}
	s.other.took, s.other.size, s.other.direct = took, size, direct
}

// fill is the share of the maximum number of rows that a window should have.
const fill = 0.8

// room is the greatest width of a window, given the width of one and its number of rows.
func (s *Sizer) room(width, rows int64) int64 {
	return max(int64(float64(width)*fill*float64(s.maxRows)/float64(rows)), 1)
}

func (s *Sizer) Narrow(rows int64) { s.Width, s.Statements = s.room(s.Width, rows), 1 }

func (s *Sizer) SetTarget(d time.Duration) { s.target = d }

func (s *Sizer) LimitStatements(n int64) {
	s.maxStatements, s.Statements = n, min(s.Statements, n)
}

// Shrink makes batches smaller: a part of the current size, but at least a tenth of it.
func (s *Sizer) Shrink(part float64, direct bool) {
	part = max(part, 0.1)
	if s.Statements > 1 {
		s.Statements = max(int64(float64(s.Statements)*part), 1)
		return
	}
	s.Width = max(int64(float64(s.Width)*part), 1)
	if !direct {
		s.Rows = max(int(float64(s.Rows)*part), 1)
	}
}

func (s *Sizer) Smallest() bool { return s.Rows == 1 && s.Width == 1 && s.Statements == 1 }
