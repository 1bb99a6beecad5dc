package pace

import (
	"context"
	"errors"
	"testing"
	"time"
)

// If workers hinder each other, all but one pause; otherwise all may run.
func TestLimiter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		together time.Duration // for a batch when two run; 10 ms for a single one
		both     bool
	}{
		"nothing gained":        {20 * time.Millisecond, false},
		"a third gained":        {15 * time.Millisecond, false},
		"two thirds gained":     {12 * time.Millisecond, true},
		"twice as much in time": {10 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLimiter(2)
			l.pause = 0
			batches := func(took time.Duration) {
				for range 2 * trialBatches {
					l.Observe(time.Now(), took, 1_000)
				}
			}
			hasty, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := l.Acquire(hasty); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("two workers run before the cost of one is known: %v", err)
			}
			l.Observe(time.Now(), time.Hour, 0) // a batch without rows does not count
			batches(10 * time.Millisecond)
			if err := l.Acquire(t.Context()); err != nil { // the second one is tried
				t.Fatal(err)
			}
			batches(test.together)
			if both := l.allowed == 2; both != test.both {
				t.Fatalf("both may run: %v", both)
			}
			reacquired := make(chan error)
			go func() { reacquired <- l.Reacquire(t.Context()) }()
			select {
			case err := <-reacquired:
				if !test.both || err != nil {
					t.Errorf("the second one continued: %v", err)
				}
			case <-time.After(50 * time.Millisecond):
				if test.both {
					t.Error("the second one has to wait")
				}
				l.Release() // the first one ends
				if err := <-reacquired; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// While the server is otherwise idle all workers may run, however little they gain; otherwise only one.
func TestLimiterOnAnIdleServer(t *testing.T) {
	t.Parallel()
	l := NewLimiter(3)
	for _, test := range []struct {
		idle    bool
		allowed int
	}{{false, 1}, {true, 3}, {true, 3}, {false, 1}, {false, 1}, {true, 3}} {
		l.SetMode(test.idle, false)
		if l.allowed != test.allowed {
			t.Errorf("%d workers may run, want %d (idle: %t)", l.allowed, test.allowed, test.idle)
		}
	}
}
