// Package rescue turns panics into errors, so that a mistake in one piece of work does not end the process, and with it
// all the others.
package rescue

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// The text may go to callers and says nothing of what happened: that is for the log.
type Panic struct {
	value any
	stack []byte
}

func (p *Panic) Error() string {
	return "internal error (panic); see the replica's log"
}

func (*Panic) Kind() failure.Kind { return failure.Internal }

// The error is fn's, or a *Panic.
func Call(fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value, debug.Stack()}
		}
	}()
	return fn()
}

// Log includes the stack; call it once, where the error is dealt with. It does nothing about other errors.
func Log(log *slog.Logger, what string, err error) {
	var p *Panic
	if errors.As(err, &p) {
		log.Error("panic", "in", what, "panic", p.value, "stack", string(p.stack))
	}
}
