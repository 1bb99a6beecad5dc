package purge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// axis is what a sweep goes along, from one end to the other: the blocks of the table, or rows that were found before,
// in the order of their places.
type axis struct {
	found []pgtype.TID // nil: the blocks
	// first is how much of it the first batch covers, most what any may, and stretch what a worker takes at once.
	first, most, stretch int64
	// part says that these are some of the table's blocks: what is below a place is not done.
	part bool
}

// blocks is the axis of a table's heap: 8 KiB each. A worker takes 8 MiB at once.
var blocks = axis{first: 32, most: 256, stretch: 1024}

// someBlocks is the axis of a part of the heap.
func someBlocks() axis {
	a := blocks
	a.part = true
	return a
}

// rows is the axis of rows that were found; no batch covers more than it may touch.
func rows(found []pgtype.TID, most int) axis {
	return axis{found: found, first: int64(min(firstRows, most)), most: int64(most), stretch: 4 * int64(most)}
}

// window is the condition that a row stands between two places, whose parameters follow so many others.
func (a axis) window(after int) string {
	if a.found != nil {
		return fmt.Sprintf("r.ctid = ANY ($%d::tid[])", after+1)
	}
	return fmt.Sprintf("r.ctid >= $%d AND r.ctid < $%d", after+1, after+2)
}

// places are the parameters of window.
func (a axis) places(from, to int64) []any { return a.placesBehind(0, from, to) }

// placesBehind are those of a window whose first block has so many rows that are passed over.
func (a axis) placesBehind(rows uint16, from, to int64) []any {
	if a.found != nil {
		return []any{a.found[from:to]}
	}
	return []any{pgtype.TID{BlockNumber: uint32(from), OffsetNumber: rows + 1, Valid: true}, pgtype.TID{BlockNumber: uint32(to), Valid: true}}
}

// past is the place from which on there may be more when this row was the last of a batch; in a block, behind so many rows.
func (a axis) past(row pgtype.TID) (place int64, rows uint16) {
	if a.found == nil {
		return int64(row.BlockNumber), row.OffsetNumber
	}
	i, _ := slices.BinarySearchFunc(a.found, row, compareTIDs)
	return int64(i) + 1, 0
}

func compareTIDs(a, b pgtype.TID) int {
	return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), cmp.Compare(a.OffsetNumber, b.OffsetNumber))
}
