package purge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// survey is the SQL of a reading.
type survey struct {
	claims []Candidates
	cases  []*firstOf
	is     []string // what is true, of a row of the reading, for each claim
	dates  []string // the columns of the reading that have them
	args   []any
	keys   []int // how many keys there are of each claim
	paired []int // and of the rows that are paired with its own
}

// firstOf is a column that names the first of some claims whose condition is true. Of a claim that is only asked since
// it hides rows from others, there, the name is hidden.
type firstOf struct {
	asked []int
	when  string
}

const hidden = -1

func surveyOf(claims []Candidates) *survey {
	v := &survey{claims: claims, keys: make([]int, len(claims)), paired: make([]int, len(claims))}
	wheres := make([]string, len(claims))
	for i, c := range claims {
		wheres[i] = inConstants(put(&v.args, c.Condition))
		at := slices.IndexFunc(v.cases, func(f *firstOf) bool { return slices.Equal(f.asked, c.Except) })
		if at < 0 {
			at = len(v.cases)
			v.cases = append(v.cases, &firstOf{})
			for _, b := range c.Except {
				v.cases[at].ask(b, wheres[b], hidden)
			}
		}
		v.cases[at].ask(i, wheres[i], i)
		v.is = append(v.is, fmt.Sprintf("q.c%d = %d", at, i))
		if c.Date != "" {
			v.dates = append(v.dates, fmt.Sprintf("%s AS d%d", c.Date, i))
		}
	}
	return v
}

func (f *firstOf) ask(claim int, where string, name int) {
	f.asked = append(f.asked, claim)
	f.when += fmt.Sprintf(" WHEN (%s) THEN %d", where, name)
}

// from is the reading of a window with some more columns, as q. OFFSET keeps PostgreSQL from judging a row more than
// once.
func (v *survey) from(sw *sweep, after int, more ...string) string {
	var columns []string
	for i, f := range v.cases {
		columns = append(columns, fmt.Sprintf("CASE%s END AS c%d", f.when, i))
	}
	return fmt.Sprintf(
		"(SELECT %s FROM ONLY %s AS r WHERE %s OFFSET 0) AS q",
		strings.Join(slices.Concat(columns, v.dates, more), ", "),
		sw.Relation,
		blocks.window(after),
	)
}

func (v *survey) count(ctx context.Context, sw *sweep, window []any) ([]Tally, error) {
	tallies := make([]Tally, len(v.claims))
	var columns []string
	var dest []any
	dates := make([][2]pgtype.Timestamptz, len(v.claims))
	for i, c := range v.claims {
		columns, dest = append(
			columns,
			fmt.Sprintf("count(*) FILTER (WHERE %s)", v.is[i]),
		), append(
			dest,
			&tallies[i].Rows,
		)
		if c.Date != "" {
			columns = append(
				columns,
				fmt.Sprintf(
					"min(q.d%[1]d) FILTER (WHERE %[2]s)::timestamptz, max(q.d%[1]d) FILTER (WHERE %[2]s)::timestamptz",
					i,
					v.is[i],
				),
			)
			dest = append(dest, &dates[i][0], &dates[i][1])
		}
	}
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + v.from(sw, len(v.args))
	if err := sw.read(ctx, dest, sql, slices.Concat(v.args, window)...); err != nil {
		return nil, err
	}
	for i := range tallies {
		tallies[i].Oldest, tallies[i].Newest = FiniteTime(dates[i][0]), FiniteTime(dates[i][1])
		if tallies[i].Rows > 0 {
			tallies[i].Windows = 1
		}
	}
	return tallies, nil
}

// window is what a window has of each claim.
func (v *survey) window(ctx context.Context, sw *sweep, window []any) ([]Tally, error) {
	tallies, err := v.count(ctx, sw, window)
	for i := range tallies {
		if err == nil {
			err = v.more(ctx, sw, window, i, &tallies[i])
		}
	}
	return tallies, err
}

// sampled keeps as many keys as a tally may have, of all windows.
func (v *survey) sampled(tallies []Tally) {
	for i := range tallies {
		tallies[i].Keys = tallies[i].Keys[:min(len(tallies[i].Keys), SampleSize-v.keys[i])]
		v.keys[i] += len(tallies[i].Keys)
		tallies[i].PairedKeys = tallies[i].PairedKeys[:min(len(tallies[i].PairedKeys), SampleSize-v.paired[i])]
		v.paired[i] += len(tallies[i].PairedKeys)
	}
}

// FiniteTime is a moment; nil: it is none, infinite, or in a year that neither JSON nor messages have.
func FiniteTime(t pgtype.Timestamptz) *time.Time {
	if year := t.Time.UTC().Year(); !t.Valid || t.InfinityModifier != pgtype.Finite || year < 1 || year > 9999 {
		return nil
	}
	return &t.Time
}

// more adds the paired rows of a claim, and some keys, to what a window has of it.
func (v *survey) more(ctx context.Context, sw *sweep, window []any, i int, t *Tally) error {
	c := v.claims[i]
	if t.Rows == 0 {
		return nil
	}
	if keys := SampleSize - v.keys[i]; c.Key != "" && keys > 0 {
		sql := fmt.Sprintf(
			"SELECT ARRAY(SELECT q.key FROM %s WHERE %s LIMIT %d)",
			v.from(sw, len(v.args), "r."+pgx.Identifier{c.Key}.Sanitize()+"::bigint AS key"),
			v.is[i],
			keys,
		)
		if err := sw.read(ctx, []any{&t.Keys}, sql, slices.Concat(v.args, window)...); err != nil {
			return err
		}
	}
	if c.Paired == nil {
		return nil
	}
	args := slices.Clone(v.args)
	p := c.Paired
	there := fmt.Sprintf("r.%s <> 0%s", p.Key, unless(&args, p.Except))
	sql := ""
	for _, b := range p.Before {
		sql += fmt.Sprintf(
			" AND NOT EXISTS (SELECT FROM ONLY %s AS r WHERE r.%s = t.id AND (%s)%s)",
			b.Relation,
			b.ID,
			put(&args, b.Condition),
			unless(&args, b.Except),
		)
	}
	sql = fmt.Sprintf(
		" FROM (SELECT r.%s::bigint AS id FROM %s AS r WHERE %s) AS t WHERE t.id IN (SELECT q.id FROM %s WHERE %s)%s",
		p.Key,
		p.Relation,
		there,
		v.from(sw, len(args), "r."+p.ID+" AS id"),
		v.is[i],
		sql,
	)
	args = slices.Concat(args, window)
	if err := sw.read(
		ctx,
		[]any{&t.Paired},
		"SELECT count(*)"+sql,
		args...); err != nil || t.Paired == 0 ||
		v.paired[i] == SampleSize {
		return err
	}
	return sw.read(
		ctx,
		[]any{&t.PairedKeys},
		fmt.Sprintf("SELECT ARRAY(SELECT t.id%s LIMIT %d)", sql, SampleSize-v.paired[i]),
		args...)
}
