package purge

import (
	"context"
	"fmt"
)

// sampleBlocks is how much of a table is read for an estimate: 8 MiB.
const sampleBlocks = 1024

// Estimate estimates how many rows each of the sweeps has: a small table is counted, and so is a sample of a large one if
// rows of other tables matter; otherwise the planner is asked. ok is false if a large table was never analyzed.
func (e *Engine) Estimate(ctx context.Context, sweeps ...Sweep) (rows []int64, ok bool, err error) {
	ok = true
	err = e.open(ctx, sweeps, func(sw *sweep) error {
		n, known, err := sw.estimate(ctx)
		rows, ok = append(rows, n), ok && known
		return err
	})
	return rows, ok, err
}

func (sw *sweep) estimate(ctx context.Context) (rows int64, ok bool, err error) {
	if sw.Elsewhere {
		return 0, false, nil
	}
	var (
		analyzed bool
		blocks   int64
	)
	if err := sw.read(ctx, []any{&analyzed, &blocks}, `SELECT reltuples >= 0, pg_relation_size(oid) / current_setting('block_size')::bigint
		FROM pg_class WHERE oid = $1::text::regclass`, sw.Relation); err != nil {
		return 0, false, err
	}
	switch {
	case blocks <= sampleBlocks:
		err := sw.read(ctx, []any{&rows}, sw.count("")+" WHERE "+sw.Where, sw.Args...)
		return rows, err == nil, err
	case sw.ReadsOthers && sw.Keys == nil || sw.Paired != nil:
		share := float64(sampleBlocks) / float64(blocks)
		err := sw.read(ctx, []any{&rows}, fmt.Sprintf("%s WHERE %s", sw.count(fmt.Sprintf(" TABLESAMPLE SYSTEM (%f)", 100*share)), sw.Where), sw.Args...)
		return int64(float64(rows) / share), err == nil, err
	case !analyzed:
		return 0, false, nil
	}
	p, err := sw.explain(ctx)
	return p.rows, err == nil, err
}
