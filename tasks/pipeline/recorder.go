package pipeline

import (
	"context"
	"sync"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// recorder logs each warning, for example about a lock, once per task.
type recorder struct {
	Activity
	journal Journal
	ctx     context.Context // the context of the run

	mu     sync.Mutex
	warned map[string]bool
}

var _ purge.Recorder = (*recorder)(nil)

func (r *recorder) startTask() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.warned)
}

func (r *recorder) Warn(m message.Message) {
	r.mu.Lock()
	known := r.warned[m.Text]
	r.warned[m.Text] = true
	r.mu.Unlock()
	if !known {
		_ = r.journal.Progress.Log(r.ctx, m)
	}
}

func (r *recorder) Proceed(ctx context.Context) error { return r.journal.Proceed(ctx) }
