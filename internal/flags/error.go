package flags

import "fmt"

// Error is a mistake on the command line or in the environment.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }
