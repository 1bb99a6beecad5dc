package purge

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// axis divides the rows that a sweep visits into windows, from one position to another.
type axis interface {
	windows() pace.Windows
	// chunk is how many positions a worker takes at a time.
	chunk() int64
	// window is the condition on the rows at the positions [from, to). In the first block it leaves out the rows up to
	// an offset.
	window(offset uint16, from, to int64) sqlexpr.Expr
	rowWindow(row pgtype.TID) sqlexpr.Expr
	// position is where a row is on the axis; it is negative if the row is not on the axis.
	position(row pgtype.TID) int64
	// after returns where to continue after a row: at a position, behind an offset in its block.
	after(row pgtype.TID) (position int64, offset uint16)
}

// blockAxis visits the blocks of a table's heap. Positions are block numbers. A worker takes 1,024 blocks (8 MiB)
// at a time.
type blockAxis struct{}

func (blockAxis) windows() pace.Windows { return pace.Windows{First: 32, Max: 256} }
func (blockAxis) chunk() int64          { return 1024 }

func (blockAxis) window(offset uint16, from, to int64) sqlexpr.Expr {
	return tidRange(pgtype.TID{BlockNumber: uint32(from), OffsetNumber: offset + 1, Valid: true},
		pgtype.TID{BlockNumber: uint32(to), Valid: true})
}

func (blockAxis) rowWindow(row pgtype.TID) sqlexpr.Expr {
	return tidRange(row, pgtype.TID{BlockNumber: row.BlockNumber, OffsetNumber: row.OffsetNumber + 1, Valid: true})
}

func tidRange(from, to pgtype.TID) sqlexpr.Expr {
	return sqlexpr.Format("r.ctid >= %s AND r.ctid < %s", sqlexpr.Arg(from, ""), sqlexpr.Arg(to, ""))
}

func (blockAxis) position(row pgtype.TID) int64 { return int64(row.BlockNumber) }

func (blockAxis) after(row pgtype.TID) (position int64, offset uint16) {
	return int64(row.BlockNumber), row.OffsetNumber
}

// rowAxis visits rows that were found beforehand, in TID order. Positions are indexes into found. A window has at
// most maxRows rows.
type rowAxis struct {
	found   []pgtype.TID
	maxRows int
}

func (a rowAxis) windows() pace.Windows {
	return pace.Windows{First: int64(pace.FirstRows(a.maxRows)), Max: int64(a.maxRows), Exact: true}
}

func (a rowAxis) chunk() int64 { return 4 * int64(a.maxRows) }

func (a rowAxis) window(_ uint16, from, to int64) sqlexpr.Expr { return amongTIDs(a.found[from:to]) }

func (a rowAxis) rowWindow(row pgtype.TID) sqlexpr.Expr { return amongTIDs([]pgtype.TID{row}) }

func amongTIDs(rows []pgtype.TID) sqlexpr.Expr {
	return sqlexpr.Format("r.ctid = ANY (%s)", sqlexpr.Arg(rows, "tid[]"))
}

func (a rowAxis) position(row pgtype.TID) int64 {
	i, found := slices.BinarySearchFunc(a.found, row, compareTIDs)
	if !found {
		return -1
	}
	return int64(i)
}

func (a rowAxis) after(row pgtype.TID) (position int64, offset uint16) { return a.position(row) + 1, 0 }

func compareTIDs(a, b pgtype.TID) int {
	return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), cmp.Compare(a.OffsetNumber, b.OffsetNumber))
}
