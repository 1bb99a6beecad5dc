package purge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// axis is what a sweep traverses: the table's blocks, or rows that were found beforehand, in TID order. A position on
// it is a block number, or an index into found.
type axis struct {
	found []pgtype.TID // nil: the blocks
	// first is the width of the first window, most that of the widest, and chunk how much a worker takes at a time.
	first, most, chunk int64
	// part says that only some of the table's blocks are swept: those below a position may not be done.
	part bool
}

// blocks is the axis of a table's heap, in blocks of 8 KiB. A worker takes 8 MiB at a time.
var blocks = axis{first: 32, most: 256, chunk: 1024}

// someBlocks is the axis of part of the heap.
func someBlocks() axis {
	a := blocks
	a.part = true
	return a
}

// rows is the axis of rows that were found; no window has more than a statement may touch.
func rows(found []pgtype.TID, most int) axis {
	return axis{found: found, first: int64(pace.FirstRows(most)), most: int64(most), chunk: 4 * int64(most)}
}

// windows describes the windows for a Sizer.
func (a axis) windows() pace.Windows {
	return pace.Windows{First: a.first, Max: a.most, Exact: a.found != nil}
}

// window is the condition that a row lies between two positions. Its parameters are numbered from after+1 on.
func (a axis) window(after int) string {
	if a.found != nil {
		return fmt.Sprintf("r.ctid = ANY ($%d::tid[])", after+1)
	}
	return fmt.Sprintf("r.ctid >= $%d AND r.ctid < $%d", after+1, after+2)
}

// bounds are the parameters of window.
func (a axis) bounds(from, to int64) []any { return a.boundsAfter(0, from, to) }

// boundsAfter are those of a window that begins after an offset in its first block.
func (a axis) boundsAfter(rows uint16, from, to int64) []any {
	if a.found != nil {
		return []any{a.found[from:to]}
	}
	return []any{
		pgtype.TID{BlockNumber: uint32(from), OffsetNumber: rows + 1, Valid: true},
		pgtype.TID{BlockNumber: uint32(to), Valid: true},
	}
}

// only are the parameters of a window of one row.
func (a axis) only(row pgtype.TID) []any {
	if a.found != nil {
		return []any{[]pgtype.TID{row}}
	}
	return []any{row, pgtype.TID{BlockNumber: row.BlockNumber, OffsetNumber: row.OffsetNumber + 1, Valid: true}}
}

// after is the position from which on there may be more rows when row was the last of a batch; on blocks, after an
// offset.
func (a axis) after(row pgtype.TID) (place int64, rows uint16) {
	if a.found == nil {
		return int64(row.BlockNumber), row.OffsetNumber
	}
	i, _ := slices.BinarySearchFunc(a.found, row, compareTIDs)
	return int64(i) + 1, 0
}

func compareTIDs(a, b pgtype.TID) int {
	return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), cmp.Compare(a.OffsetNumber, b.OffsetNumber))
}
