package pace

// Bisection sizes batches so that they close in on a row that fails: the next batch has half of the rows among which
// the failing row is, and afterwards batches double. The zero Bisection does not limit batches.
type Bisection struct {
	among int // the number of next rows that include a failing one; 0 if unknown
	max   int // rows of the next batch; 0 if unlimited
}

// Active reports whether the next batch is limited.
func (b *Bisection) Active() bool { return b.max > 0 }

// Narrowing reports whether one of the next rows is known to fail.
func (b *Bisection) Narrowing() bool { return b.among > 0 }

// Limit returns the maximum number of rows of the next batch, no more than rows.
func (b *Bisection) Limit(rows int) int {
	if b.Active() {
		return min(rows, b.max)
	}
	return rows
}

// Failed records that a batch of rows failed.
func (b *Bisection) Failed(rows int) {
	b.among, b.max = rows, max(rows/2, 1)
}

// Passed records that a batch of rows succeeded. limit is the limit of batches without a bisection.
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

// Skipped records that a single row failed and was skipped.
func (b *Bisection) Skipped() { *b = Bisection{max: 1} }
