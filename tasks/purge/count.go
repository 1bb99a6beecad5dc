package purge

import (
	"context"
	"fmt"
	"slices"
)

// Count counts the rows of the sweep and their twins, changing and locking nothing. found is told the rows of one
// window after another.
func (e *Engine) Count(ctx context.Context, s Sweep, found func(ctx context.Context, rows int64) error) error {
	return e.open(ctx, []Sweep{s}, func(sw *sweep) error { return sw.each(ctx, found) })
}

// each counts the rows of one window after another.
func (sw *sweep) each(ctx context.Context, found func(ctx context.Context, rows int64) error) error {
	end, _, err := sw.end(ctx)
	if err != nil {
		return err
	}
	sql := fmt.Sprintf("%s WHERE %s AND (%s) IS TRUE", sw.count(""), blocks.window(len(sw.Args)), sw.Where)
	for first := int64(0); first < end; first += countBlocks {
		var rows int64
		if err := sw.read(ctx, []any{&rows}, sql, slices.Concat(sw.Args, blocks.places(first, min(first+countBlocks, end)))...); err != nil {
			return err
		}
		if err := found(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// count is the beginning of a statement that counts rows of the sweep, or of a sample, and their twins.
func (s *Sweep) count(sample string) string {
	if s.Twin == nil {
		return fmt.Sprintf("SELECT count(*) FROM ONLY %s AS r%s", s.Relation, sample)
	}
	return fmt.Sprintf("SELECT count(*) + count(t.%[2]s) FROM ONLY %[3]s AS r%[5]s LEFT JOIN %[1]s AS t ON t.%[2]s = r.%[4]s AND t.%[2]s <> 0",
		s.Twin.Relation, s.Twin.Key, s.Relation, s.Twin.ID, sample)
}
