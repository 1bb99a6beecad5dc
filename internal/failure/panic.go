package failure

import (
	"errors"
	"log/slog"
	"runtime/debug"
)

// Panic is the error of a panic. Its text may go to callers, so it does not say what happened; the log does.
type Panic struct {
	value any
	stack []byte
}

func (p *Panic) Error() string {
	return "internal error (panic); see the replica's log"
}

func (*Panic) Kind() Kind { return Internal }

// Catch returns fn's error, or a *Panic if fn panics, so that a mistake in one piece of work does not end the process
// with all the others.
func Catch(fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value, debug.Stack()}
		}
	}()
	return fn()
}

// LogPanic logs a *Panic with its stack, and ignores other errors. Call it once, where the error is handled.
func LogPanic(log *slog.Logger, what string, err error) {
	var p *Panic
	if errors.As(err, &p) {
		log.Error("panic", "in", what, "panic", p.value, "stack", string(p.stack))
	}
}
