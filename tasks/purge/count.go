package purge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Count counts the rows of the sweep and their twins, changing and locking nothing. found is told the rows of one
// window after another.
func (e *Engine) Count(ctx context.Context, s Sweep, found func(ctx context.Context, rows int64) error) error {
	end, err := e.end(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	sql := "SELECT count(*) FROM ONLY " + s.Relation + " AS r"
	if s.Twin != nil {
		sql = fmt.Sprintf("SELECT count(*) + count(t.%[2]s) FROM ONLY %[3]s AS r LEFT JOIN %[1]s AS t ON t.%[2]s = r.%[4]s AND t.%[2]s <> 0",
			s.Twin.Relation, s.Twin.Key, s.Relation, s.Twin.ID)
	}
	sql = fmt.Sprintf("%s WHERE %s AND (%s) IS TRUE", sql, window(len(s.Args)), s.Where)
	for block := int64(0); block < end; block += countBlocks {
		var rows int64
		if err := e.read(ctx, s, []any{&rows}, sql, slices.Concat(s.Args, []any{tid(block), tid(min(block+countBlocks, end))})...); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if err := found(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// Estimate is the planner's guess of how many rows the sweep has. It is not ok for a table that was never analyzed.
func (e *Engine) Estimate(ctx context.Context, s Sweep) (rows int64, ok bool, err error) {
	var analyzed bool
	if err := e.read(ctx, s, []any{&analyzed}, "SELECT reltuples >= 0 FROM pg_class WHERE oid = $1::text::regclass", s.Relation); err != nil || !analyzed {
		return 0, false, err
	}
	var plan string
	if err := e.read(ctx, s, []any{&plan}, fmt.Sprintf("EXPLAIN (FORMAT JSON) SELECT FROM ONLY %s AS r WHERE %s", s.Relation, s.Where), s.Args...); err != nil {
		return 0, false, fmt.Errorf("estimate %s: %w", s.Name, err)
	}
	var nodes []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	if err := json.Unmarshal([]byte(plan), &nodes); err != nil {
		return 0, false, fmt.Errorf("estimate %s: %w", s.Name, err)
	}
	return int64(nodes[0].Plan.Rows), true, nil
}
