package sqlexpr

import (
	"fmt"
	"slices"
	"strconv"
)

// In: the column has one of the ids in a parameter, an array of bigint. A generic plan hashes them, or finds the rows
// by an index.
func In(column string, ids Expr) Expr { return Expr{[]piece{{arg: ids.pieces[0].arg, column: column}}} }

func OneOf(column string, ids []int64) Expr { return In(column, Arg(ids, "bigint[]")) }

// For a column of any type, by its text: "7", " 7", "7.0".
func OneOfTexts(column string, ids []int64) Expr {
	return Format(`CASE WHEN %[1]s::text ~ '^\s*[+-]?[0-9]+(\.0*)?\s*$' THEN %[1]s::text::numeric = ANY (%[2]s) END`,
		column, Arg(ids, "bigint[]"))
}

// Among takes ids in ascending order, for a binary search in a constant. With some thousands of ids, sending and
// hashing the ids of OneOf takes longer in each statement than deleting its rows; but only OneOf uses an index.
func Among(column string, ids []int64) Expr {
	list := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		list = append(strconv.AppendInt(list, id, 10), ',')
	}
	constant := fmt.Sprintf("'{%s}'::bigint[]", list[:len(list)-1])
	return Format("(%[2]s)[width_bucket(%[1]s, %[2]s)] = %[1]s", column, constant)
}

// Constants is for a statement that reads a table and is planned each time: that finds the ids of In faster if they are
// constants of the column's type.
func (e Expr) Constants() Expr {
	e.pieces = slices.Clone(e.pieces)
	for i := range e.pieces {
		e.pieces[i].constant = true
	}
	return e
}
