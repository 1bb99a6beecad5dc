package purge

import (
	"context"
	"fmt"
	"slices"
)

// Count counts the rows of the sweep and their paired rows, changing and locking nothing. It calls found with the
// number of rows in one window after another.
func (e *Engine) Count(ctx context.Context, s Sweep, found func(ctx context.Context, rows int64) error) error {
	return e.open(ctx, []Sweep{s}, func(sw *sweep) error { return sw.each(ctx, found) })
}

// each calls found with the number of rows in one window after another.
func (sw *sweep) each(ctx context.Context, found func(ctx context.Context, rows int64) error) error {
	if sw.Elsewhere {
		rows, paired, err := sw.countByKey(ctx)
		if err != nil {
			return err
		}
		return found(ctx, rows+paired)
	}
	end, _, err := sw.end(ctx)
	if err != nil {
		return err
	}
	sql := fmt.Sprintf("%s WHERE %s AND (%s) IS TRUE", sw.count(""), blocks.window(len(sw.Args)), sw.Where)
	for first := int64(0); first < end; first += countBlocks {
		var rows int64
		if err := sw.read(
			ctx,
			[]any{&rows},
			sql,
			slices.Concat(sw.Args, blocks.bounds(first, min(first+countBlocks, end)))...); err != nil {
			return err
		}
		if err := found(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// count is the SELECT, up to its WHERE, that counts rows of the sweep, or of a sample, and their paired rows.
func (s *Sweep) count(sample string) string {
	if s.Paired == nil {
		return fmt.Sprintf("SELECT count(*) FROM ONLY %s AS r%s", s.Relation, sample)
	}
	there := fmt.Sprintf("t.%[1]s = r.%[2]s AND t.%[1]s <> 0", s.Paired.Key, s.Paired.ID)
	for _, b := range s.Paired.Before {
		there += fmt.Sprintf(
			" AND NOT EXISTS (SELECT FROM ONLY %s AS r WHERE r.%s = t.%s AND (%s))",
			b.Relation,
			b.Paired.ID,
			s.Paired.Key,
			b.Where,
		)
	}
	return fmt.Sprintf(
		"SELECT count(*) + count(t.%s) FROM ONLY %s AS r%s LEFT JOIN %s AS t ON %s",
		s.Paired.Key,
		s.Relation,
		sample,
		s.Paired.Relation,
		there,
	)
}
