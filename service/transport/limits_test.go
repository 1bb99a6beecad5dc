package transport

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cleanupd/cleanupd/service/access"
)

// A flood of refusals is reported at once, and then once a minute with a count. The next flood is again reported at
// once.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rejections{counts: map[rejection]int{}}
		var mu sync.Mutex
		var told []string
		tell := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, text)
		}
		refuse := func(who string, times int) {
			for range times {
				r.report(rejection{who, "it", codes.PermissionDenied}, func() { tell(who) },
					func(who string, times int) { tell(fmt.Sprint(who, " ", times)) })
			}
		}
		refuse("jane", 1000)
		refuse("joe", 1)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		refuse("jane", 500)
		refuse("joe", 1)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		refuse("jane", 1)
		if want := []string{"jane", "joe", "jane 999", "joe", "jane 500", "jane"}; !slices.Equal(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(r.counts) > 0 {
			t.Errorf("%v is kept", r.counts)
		}
	})
}

// The number of strangers that are remembered is limited.
func TestRefusalsOfManyStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rejections{counts: map[rejection]int{}}
		var told atomic.Int64
		for i := range 10 * maxRejections {
			r.report(
				rejection{fmt.Sprint(i), "it", codes.Unauthenticated},
				func() { told.Add(1) },
				func(who string, times int) {
					if who != otherCallers || times != 9*maxRejections-1 {
						t.Errorf("%s %d", who, times)
					}
					told.Add(1)
				},
			)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if told := told.Load(); told != maxRejections+2 {
			t.Errorf("%d reports", told)
		}
	})
}

// A caller may make a burst of calls, and then a limited number a second. Callers who have made none for a while are
// forgotten.
func TestCallsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limits{callers: map[string]*usage{}}
		call := func(who string, times int) (served int) {
			for range times {
				_, leave, err := l.acquire(who, access.Viewer, callSlot)
				if leave(); err == nil {
					served++
				}
			}
			return served
		}
		for _, c := range []struct{ pause, want int }{{0, callBurst}, {1, 50}, {2, 100}, {3600, callBurst}} {
			time.Sleep(time.Duration(c.pause) * time.Second)
			synctest.Wait()
			if got := call("jane", 2*callBurst); got != c.want {
				t.Errorf("after %d s: %d calls, want %d", c.pause, got, c.want)
			}
		}
		if call("joe", 1) != 1 {
			t.Error("another caller is refused")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if call("jim", 1); len(l.callers) != 1 {
			t.Errorf("%d accounts are kept", len(l.callers))
		}
	})
}

// The streams of all callers together are limited. Operators and administrators may have more than viewers, and a
// stream that ends makes room for another.
func TestStreamsInAll(t *testing.T) {
	t.Parallel()
	l := &limits{callers: map[string]*usage{}}
	var leave func()
	fill := func(who string, role access.Role) (n int) {
		for {
			_, end, err := l.acquire(who, role, streamSlot)
			if err != nil {
				return n
			}
			n, leave = n+1, end
		}
	}
	for i, c := range []struct {
		role access.Role
		want int
	}{
		{access.Viewer, MaxStreams},
		{access.Viewer, maxAllStreams - MaxStreams},
		{access.Viewer, 0},
		{access.Operator, reservedStreams},
		{access.Admin, 0},
	} {
		if got := fill(fmt.Sprint("caller ", i), c.role); got != c.want {
			t.Errorf("caller %d has %d streams, want %d", i, got, c.want)
		}
	}
	leave()
	if got := fill("another", access.Admin); got != 1 {
		t.Errorf("%d streams after one has ended", got)
	}
}
