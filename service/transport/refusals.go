package transport

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// reportEvery is how often a refusal that is repeated is reported.
const reportEvery = time.Minute

// maxRefusals is how many kinds of refusals there may be until further strangers are all taken for one, others.
const (
	maxRefusals = 1000
	others      = "others"
)

// refusal is what refusals have in common that are reported together.
type refusal struct {
	who, what string
	code      codes.Code
}

// cheap reports whether calls that end with a code cost their caller nothing: nothing came of them.
func cheap(c codes.Code) bool {
	return c == codes.Unauthenticated || c == codes.PermissionDenied || c == codes.ResourceExhausted ||
		c == codes.InvalidArgument
}

// refusals counts those that are repeated, so that a flood of them is a few reports.
type refusals struct {
	mu   sync.Mutex
	more map[refusal]int // since the last report
}

// report calls first at once for the first of some refusals. As long as there are more, it calls again at intervals,
// with how many there were, and of whom.
func (r *refusals) report(of refusal, first func(), again func(who string, times int)) {
	if !r.isFirst(&of) {
		return
	}
	first()
	var later func()
	later = func() {
		if times := r.take(of); times > 0 {
			again(of.who, times)
			time.AfterFunc(reportEvery, later)
		}
	}
	time.AfterFunc(reportEvery, later)
}

// isFirst counts a refusal, unless it is the first one.
func (r *refusals) isFirst(of *refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.more[*of]
	if !known && of.code == codes.Unauthenticated && len(r.more) >= maxRefusals {
		*of = refusal{others, others, of.code}
		_, known = r.more[*of]
	}
	if known {
		r.more[*of]++
		return false
	}
	r.more[*of] = 0
	return true
}

// take is how many there were since the last report. If there were none, the next one is the first again.
func (r *refusals) take(of refusal) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if times = r.more[of]; times == 0 {
		delete(r.more, of)
	} else {
		r.more[of] = 0
	}
	return times
}
