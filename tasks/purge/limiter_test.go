package purge

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Workers that hinder each other pause except for one; those that do not may all run.
func TestCrowd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		together time.Duration // that a batch takes when two run; alone it takes 10 ms
		both     bool
	}{
		"nothing gained":        {20 * time.Millisecond, false},
		"a third gained":        {15 * time.Millisecond, false},
		"two thirds gained":     {12 * time.Millisecond, true},
		"twice as much in time": {10 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLimiter(2)
			c.pause = 0
			batches := func(took time.Duration) {
				for range 2 * trial {
					c.observe(time.Now(), took, 1_000)
				}
			}
			hasty, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := c.acquire(hasty); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("two are at work before it is known what one does: %v", err)
			}
			c.observe(time.Now(), time.Hour, 0) // what deletes nothing says nothing
			batches(10 * time.Millisecond)
			if err := c.acquire(t.Context()); err != nil { // the second one is tried
				t.Fatal(err)
			}
			batches(test.together)
			if both := c.allowed == 2; both != test.both {
				t.Fatalf("both may work: %v", both)
			}
			stayed := make(chan error)
			go func() { stayed <- c.reacquire(t.Context()) }()
			select {
			case err := <-stayed:
				if !test.both || err != nil {
					t.Errorf("the second one went on: %v", err)
				}
			case <-time.After(50 * time.Millisecond):
				if test.both {
					t.Error("the second one was sent away")
				}
				c.release() // the first one is done
				if err := <-stayed; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// While the server is otherwise idle all may run, however little they gain; as soon as it is not, only one.
func TestCrowdAlone(t *testing.T) {
	t.Parallel()
	c := newLimiter(3)
	for _, test := range []struct {
		idle    bool
		allowed int
	}{{false, 1}, {true, 3}, {true, 3}, {false, 1}, {false, 1}, {true, 3}} {
		c.setIdle(test.idle)
		if c.allowed != test.allowed {
			t.Errorf("%d instead of %d may work (idle: %t)", c.allowed, test.allowed, test.idle)
		}
	}
}
