package purge

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Condition is a condition on a row r, with its parameters $1, $2 ….
type Condition struct {
	Where string
	Args  []any
}

// unless returns the further condition that none of the conditions is true.
func unless(args *[]any, conditions []Condition) (sql string) {
	for _, c := range conditions {
		sql += fmt.Sprintf(" AND (%s) IS NOT TRUE", put(args, c))
	}
	return sql
}

// Without returns the sweep without the rows that match one of the conditions.
func (s Sweep) Without(conditions ...Condition) Sweep {
	return s.and(func(args *[]any) string { return unless(args, conditions) })
}

// And returns the sweep of the rows that also match a condition.
func (s Sweep) And(c Condition) Sweep {
	return s.and(func(args *[]any) string { return " AND (" + put(args, c) + ") IS TRUE" })
}

// and appends to the condition, and renumbers the parameters of Set and Companion, which come after its parameters.
func (s Sweep) and(more func(args *[]any) string) Sweep {
	before := len(s.Args)
	s.Args = slices.Clone(s.Args)
	s.Where, s.Narrowed = "("+s.Where+")"+more(&s.Args), true
	after := func(n int) int {
		if n > before {
			n += len(s.Args) - before
		}
		return n
	}
	s.Set = slices.Clone(s.Set)
	for i, a := range s.Set {
		s.Set[i].Value = renumber(a.Value, after)
	}
	if s.Companion != nil {
		companion := *s.Companion
		companion.SQL = renumber(companion.SQL, after)
		s.Companion = &companion
	}
	return s
}

// Or returns the condition that one of the conditions is true. It is empty without conditions.
func Or(conditions ...Condition) (c Condition) {
	var sides []string
	for _, one := range conditions {
		sides = append(sides, put(&c.Args, one))
	}
	c.Where = strings.Join(sides, " OR ")
	return c
}

// NumberedAfter returns the condition with its parameters numbered after some others.
func (c Condition) NumberedAfter(others int) string {
	args := make([]any, others)
	return put(&args, c)
}

// token matches a parameter in SQL, and text that may look like one: a quoted name, or a string.
var token = regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'|\$[0-9]+`)

// put adds a condition's parameters to others, and returns the condition with their numbers.
func put(args *[]any, c Condition) string {
	if len(c.Args) == 0 { // such as a long list of ids
		return c.Where
	}
	before := len(*args)
	*args = append(*args, c.Args...)
	return renumber(c.Where, func(n int) int { return n + before })
}

// renumber replaces the numbers of parameters in SQL.
func renumber(sql string, number func(n int) int) string {
	return token.ReplaceAllStringFunc(sql, func(found string) string {
		if n, err := strconv.Atoi(found[1:]); found[0] == '$' && err == nil {
			return "$" + strconv.Itoa(number(n))
		}
		return found
	})
}

// In returns the condition that a column has one of the ids of a parameter. A generic plan hashes them, or finds the
// rows by an index.
func In(column, ids string) string {
	return fmt.Sprintf("%s IN (SELECT unnest(%s))", column, ids)
}

// OneOf returns the condition that a column has one of the ids, as In does.
func OneOf(column string, ids []int64) Condition {
	return Condition{Where: In(column, "$1::bigint[]"), Args: []any{ids}}
}

// Among returns the condition that a column has one of the ids, in ascending order, by a binary search in a constant.
// With some thousands of ids, sending and hashing the ids of OneOf takes longer in each statement than deleting its
// rows; but only OneOf uses an index.
func Among(column string, ids []int64) Condition {
	list := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		list = append(strconv.AppendInt(list, id, 10), ',')
	}
	constant := fmt.Sprintf("'{%s}'::bigint[]", list[:len(list)-1])
	return Condition{Where: fmt.Sprintf("(%[2]s)[width_bucket(%[1]s, %[2]s)] = %[1]s", column, constant)}
}

var in = regexp.MustCompile(`([a-z]+\.[A-Za-z_0-9]+) IN \(SELECT unnest\((\$[0-9]+::bigint\[\])\)\)`)

// inConstants returns a condition for a statement that reads a table and is planned each time: that finds ids faster
// if they are constants of the column's type.
func inConstants(where string) string { return in.ReplaceAllString(where, "$1::bigint = ANY ($2)") }
