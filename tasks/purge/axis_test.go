package purge

import (
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

func tid(block uint32, offset uint16) pgtype.TID {
	return pgtype.TID{BlockNumber: block, OffsetNumber: offset, Valid: true}
}

// After a row of a block, a sweep continues in that block; after a row that was found beforehand, with the next one.
func TestPositionsOfRows(t *testing.T) {
	t.Parallel()
	found := rowAxis{found: []pgtype.TID{tid(1, 1), tid(1, 3), tid(7, 2)}, maxRows: 10}
	for name, c := range map[string]struct {
		axis            axis
		position, after int64
		offset          uint16
	}{
		"blocks": {blockAxis{}, 1, 1, 3},
		"rows":   {found, 1, 2, 0},
	} {
		row := tid(1, 3)
		if p := c.axis.position(row); p != c.position {
			t.Errorf("%s: the row is at %d, want %d", name, p, c.position)
		}
		if after, offset := c.axis.after(row); after != c.after || offset != c.offset {
			t.Errorf("%s: the next row is after %d, offset %d", name, after, offset)
		}
	}
}

// A window of blocks begins after the rows of its first block that were picked already.
func TestBoundsOfBlocks(t *testing.T) {
	t.Parallel()
	bounds := blockAxis{}.window(4, 2, 9).Args()
	if bounds[0] != tid(2, 5) || bounds[1] != (pgtype.TID{BlockNumber: 9, Valid: true}) {
		t.Errorf("the window is %v", bounds)
	}
}
