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

// unless is the further condition that none of some is true.
func unless(args *[]any, conditions []Condition) (sql string) {
	for _, c := range conditions {
		sql += fmt.Sprintf(" AND (%s) IS NOT TRUE", put(args, c))
	}
	return sql
}

// Without returns the sweep without the rows of which one of some conditions is true.
func (s Sweep) Without(conditions ...Condition) Sweep {
	return s.and(func(args *[]any) string { return unless(args, conditions) })
}

// And returns the sweep of those rows of which a condition is true, too.
func (s Sweep) And(c Condition) Sweep {
	return s.and(func(args *[]any) string { return " AND (" + put(args, c) + ") IS TRUE" })
}

// and appends to the condition, and numbers the parameters of Set and Also anew, which come after those of the
// condition.
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
		also := *s.Companion
		also.SQL = renumber(also.SQL, after)
		s.Companion = &also
	}
	return s
}

// Or returns the condition that one of some is true. It has no text if there are none.
func Or(conditions ...Condition) (c Condition) {
	var sides []string
	for _, one := range conditions {
		sides = append(sides, put(&c.Args, one))
	}
	c.Where = strings.Join(sides, " OR ")
	return c
}

// NumberedAfter is the condition with its parameters numbered after some others.
func (c Condition) NumberedAfter(others int) string {
	args := make([]any, others)
	return put(&args, c)
}

// token is a parameter in SQL, or what is not to be taken for one: a quoted name, or a text.
var token = regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'|\$[0-9]+`)

// put adds a condition's parameters to others, and returns it with their numbers.
func put(args *[]any, c Condition) string {
	if len(c.Args) == 0 { // such as a long list of ids
		return c.Where
	}
	before := len(*args)
	*args = append(*args, c.Args...)
	return renumber(c.Where, func(n int) int { return n + before })
}

// renumber gives parameters in SQL other numbers.
func renumber(sql string, number func(n int) int) string {
	return token.ReplaceAllStringFunc(sql, func(found string) string {
		if n, err := strconv.Atoi(found[1:]); found[0] == '$' && err == nil {
			return "$" + strconv.Itoa(number(n))
		}
		return found
	})
}

// In is the condition that a column has one of some ids, a parameter. A plan that is made once hashes them, or finds
// the rows by an index.
func In(column, ids string) string {
	return fmt.Sprintf("%s IN (SELECT unnest(%s))", column, ids)
}

// OneOf returns the condition that a column has one of some ids, as In does.
func OneOf(column string, ids []int64) Condition {
	return Condition{Where: In(column, "$1::bigint[]"), Args: []any{ids}}
}

// Among returns the condition that a column has one of some ids, in ascending order, by a binary search in a constant.
// With some thousands of ids, sending and hashing those of OneOf takes longer in each statement than deleting its rows;
// but only OneOf uses an index.
func Among(column string, ids []int64) Condition {
	list := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		list = append(strconv.AppendInt(list, id, 10), ',')
	}
	constant := fmt.Sprintf("'{%s}'::bigint[]", list[:len(list)-1])
	return Condition{Where: fmt.Sprintf("(%[2]s)[width_bucket(%[1]s, %[2]s)] = %[1]s", column, constant)}
}

var in = regexp.MustCompile(`([a-z]+\.[A-Za-z_0-9]+) IN \(SELECT unnest\((\$[0-9]+::bigint\[\])\)\)`)

// inConstants is a condition for a statement that reads a table and is planned each time: there ids are found more
// quickly that are constants, if they are of the column's type.
func inConstants(where string) string { return in.ReplaceAllString(where, "$1::bigint = ANY ($2)") }
