package execute

import (
	"context"
	"sync"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// recorder has the journal record what the engine does: a warning, such as about a lock, once a task.
type recorder struct {
	Journal
	ctx context.Context // of the run

	mu     sync.Mutex
	warned map[string]bool
}

var _ purge.Recorder = (*recorder)(nil)

func newRecorder(ctx context.Context, j Journal) *recorder {
	return &recorder{Journal: j, ctx: ctx, warned: map[string]bool{}}
}

// begin begins a task: warnings are logged again.
func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.warned)
}

// Warn implements purge.Recorder.
func (r *recorder) Warn(message string) {
	r.mu.Lock()
	told := r.warned[message]
	r.warned[message] = true
	r.mu.Unlock()
	if !told {
		_ = r.Log(r.ctx, severity.Warning, message)
	}
}
