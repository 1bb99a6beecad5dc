package purge

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Along is a column that the condition bounds, with an index that leads to the rows: it may be walked where little
// goes, instead of visiting all of the table.
type Along struct {
	// Column is a column of integers, or of dates with a time zone.
	Column string
	// From and To bound its values, To itself not being among them: integers, or microseconds since 1970.
	From, To int64
	// Dates says that they are dates; From is then looked up.
	Dates bool
}

// axis is what a sweep goes along, from one end to the other: the blocks of the table, or an ordered column.
type axis struct {
	column string // empty: the blocks
	dates  bool
	start  int64
	// first is how much of it the first batch covers, most what any may, stretch what a worker takes at once, and large
	// from how much on several workers are worth it.
	first, most, stretch, large int64
}

// blocks is the axis of a table's heap: 8 KiB each. A worker takes 8 MiB at once; from 64 MiB on there may be several.
var blocks = axis{first: 32, most: 256, stretch: 1024, large: 8192}

// Parts of a column's range, about which is known only that it is not empty.
const (
	firstPart   = 1_000
	stretchPart = 32
)

func (a *Along) axis() axis {
	length := max(a.To-a.From, 1)
	return axis{column: a.Column, dates: a.Dates, start: a.From, first: max(length/firstPart, 1), most: math.MaxInt64 / 4,
		stretch: max(length/stretchPart, 1), large: stretchPart}
}

// String is the way for a person.
func (a axis) String() string {
	if a.column == "" {
		return "table"
	}
	return "index on " + a.column
}

// key is what places a row on the axis.
func (a axis) key() string {
	if a.column == "" {
		return "r.ctid"
	}
	return "r." + a.column
}

// window is the condition that a row stands between two places, whose parameters follow so many others.
func (a axis) window(after int) string {
	as := ""
	switch {
	case a.dates:
		as = "::timestamptz"
	case a.column != "":
		as = "::bigint"
	}
	return fmt.Sprintf("%[1]s >= $%[2]d%[4]s AND %[1]s < $%[3]d%[4]s", a.key(), after+1, after+2, as)
}

// place is a place on the axis as a parameter of window.
func (a axis) place(at int64) any {
	switch {
	case a.column == "":
		return pgtype.TID{BlockNumber: uint32(at), Valid: true}
	case a.dates:
		return time.UnixMicro(at)
	}
	return at
}

// number is the SQL of the place that a key stands for.
func (a axis) number(key string) string {
	switch {
	case a.column == "":
		return "(" + key + "::text::point)[0]::bigint"
	case a.dates:
		return "floor(extract(epoch FROM " + key + ") * 1000000)::bigint"
	}
	return key + "::bigint"
}

// order makes rows come in the order of the axis. The heap is read in that of its blocks anyway.
func (a axis) order() string {
	if a.column == "" {
		return ""
	}
	return " ORDER BY " + a.key()
}

// small is the table that is swept whatever index there is: a few batches see all of it.
const small = 1024

// way chooses what a sweep goes along: an index where the planner would use it, else the whole table.
func (e *Engine) way(ctx context.Context, s Sweep) (axis, error) {
	if s.Along == nil {
		return blocks, nil
	}
	if end, err := e.end(ctx, s); err != nil || end <= small {
		return blocks, err
	}
	p, err := e.explain(ctx, s)
	if err != nil || len(p.indexes) == 0 {
		return blocks, err
	}
	var leads bool
	if err := e.read(ctx, s, []any{&leads}, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1::text::regclass AND x.relname = ANY ($2) AND i.indpred IS NULL AND m.amname = 'btree' AND a.attname = $3
		  AND a.atttypid = ANY (CASE WHEN $4 THEN '{timestamptz}' ELSE '{int2,int4,int8}' END::regtype[]))`, s.Relation, p.indexes, s.Along.Column, s.Along.Dates); err != nil || !leads {
		return blocks, err
	}
	along := *s.Along
	if along.Dates {
		var from *int64
		if err := e.read(ctx, s, []any{&from}, fmt.Sprintf("SELECT CASE WHEN isfinite(min(%[1]s)) THEN floor(extract(epoch FROM min(%[1]s)) * 1000000)::bigint END FROM ONLY %[2]s", along.Column, s.Relation)); err != nil || from == nil {
			return blocks, err
		}
		along.From = min(*from, along.To)
	}
	return along.axis(), nil
}
