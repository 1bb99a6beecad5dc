// Package failure gives errors a kind, which determines the status of the call that they end. Packages declare such
// errors with New or Field, or give their error type the method Kind. Only package service/transport turns a kind into
// a status, and handles no other errors. Catch makes a panic such an error.
package failure

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says what an error means to the caller.
type Kind int

// Internal is also the kind of errors that are not Kinded.
const (
	Internal     Kind = iota
	Invalid           // the request is wrong in itself
	NotFound          // what the request names does not exist
	Conflict          // another run is active, or another caller made a change: read again, and retry
	Precondition      // the state of the database, or of stored data, must change first
	Exhausted         // too many requests at once: retry later
	Unavailable       // the database cannot be used now: retry later
	DataLoss          // events that the caller received were lost
)

type Kinded interface {
	error
	Kind() Kind
}

// Informed is a Kinded error with a machine-readable reason, such as ON_HOLD, and details by key.
type Informed interface {
	Kinded
	Info() (reason string, metadata map[string]string)
}

type kinded struct {
	kind    Kind
	message string
}

// New returns an error that callers compare with errors.Is.
func New(kind Kind, message string) error { return &kinded{kind, message} }

func (e *kinded) Error() string { return e.message }

func (e *kinded) Kind() Kind { return e.kind }

// FieldError is a problem of a field of the request. Its text, with what wraps it, is shown as the field's problem.
type FieldError struct{ Field, Problem string }

// Field returns an error that callers compare with errors.Is.
func Field(field, problem string) *FieldError { return &FieldError{field, problem} }

func (e *FieldError) Error() string { return e.Problem }

func (*FieldError) Kind() Kind { return Invalid }

type Violation struct {
	Field, Problem string
	more           int // how many follow that are only counted
}

// Violations are everything that is wrong with a request.
type Violations []Violation

const (
	maxViolations  = 10    // in a status: clients accept them only up to some size
	violationsKept = 1_000 // each entry of a long list may be wrong
)

// Brief returns the first violations, and how many more there are.
func (v Violations) Brief() Violations {
	more := len(v) - maxViolations
	if more <= 0 {
		return v
	}
	for _, one := range v {
		more += one.more
	}
	rest := Violation{Field: v[maxViolations].Field, Problem: fmt.Sprintf("and %d more mistakes from here on", more)}
	return append(slices.Clone(v[:maxViolations]), rest)
}

func (v Violations) Error() string {
	var lines []string
	for _, one := range v {
		lines = append(lines, one.Field+": "+one.Problem)
		if one.more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more mistakes", one.more))
		}
	}
	return strings.Join(lines, "; ")
}

func (Violations) Kind() Kind { return Invalid }

func (v *Violations) Add(field, problem string) { v.Addf(field, "%s", problem) }

func (v *Violations) Addf(field, format string, args ...any) {
	if n := len(*v); n >= violationsKept {
		(*v)[n-1].more++
		return
	}
	*v = append(*v, Violation{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// Err returns nil if there are no violations.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	return v
}
