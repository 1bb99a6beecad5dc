// Package rescue turns panics into errors, so that a mistake in one piece of work does not end the process with all
// the others.
package rescue

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Panic is the error of a panic. Its text may go to callers, so it does not say what happened; the log does.
type Panic struct {
	value any
	stack []byte
}

func (p *Panic) Error() string {
	return "internal error (panic); see the replica's log"
}

func (*Panic) Kind() failure.Kind { return failure.Internal }

// Call returns fn's error, or a *Panic if fn panics.
func Call(fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value, debug.Stack()}
		}
	}()
	return fn()
}

// Log logs a *Panic with its stack, and ignores other errors. Call it once, where the error is handled.
func Log(log *slog.Logger, what string, err error) {
	var p *Panic
	if errors.As(err, &p) {
		log.Error("panic", "in", what, "panic", p.value, "stack", string(p.stack))
	}
}
