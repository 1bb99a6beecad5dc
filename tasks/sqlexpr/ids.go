package sqlexpr

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// In is the condition that a column contains one of the ids in a parameter, an array of bigint. A generic plan hashes
// the ids or looks the rows up in an index.
func In(column string, ids Expr) Expr { return Expr{[]piece{{arg: ids.pieces[0].arg, column: column}}} }

func OneOf(column string, ids []int64) Expr { return In(column, Arg(ids, "bigint[]")) }

// OneOfTexts is OneOf for a column of any type. It compares texts: "7", " 7" and "7.0" are all the id 7.
func OneOfTexts(column string, ids []int64) Expr {
	return Format(`CASE WHEN %[1]s::text ~ '^\s*[+-]?[0-9]+(\.0*)?\s*$' THEN %[1]s::text::numeric = ANY (%[2]s) END`,
		column, Arg(ids, "bigint[]"))
}

// maxHashed is the most ids that statements hash, at about 10 ns an id for each statement. With more ids, a binary
// search for each row takes less time, if the statement deletes a few thousand rows.
const maxHashed = 50_000

// greatest has the greatest values of the types that Among compares.
var greatest = map[string]int64{"smallint": math.MaxInt16, "integer": math.MaxInt32, "bigint": math.MaxInt64}

// Among is the condition that a column contains one of the ids, which must be in ascending order. Its type is smallint,
// integer or bigint; a column of another one is cast, and the planner then has no statistics of it. The ids become a
// constant: with thousands of them, sending and reading the parameter of OneOf takes longer than deleting a statement's
// rows. Unlike OneOf, Among cannot use an index.
func Among(column, typ string, ids []int64) Expr {
	if greatest[typ] == 0 {
		column, typ = column+"::bigint", "bigint"
	}
	list := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		if -greatest[typ]-1 <= id && id <= greatest[typ] {
			list = append(strconv.AppendInt(list, id, 10), ',')
		}
	}
	if len(list) == 0 {
		return SQL("false")
	}
	constant := fmt.Sprintf("'{%s}'::%s[]", list[:len(list)-1], typ)
	if len(ids) <= maxHashed {
		return SQL(fmt.Sprintf("%s = ANY (%s)", column, constant))
	}
	return Format("(%[2]s)[width_bucket(%[1]s, %[2]s)] = %[1]s", column, constant)
}

// Constants returns e with "= ANY" for each In. Statements that read a whole table and are planned each time, with the
// ids as constants of the column's type, check rows faster this way.
func (e Expr) Constants() Expr {
	e.pieces = slices.Clone(e.pieces)
	for i := range e.pieces {
		e.pieces[i].constant = true
	}
	return e
}
