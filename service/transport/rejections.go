package transport

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// reportInterval is the time between two reports of a repeated rejection.
const reportInterval = time.Minute

// maxRejections limits how many kinds of rejections are kept apart. Further callers without valid credentials count
// as one caller.
const (
	maxRejections = 1000
	otherCallers  = "others"
)

// rejection identifies the calls that are reported together.
type rejection struct {
	who, what string
	code      codes.Code
}

// isCheap reports whether a call that ends with the code did nothing, so that a caller can repeat it quickly.
func isCheap(c codes.Code) bool {
	return c == codes.Unauthenticated || c == codes.PermissionDenied || c == codes.ResourceExhausted ||
		c == codes.InvalidArgument
}

// rejections counts repeated rejections, so that a flood makes few log lines.
type rejections struct {
	mu     sync.Mutex
	counts map[rejection]int // since the last report
}

// report calls first for the first rejection of its kind. While more arrive, it calls again at intervals with their
// number and their caller.
func (r *rejections) report(of rejection, first func(), again func(who string, times int)) {
	if !r.isFirst(&of) {
		return
	}
	first()
	var later func()
	later = func() {
		if times := r.takeCount(of); times > 0 {
			again(of.who, times)
			time.AfterFunc(reportInterval, later)
		}
	}
	time.AfterFunc(reportInterval, later)
}

// isFirst counts the rejection if it is not the first.
func (r *rejections) isFirst(of *rejection) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.counts[*of]
	if !known && of.code == codes.Unauthenticated && len(r.counts) >= maxRejections {
		*of = rejection{otherCallers, otherCallers, of.code}
		_, known = r.counts[*of]
	}
	if known {
		r.counts[*of]++
		return false
	}
	r.counts[*of] = 0
	return true
}

// takeCount returns and resets the number of rejections since the last report. If there were none, the next
// rejection is a first one again.
func (r *rejections) takeCount(of rejection) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if times = r.counts[of]; times == 0 {
		delete(r.counts, of)
	} else {
		r.counts[of] = 0
	}
	return times
}
