package pace

// Bisection sizes batches so that they close in on a row that fails: the next batch has half of the rows that
// include the failing one. Once that is skipped, the size of batches doubles again. The zero Bisection does not
// limit batches.
type Bisection struct {
	among int // how many of the next rows include a failing one; 0 if unknown
	max   int // the most rows of the next batch; 0 if unlimited
}

func (b *Bisection) Active() bool { return b.max > 0 }

// Narrowing reports whether one of the next rows is known to fail.
func (b *Bisection) Narrowing() bool { return b.among > 0 }

// Limit is the most rows of the next batch. Without a bisection it is rows.
func (b *Bisection) Limit(rows int) int {
	if b.Active() {
		return min(rows, b.max)
	}
	return rows
}

func (b *Bisection) Failed(rows int) {
	b.among, b.max = rows, max(rows/2, 1)
}

// Passed records that a batch succeeded. limit is the most rows of a batch without a bisection.
func (b *Bisection) Passed(rows, limit int) {
	if !b.Active() {
		return
	}
	b.among = max(b.among-rows, 0)
	switch {
	case b.among > 0:
		b.max = max(b.among/2, 1)
	case b.max*2 < limit:
		b.max *= 2
	default:
		b.max = 0
	}
}

func (b *Bisection) Skipped() { *b = Bisection{max: 1} }
