package purge

import (
	"context"
	"fmt"
)

// sampleBlocks is how much of a table is read for an estimate: 8 MiB.
const sampleBlocks = 1024

// Estimate estimates how many rows each of the sweeps has: a small table is counted, and so is a sample of a large one
// if rows of other tables matter; otherwise the planner is asked. ok is false if a large table was never analyzed.
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
	if err := sw.read(
		ctx,
		[]any{&analyzed, &blocks},
		`SELECT reltuples >= 0, pg_relation_size(oid) / current_setting('block_size')::bigint
		FROM pg_class WHERE oid = $1::text::regclass`,
		sw.Relation,
	); err != nil {
		return 0, false, err
	}
	switch {
	case blocks <= sampleBlocks:
		err := sw.read(ctx, []any{&rows}, sw.count("")+" WHERE "+sw.Where, sw.Args...)
		return rows, err == nil, err
	case (sw.ReadsOthers && sw.Keys == nil) || sw.Paired != nil:
		rows, err := sw.sampled(ctx, float64(sampleBlocks)/float64(blocks))
		return rows, err == nil, err
	case !analyzed:
		return 0, false, nil
	}
	p, err := sw.explain(ctx)
	return p.rows, err == nil, err
}

// sampled is how many rows the sweep has, by a random share of the table's blocks.
func (sw *sweep) sampled(ctx context.Context, share float64) (rows int64, err error) {
	err = sw.read(
		ctx,
		[]any{&rows},
		fmt.Sprintf("%s WHERE %s", sw.count(fmt.Sprintf(" TABLESAMPLE SYSTEM (%f)", 100*share)), sw.Where),
		sw.Args...)
	return int64(float64(rows) / share), err
}

// quickBlocks is how much of a table Sample reads: 2 MiB.
const quickBlocks = 256

// Sample estimates how many rows a sweep has by what a few blocks of its table are now, whatever the planner's
// statistics say.
func (e *Engine) Sample(ctx context.Context, s Sweep) (rows int64, err error) {
	err = e.open(ctx, []Sweep{s}, func(sw *sweep) error {
		var blocks int64
		if err := sw.read(
			ctx,
			[]any{&blocks},
			"SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint",
			sw.Relation,
		); err != nil {
			return err
		}
		rows, err = sw.sampled(ctx, min(1, float64(quickBlocks)/float64(max(blocks, 1))))
		return err
	})
	return rows, err
}
