package purge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type candidateQuery struct {
	relation   string
	candidates []Candidates
	cases      []*firstMatch
	matches    []string // for each sweep, the condition that a row which was read is its candidate
	dates      []string // the columns with the dates of the rows
	keys       []int    // how many keys were returned for each sweep
	pairedKeys []int    // how many keys of paired rows were returned for each sweep
}

// firstMatch is a column with the index of the first candidates whose condition is true. It is hidden where these
// only keep their rows from being counted for others.
type firstMatch struct {
	indexes []int
	when    sqlexpr.Expr
}

const hidden = -1

func newCandidateQuery(relation string, candidates []Candidates) *candidateQuery {
	q := &candidateQuery{
		relation:   relation,
		candidates: candidates,
		keys:       make([]int, len(candidates)),
		pairedKeys: make([]int, len(candidates)),
	}
	wheres := make([]sqlexpr.Expr, len(candidates))
	for i, c := range candidates {
		wheres[i] = c.Where.Constants()
		at := slices.IndexFunc(q.cases, func(f *firstMatch) bool { return slices.Equal(f.indexes, c.Except) })
		if at < 0 {
			at = len(q.cases)
			q.cases = append(q.cases, &firstMatch{})
			for _, b := range c.Except {
				q.cases[at].add(b, wheres[b], hidden)
			}
		}
		q.cases[at].add(i, wheres[i], i)
		q.matches = append(q.matches, fmt.Sprintf("q.c%d = %d", at, i))
		if c.Date != "" {
			q.dates = append(q.dates, fmt.Sprintf("%s AS d%d", c.Date, i))
		}
	}
	return q
}

func (f *firstMatch) add(index int, where sqlexpr.Expr, value int) {
	f.indexes = append(f.indexes, index)
	f.when = sqlexpr.Format("%s WHEN (%s) THEN %d", f.when, where, value)
}

// from returns a subquery q of the rows of a window, with additional columns. OFFSET keeps PostgreSQL from
// evaluating the conditions of a row more than once.
func (q *candidateQuery) from(window sqlexpr.Expr, more ...string) sqlexpr.Expr {
	var columns []sqlexpr.Expr
	for i, f := range q.cases {
		columns = append(columns, sqlexpr.Format("CASE%s END AS c%d", f.when, i))
	}
	for _, column := range slices.Concat(q.dates, more) {
		columns = append(columns, sqlexpr.SQL(column))
	}
	return sqlexpr.Format("(SELECT %s FROM ONLY %s AS r WHERE %s OFFSET 0) AS q", sqlexpr.Join(", ", columns...),
		q.relation, window)
}

func (q *candidateQuery) read(ctx context.Context, t *table, window sqlexpr.Expr) ([]Tally, error) {
	tallies, err := q.count(ctx, t, window)
	for i := range tallies {
		if tallies[i].Rows == 0 || err != nil {
			continue
		}
		if err = q.readKeys(ctx, t, window, i, &tallies[i]); err == nil && q.candidates[i].Paired != nil {
			err = q.readPaired(ctx, t, window, i, &tallies[i])
		}
	}
	return tallies, err
}

func (q *candidateQuery) count(ctx context.Context, t *table, window sqlexpr.Expr) ([]Tally, error) {
	tallies := make([]Tally, len(q.candidates))
	dates := make([][2]pgtype.Timestamptz, len(q.candidates))
	var columns []string
	var dest []any
	for i, c := range q.candidates {
		columns = append(columns, fmt.Sprintf("count(*) FILTER (WHERE %s)", q.matches[i]))
		dest = append(dest, &tallies[i].Rows)
		if c.Date != "" {
			for _, end := range []string{"min", "max"} {
				columns = append(columns,
					campaign.Shown(fmt.Sprintf("(%s(q.d%d) FILTER (WHERE %s))", end, i, q.matches[i])))
			}
			dest = append(dest, &dates[i][0], &dates[i][1])
		}
	}
	query := sqlexpr.Format("SELECT %s FROM %s", strings.Join(columns, ", "), q.from(window))
	if err := t.query(ctx, query, dest...); err != nil {
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

func (q *candidateQuery) readKeys(ctx context.Context, t *table, window sqlexpr.Expr, i int, tally *Tally) error {
	key, missing := q.candidates[i].Key, SampleSize-q.keys[i]
	if key == "" || missing == 0 {
		return nil
	}
	from := q.from(window, "r."+pgx.Identifier{key}.Sanitize()+"::bigint AS key")
	query := sqlexpr.Format("SELECT ARRAY(SELECT q.key FROM %s WHERE %s LIMIT %d)", from, q.matches[i], missing)
	return t.query(ctx, query, &tally.Keys)
}

// readPaired counts the paired rows of the candidates with index i, and adds some of their keys to the tally.
func (q *candidateQuery) readPaired(ctx context.Context, t *table, window sqlexpr.Expr, i int, tally *Tally) error {
	p := q.candidates[i].Paired
	from := sqlexpr.Format(
		"(SELECT r.%[1]s::bigint AS id FROM %[2]s AS r WHERE r.%[1]s <> 0%[3]s) AS t WHERE t.id IN (SELECT q.id FROM "+
			"%[4]s WHERE %[5]s)",
		p.Key, p.Relation, unless(p.Except), q.from(window, "r."+p.ID+" AS id"), q.matches[i],
	)
	for _, b := range p.Before {
		from = sqlexpr.Format("%s AND NOT EXISTS (SELECT FROM ONLY %s AS r WHERE r.%s = t.id AND %s)", from, b.Relation,
			b.Paired.ID, b.Where)
	}
	missing := SampleSize - q.pairedKeys[i]
	if err := t.query(ctx, sqlexpr.Format("SELECT count(*) FROM %s", from), &tally.Paired); err != nil ||
		tally.Paired == 0 || missing == 0 {
		return err
	}
	return t.query(ctx, sqlexpr.Format("SELECT ARRAY(SELECT t.id FROM %s LIMIT %d)", from, missing), &tally.PairedKeys)
}

func (q *candidateQuery) trimKeys(tallies []Tally) {
	for i := range tallies {
		t := &tallies[i]
		t.Keys = t.Keys[:min(len(t.Keys), SampleSize-q.keys[i])]
		q.keys[i] += len(t.Keys)
		t.PairedKeys = t.PairedKeys[:min(len(t.PairedKeys), SampleSize-q.pairedKeys[i])]
		q.pairedKeys[i] += len(t.PairedKeys)
	}
}

// FiniteTime returns nil if the time is NULL, infinite, or outside of the years 1 to 9999, which JSON and messages
// need.
func FiniteTime(t pgtype.Timestamptz) *time.Time {
	if year := t.Time.UTC().Year(); !t.Valid || t.InfinityModifier != pgtype.Finite || year < 1 || year > 9999 {
		return nil
	}
	return &t.Time
}
