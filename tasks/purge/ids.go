package purge

import (
	"fmt"
	"regexp"
)

// In is the condition that a column has one of some ids, a parameter. A plan that is made once hashes them, or finds the rows by an index.
func In(column, ids string) string {
	return fmt.Sprintf("%s IN (SELECT unnest(%s))", column, ids)
}

var in = regexp.MustCompile(`([a-z]+\.[A-Za-z_0-9]+) IN \(SELECT unnest\((\$[0-9]+::bigint\[\])\)\)`)

// inConstants is a condition for a statement that reads a table and is planned each time: there ids are found more quickly that are constants, if
// they are of the column's type.
func inConstants(where string) string { return in.ReplaceAllString(where, "$1::bigint = ANY ($2)") }
