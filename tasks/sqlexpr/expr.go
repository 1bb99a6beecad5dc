package sqlexpr

import (
	"fmt"
	"strconv"
	"strings"
)

// Expr is SQL with its arguments. The zero value is empty. An Expr is immutable, and may be part of several others.
type Expr struct{ pieces []piece }

// piece is text, or a reference to an argument.
type piece struct {
	text string
	arg  *argument
	// column, unless empty, is compared with the elements of the argument; see In.
	column string
	// constant is set if the elements are compared as constants; see Constants.
	constant bool
}

// argument is one parameter, however often a statement refers to it.
type argument struct {
	value any
	cast  string
}

func SQL(text string) Expr {
	if text == "" {
		return Expr{}
	}
	return Expr{[]piece{{text: text}}}
}

// Arg returns an argument, which is cast to a type unless cast is empty.
func Arg(value any, cast string) Expr { return Expr{[]piece{{arg: &argument{value, cast}}}} }

// Format is like fmt.Sprintf, except that an Expr among the operands becomes part of the result, with its arguments.
func Format(format string, operands ...any) Expr {
	var parts []Expr
	marked := make([]any, len(operands))
	for i, operand := range operands {
		if part, ok := operand.(Expr); ok {
			operand = marker(func() { parts = append(parts, part) })
		}
		marked[i] = operand
	}
	var e Expr
	for i, text := range strings.Split(fmt.Sprintf(format, marked...), mark) {
		if i > 0 {
			e.pieces = append(e.pieces, parts[i-1].pieces...)
		}
		e.pieces = append(e.pieces, SQL(text).pieces...)
	}
	return e
}

// mark stands for an Expr while text is being formatted. SQL cannot contain it.
const mark = "\x00"

// marker is an operand that, when fmt formats it, calls a function and writes mark.
type marker func()

func (m marker) Format(text fmt.State, _ rune) {
	m()
	_, _ = text.Write([]byte(mark))
}

// Join joins expressions. Empty ones are left out.
func Join(separator string, list ...Expr) (e Expr) {
	for _, one := range list {
		if !e.IsZero() && !one.IsZero() {
			e.pieces = append(e.pieces, piece{text: separator})
		}
		e.pieces = append(e.pieces, one.pieces...)
	}
	return e
}

// Or joins conditions by OR. Empty ones are left out.
func Or(conditions ...Expr) Expr { return Join(" OR ", conditions...) }

func (e Expr) IsZero() bool { return e.pieces == nil }

func (e Expr) Bind(bind func(value any) (any, error)) (bound Expr, err error) {
	args := map[*argument]*argument{}
	for _, p := range e.pieces {
		if p.arg != nil {
			if args[p.arg] == nil {
				value, err := bind(p.arg.value)
				if err != nil {
					return Expr{}, err
				}
				args[p.arg] = &argument{value, p.arg.cast}
			}
			p.arg = args[p.arg]
		}
		bound.pieces = append(bound.pieces, p)
	}
	return bound, nil
}

func (e Expr) Args() (values []any) {
	known := map[*argument]bool{nil: true}
	for _, p := range e.pieces {
		if !known[p.arg] {
			known[p.arg] = true
			values = append(values, p.arg.value)
		}
	}
	return values
}

// Size returns the length of the SQL in bytes, without its parameters.
func (e Expr) Size() (bytes int) {
	for _, p := range e.pieces {
		bytes += len(p.text)
	}
	return bytes
}

// Build returns the statement and its arguments. Parameters are numbered in the order in which they first appear.
func (e Expr) Build() (sql string, args []any) {
	var text strings.Builder
	numbers := map[*argument]int{}
	for _, p := range e.pieces {
		if p.arg != nil && numbers[p.arg] == 0 {
			numbers[p.arg] = len(numbers) + 1
		}
		text.WriteString(p.build(numbers[p.arg]))
	}
	return text.String(), e.Args()
}

func (p piece) build(number int) string {
	if p.arg == nil {
		return p.text
	}
	parameter := "$" + strconv.Itoa(number)
	if p.arg.cast != "" {
		parameter += "::" + p.arg.cast
	}
	switch {
	case p.column == "":
		return parameter
	case p.constant:
		return p.column + "::bigint = ANY (" + parameter + ")"
	}
	return p.column + " IN (SELECT unnest(" + parameter + "))"
}
