package sqlexpr

import (
	"fmt"
	"slices"
	"strconv"
)

// In is the condition that a column has one of the ids in a parameter, which is an array of bigint. A generic plan
// hashes the ids, or finds the rows by an index.
func In(column string, ids Expr) Expr { return Expr{[]piece{{arg: ids.pieces[0].arg, column: column}}} }

func OneOf(column string, ids []int64) Expr { return In(column, Arg(ids, "bigint[]")) }

// OneOfTexts is for a column of any type, by its text: "7", " 7", "7.0".
func OneOfTexts(column string, ids []int64) Expr {
	return Format(`CASE WHEN %[1]s::text ~ '^\s*[+-]?[0-9]+(\.0*)?\s*$' THEN %[1]s::text::numeric = ANY (%[2]s) END`,
		column, Arg(ids, "bigint[]"))
}

// maxHashed is how many ids are hashed by each statement, which takes about 10 ns an id. A binary search among more of
// them takes less time than that, if the statement deletes some thousand rows.
const maxHashed = 50_000

// Among is the condition that a column has one of some ids, in ascending order. They are a constant: sending and
// reading those of OneOf with each statement takes longer than deleting its rows if there are thousands. But only OneOf
// can use an index.
func Among(column string, ids []int64) Expr {
	list := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		list = append(strconv.AppendInt(list, id, 10), ',')
	}
	constant := fmt.Sprintf("'{%s}'::bigint[]", list[:len(list)-1])
	if len(ids) <= maxHashed {
		return SQL(fmt.Sprintf("%s::bigint = ANY (%s)", column, constant))
	}
	return Format("(%[2]s)[width_bucket(%[1]s, %[2]s)] = %[1]s", column, constant)
}

// Constants is for a statement that reads a table and is planned each time. It finds the ids of In faster if they
// are constants of the column's type.
func (e Expr) Constants() Expr {
	e.pieces = slices.Clone(e.pieces)
	for i := range e.pieces {
		e.pieces[i].constant = true
	}
	return e
}
