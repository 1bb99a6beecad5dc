package purge

import "github.com/cleanupd/cleanupd/tasks/purge/pace"

// take gives a worker its next chunk, and reports whether there is one.
func (sw *sweep) take(w *worker, end int64) bool {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.next >= end || sw.result.TableLocked || sw.result.GaveUp {
		return false
	}
	w.from, w.to = sw.next, sw.next+sw.chunkSize(end)
	sw.next, sw.undone[w] = w.to, w.from
	return true
}

// chunkSize is how much a worker takes of what is left: less near the end if several run, so that all reach it at about
// the same time.
func (sw *sweep) chunkSize(end int64) int64 {
	left := end - sw.next
	most := min(sw.chunk, left)
	if workers := sw.limiter.Allowed(); workers > 1 {
		return min(max(left/int64(2*workers), sw.axis.first), most)
	}
	return most
}

// extend lengthens a worker's chunk if it is too short for a batch and no worker has taken what comes next.
func (sw *sweep) extend(w *worker, end int64) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if w.to == sw.next && w.to-w.from < w.Span() {
		w.to += sw.chunkSize(end)
		sw.next = w.to
	}
}

// cursor is the lowest position that is not done, once a worker's chunk is done up to a position. The sweep of a table
// that was rewritten starts over, since rows from below the cursor may be anywhere.
func (sw *sweep) cursor(w *worker, done int64, filenode uint32) Cursor {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.found != nil || sw.part {
		return Cursor{Unit: sw.Unit, Before: sw.before}
	}
	if sw.filenode != 0 && sw.filenode != filenode {
		sw.next = 0
		sw.forget()
	}
	sw.filenode = filenode
	c := Cursor{Unit: sw.Unit, Filenode: filenode, Place: sw.next, Before: sw.before}
	for other, first := range sw.undone {
		if other != w {
			c.Place = min(c.Place, first)
		} else if done < w.to {
			c.Place = min(c.Place, done)
		}
	}
	c.Retained = sw.leftBelow(c.Place)
	return c
}

// newSizer is how a worker begins to size its batches.
func (sw *sweep) newSizer() pace.Sizer {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return sw.sized
}

// committed records that a worker's chunk is done up to a position, how many rows are gone, and how many obsolete ones
// are left below it.
func (sw *sweep) committed(w *worker, done, gone, left int64) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.gone, sw.sized = sw.gone+gone, w.Sizer
	if w.passesOver() {
		sw.leave(done, Retained{Locked: left})
	} else {
		sw.leave(done, Retained{Suppressed: left})
	}
	if w.from = done; done < w.to {
		sw.undone[w] = done
	} else {
		delete(sw.undone, w)
	}
}
