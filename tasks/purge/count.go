package purge

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// countBlocks is how many blocks a statement that only counts reads: 32 MiB.
const countBlocks = 4096

// Count counts the rows of the sweep and their paired rows. It neither changes nor locks anything, and calls found
// once for each window.
func (e *Engine) Count(ctx context.Context, s Sweep, found func(ctx context.Context, rows int64) error) error {
	return e.open(ctx, []Sweep{s}, func(t *table) error {
		if !s.NoTIDs {
			if s.Follows() {
				t.session.reads = followTimeout
				if err := t.session.prepareReading(ctx); err != nil {
					return err
				}
			}
			return t.countWindows(ctx, found)
		}
		rows, paired, err := t.countOnOtherServer(ctx)
		if err != nil {
			return err
		}
		return found(ctx, rows+paired)
	})
}

func (t *table) countWindows(ctx context.Context, found func(ctx context.Context, rows int64) error) error {
	end, _, err := t.size(ctx)
	if err != nil {
		return err
	}
	s, axis := t.sweep, blockAxis{}
	for from := int64(0); from < end; from += countBlocks {
		var rows int64
		window := axis.window(0, from, min(from+countBlocks, end))
		if err := t.query(ctx, s.countSQL("", window), &rows); err != nil {
			return err
		}
		if err := found(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// CountElsewhere counts rows on another server and, separately, their paired rows. It neither changes nor locks
// anything.
func (e *Engine) CountElsewhere(ctx context.Context, s Sweep) (tally Tally, err error) {
	tally.Windows = 1
	err = e.open(ctx, []Sweep{s}, func(t *table) (err error) {
		tally.Rows, tally.Paired, err = t.countOnOtherServer(ctx)
		return err
	})
	return tally, err
}

func (t *table) countOnOtherServer(ctx context.Context) (rows, paired int64, err error) {
	s := t.sweep
	err = t.engine.Retry(ctx, s.Name, func() error {
		return t.inOtherServersBatch(ctx, findTimeout, func(tx pgx.Tx) error {
			query := sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE %s", s.Relation, s.Where)
			if err := query.QueryRow(ctx, tx).Scan(&rows); err != nil || s.Paired == nil {
				return err
			}
			pairedWith := func(o *Sweep) sqlexpr.Expr {
				const sql = "t.%s IN (SELECT r.%s FROM ONLY %s AS r WHERE %s)"
				return sqlexpr.Format(sql, s.Paired.Key, o.Paired.ID, o.Relation, o.Where)
			}
			var before []sqlexpr.Expr
			for _, b := range s.Paired.Before {
				before = append(before, pairedWith(&b))
			}
			return sqlexpr.Format("SELECT count(*) FROM %s AS t WHERE t.%s <> 0 AND %s%s", s.Paired.Relation,
				s.Paired.Key, pairedWith(s), unless(before)).QueryRow(ctx, tx).Scan(&paired)
		})
	})
	return rows, paired, err
}

// sampleBlocks is how many blocks are read for an estimate: 8 MiB.
const sampleBlocks = 1024

// Estimate returns how many rows each sweep would find, roughly. It counts small tables, and a sample of a large
// table if rows of other tables matter; otherwise it takes the planner's estimate. ok is false if a large table was
// never analyzed.
func (e *Engine) Estimate(ctx context.Context, sweeps ...Sweep) (rows []int64, ok bool, err error) {
	ok = true
	err = e.open(ctx, sweeps, func(t *table) error {
		n, known, err := t.estimate(ctx)
		rows, ok = append(rows, n), ok && known
		return err
	})
	return rows, ok, err
}

func (t *table) estimate(ctx context.Context) (rows int64, ok bool, err error) {
	s := t.sweep
	if s.NoTIDs {
		return 0, false, nil
	}
	var (
		analyzed bool
		blocks   int64
	)
	const sql = `SELECT reltuples >= 0, pg_relation_size(oid) / current_setting('block_size')::bigint
		FROM pg_class WHERE oid = $1::text::regclass`
	if err := t.read(ctx, []any{&analyzed, &blocks}, sql, s.Relation); err != nil {
		return 0, false, err
	}
	switch {
	case blocks <= sampleBlocks:
		err := t.query(ctx, s.countSQL("", sqlexpr.Expr{}), &rows)
		return rows, err == nil, err
	case s.Newest != nil: // each row of a sample may be in another group
		rows, err := t.countSample(ctx, quickBlocks, blocks)
		return rows, err == nil, err
	case (s.ReadsOthers && s.Keys == nil) || s.Paired != nil:
		rows, err := t.countSample(ctx, sampleBlocks, blocks)
		return rows, err == nil, err
	case !analyzed:
		return 0, false, nil
	}
	plan, err := t.explain(ctx, s.matchSQL())
	return int64(plan.Rows), err == nil, err
}

// countSample reads some random blocks of a table and multiplies the number of rows found accordingly.
func (t *table) countSample(ctx context.Context, some, blocks int64) (rows int64, err error) {
	share := min(1, float64(some)/float64(max(blocks, 1)))
	sample := fmt.Sprintf(" TABLESAMPLE SYSTEM (%f)", 100*share)
	err = t.query(ctx, t.sweep.countSQL(sample, sqlexpr.Expr{}), &rows)
	return int64(float64(rows) / share), err
}

// quickBlocks is how many blocks Sample reads: 2 MiB.
const quickBlocks = 256

// Sample estimates the rows of a sweep from a few random blocks, without the planner's statistics.
func (e *Engine) Sample(ctx context.Context, s Sweep) (rows int64, err error) {
	err = e.open(ctx, []Sweep{s}, func(t *table) error {
		blocks, _, err := t.size(ctx)
		if err != nil {
			return err
		}
		rows, err = t.countSample(ctx, quickBlocks, blocks)
		return err
	})
	return rows, err
}
