package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Candidates are the rows that a sweep would delete or update. CountCandidates counts those of several sweeps at
// once.
type Candidates struct {
	Where  sqlexpr.Expr
	Newest *Newest
	// Follows is set if Where follows foreign keys from all rows of a table, which takes long if there are many.
	Follows bool
	// Except has the indexes of earlier candidates whose rows the sweep will no longer find.
	Except []int
	// Date is the SQL of a row's date, and Key the row's integer key. Either may be empty.
	Date, Key string
	// Paired are the rows that the sweep deletes together with its own; nil if there are none.
	Paired *PairedCandidates
}

// PairedCandidates are rows of another table that share their ids with candidates. The sweeps in Before exclude rows
// that earlier ones delete.
type PairedCandidates struct {
	Paired
	// Except matches rows of the other table that earlier sweeps delete.
	Except []sqlexpr.Expr
}

type Tally struct {
	// Paired is how many rows are paired with Rows. Windows is the number of parts of the table that have such rows.
	Rows, Paired, Windows int64
	// Oldest and Newest are the first and the last date; nil without dates.
	Oldest, Newest   *time.Time
	Keys, PairedKeys []int64
}

const SampleSize = 5

func (t *Tally) Add(more Tally) {
	t.Rows, t.Paired, t.Windows = t.Rows+more.Rows, t.Paired+more.Paired, t.Windows+more.Windows
	if more.Oldest != nil && (t.Oldest == nil || more.Oldest.Before(*t.Oldest)) {
		t.Oldest = more.Oldest
	}
	if more.Newest != nil && (t.Newest == nil || more.Newest.After(*t.Newest)) {
		t.Newest = more.Newest
	}
	t.Keys = append(t.Keys, more.Keys[:min(len(more.Keys), SampleSize-len(t.Keys))]...)
	t.PairedKeys = append(t.PairedKeys, more.PairedKeys[:min(len(more.PairedKeys), SampleSize-len(t.PairedKeys))]...)
}

// Count counts the rows of a sweep. It neither changes nor locks anything. It calls found with the tally of each part
// of the table.
func (e *Engine) Count(ctx context.Context, s Sweep, found func(ctx context.Context, tally Tally) error) error {
	if s.NoTIDs {
		tally, err := e.countOnOtherServer(ctx, s)
		if err != nil {
			return err
		}
		return found(ctx, tally)
	}
	all := []Candidates{s.candidates()}
	return e.CountCandidates(ctx, s.Name, s.Relation, all, func(ctx context.Context, window []Tally) error {
		return found(ctx, window[0])
	})
}

// countBlocks is how many blocks the first window has: 32 MiB.
const countBlocks = 4096

// CountCandidates reads a table once for several sweeps. It neither changes nor locks anything. After each window
// it calls found with the tallies of that window. While the server is otherwise idle, it reads as many windows at
// once as there are workers.
func (e *Engine) CountCandidates(
	ctx context.Context, name, relation string, candidates []Candidates,
	found func(ctx context.Context, window []Tally) error,
) error {
	s := Sweep{Name: name, Relation: relation}
	if len(candidates) == 1 { // if there are several, they share one scan
		s.Where, s.Newest = candidates[0].Where, candidates[0].Newest
	}
	return e.open(ctx, []Sweep{s}, func(t *table) error { return t.countCandidates(ctx, candidates, found) })
}

// count counts the rows of the sweep and their paired rows.
func (t *table) count(ctx context.Context) (rows int64, err error) {
	err = t.countCandidates(ctx, []Candidates{t.sweep.candidates()}, func(_ context.Context, window []Tally) error {
		rows += window[0].Rows + window[0].Paired
		return nil
	})
	return rows, err
}

func (s *Sweep) candidates() Candidates {
	c := Candidates{Where: s.Where, Newest: s.Newest, Follows: s.Follows()}
	if s.Paired != nil {
		c.Paired = &PairedCandidates{Paired: *s.Paired}
	}
	return c
}

func (t *table) countCandidates(
	ctx context.Context, candidates []Candidates, found func(ctx context.Context, window []Tally) error,
) error {
	end, _, err := t.size(ctx)
	if err != nil {
		return err
	}
	if scan, err := t.groupScan(ctx); err != nil {
		return err
	} else if scan.Method != "" {
		tally, err := t.countByGroup(ctx, candidates[0])
		if err == nil {
			return found(ctx, []Tally{tally})
		}
		if !errors.Is(err, errSlow) {
			return err
		}
	}
	if slices.ContainsFunc(candidates, func(c Candidates) bool { return c.Follows }) {
		t.session.reads = followTimeout
	}
	t.session.blocks = end
	if err := t.session.prepareReading(ctx); err != nil {
		return err
	}
	q := newCandidateQuery(t.sweep.Relation, candidates)
	readers := []*table{t}
	defer func() {
		for _, r := range readers[1:] {
			r.session.end(ctx)
		}
	}()
	width := int64(countBlocks)
	for from := int64(0); from < end; {
		if err := t.engine.Wait(ctx); err != nil {
			return err
		}
		n := 1
		if t.engine.throttler.Idle() {
			n = max(t.engine.Workers, 1)
		}
		if readers, err = t.addReaders(ctx, readers, n); err != nil {
			return err
		}
		windows := make([][]Tally, min(n, len(readers)))
		each := min(width, (end-from+int64(len(windows))-1)/int64(len(windows))) // so that the last windows end together
		begun := time.Now()
		group, reading := errgroup.WithContext(ctx)
		for i := range windows {
			first := min(from+int64(i)*each, end)
			window := blockAxis{}.window(0, first, min(first+each, end))
			group.Go(func() (err error) {
				windows[i], err = q.read(reading, readers[i], window)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for _, tallies := range windows {
			q.trimKeys(tallies)
			if err := found(ctx, tallies); err != nil {
				return err
			}
		}
		from += int64(len(windows)) * each
		width = nextWidth(width, time.Since(begun))
	}
	return nil
}

// A window should be read in less than maxReading, because VACUUM cannot remove rows that were deleted since the
// window's snapshot. Wide windows cost less per row, since PostgreSQL plans and compiles one statement for each
// window.
const (
	maxReading      = time.Second
	minReadingWidth = 32
	maxReadingWidth = 4 * countBlocks
)

func nextWidth(width int64, took time.Duration) int64 {
	switch {
	case took > maxReading:
		return max(width/2, minReadingWidth)
	case took < maxReading/3:
		return min(2*width, maxReadingWidth)
	}
	return width
}

const spareConns = 3

// addReaders opens further readers, up to n in total, while the pool has connections to spare.
func (t *table) addReaders(ctx context.Context, readers []*table, n int) ([]*table, error) {
	pool := t.engine.Pool
	for len(readers) < n && pool.Stat().AcquiredConns()+spareConns < pool.Stat().MaxConns() {
		session, err := t.engine.session(ctx)
		if err != nil {
			return readers, err
		}
		session.reads, session.blocks = t.session.reads, t.session.blocks
		readers = append(readers, &table{t.engine, session, t.sweep})
		if err := session.prepareReading(ctx); err != nil {
			return readers, err
		}
	}
	return readers, nil
}

type candidateQuery struct {
	relation   string
	sample     string // a TABLESAMPLE clause; empty to read all rows
	candidates []Candidates
	cases      []*firstMatch
	matches    []string // for each sweep, the condition that a row which was read is its candidate
	dates      []string // the columns with the dates of the rows
	keys       []int    // how many keys were returned for each sweep
	pairedKeys []int    // how many keys of paired rows were returned for each sweep
}

// firstMatch is a column with the index of the first candidates whose condition is true. It is hidden if these only
// keep their rows from being counted for later ones.
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
	return sqlexpr.Format("(SELECT %s FROM ONLY %s AS r%s WHERE %s OFFSET 0) AS q", sqlexpr.Join(", ", columns...),
		q.relation, q.sample, window)
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

func (t *table) countByGroup(ctx context.Context, c Candidates) (tally Tally, err error) {
	columns, number, keys := cmp.Or(c.Date, "NULL::date")+" AS date", "", "NULL::bigint[]"
	if c.Key != "" {
		columns += fmt.Sprintf(", r.%s::bigint AS key", pgx.Identifier{c.Key}.Sanitize())
		number = ", row_number() OVER () AS number"
		keys = fmt.Sprintf("array_agg(o.key) FILTER (WHERE o.number <= %d)", SampleSize)
	}
	query := sqlexpr.Format(
		"SELECT count(*), %s, %s, %s FROM (SELECT o.*%s FROM %s) AS o", campaign.Shown("min(o.date)"),
		campaign.Shown("max(o.date)"), keys, number, c.Newest.obsolete(t.sweep.Relation, columns))
	var oldest, newest pgtype.Timestamptz
	err = t.find(ctx, func(tx pgx.Tx) error {
		return query.QueryRow(ctx, tx).Scan(&tally.Rows, &oldest, &newest, &tally.Keys)
	})
	tally.Oldest, tally.Newest, tally.Windows = FiniteTime(oldest), FiniteTime(newest), min(tally.Rows, 1)
	return tally, err
}

func (e *Engine) countOnOtherServer(ctx context.Context, s Sweep) (tally Tally, err error) {
	tally.Windows = 1
	err = e.open(ctx, []Sweep{s}, func(t *table) error {
		return e.Retry(ctx, s.Name, func() error {
			return t.inOtherServersBatch(ctx, findTimeout, func(tx pgx.Tx) error {
				query := sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE %s", s.Relation, s.Where)
				if err := query.QueryRow(ctx, tx).Scan(&tally.Rows); err != nil || s.Paired == nil {
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
					s.Paired.Key, pairedWith(&s), unless(before)).QueryRow(ctx, tx).Scan(&tally.Paired)
			})
		})
	})
	return tally, err
}

// FiniteTime returns nil if the time is NULL, infinite, or outside of the years 1 to 9999, to which JSON and messages
// are limited.
func FiniteTime(t pgtype.Timestamptz) *time.Time {
	if year := t.Time.UTC().Year(); !t.Valid || t.InfinityModifier != pgtype.Finite || year < 1 || year > 9999 {
		return nil
	}
	return &t.Time
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
	blocks, _, err := t.size(ctx)
	switch {
	case err != nil:
		return 0, false, err
	case s.Newest != nil && blocks > sampleBlocks: // each row of a sample may be in another group
		rows, err := t.sample(ctx, []Candidates{s.candidates()}, quickBlocks)
		return rows[0], err == nil, err
	case blocks <= sampleBlocks || (s.ReadsOthers && s.Keys == nil) || s.Paired != nil:
		rows, err := t.sample(ctx, []Candidates{s.candidates()}, sampleBlocks)
		return rows[0], err == nil, err
	}
	var analyzed bool
	const sql = "SELECT reltuples >= 0 FROM pg_class WHERE oid = $1::text::regclass"
	if err := t.read(ctx, []any{&analyzed}, sql, s.Relation); err != nil || !analyzed {
		return 0, false, err
	}
	plan, err := t.explain(ctx, s.matchSQL())
	return int64(plan.Rows), err == nil, err
}

// quickBlocks is how many blocks Sample reads: 2 MiB.
const quickBlocks = 256

// Sample estimates the rows of a sweep from a few random blocks, without the planner's statistics.
func (e *Engine) Sample(ctx context.Context, s Sweep) (rows int64, err error) {
	found, err := e.SampleCandidates(ctx, s.Name, s.Relation, []Candidates{s.candidates()}, quickBlocks)
	if err != nil {
		return 0, err
	}
	return found[0], nil
}

// SampleCandidates estimates the rows of several sweeps of one table, with their paired rows, from some random blocks.
func (e *Engine) SampleCandidates(
	ctx context.Context, name, relation string, candidates []Candidates, blocks int64,
) (rows []int64, err error) {
	err = e.open(ctx, []Sweep{{Name: name, Relation: relation}}, func(t *table) (err error) {
		rows, err = t.sample(ctx, candidates, blocks)
		return err
	})
	return rows, err
}

// sample reads some random blocks of the table, and scales the numbers of rows in them up to the whole table. It reads
// the whole table if that has no more blocks.
func (t *table) sample(ctx context.Context, candidates []Candidates, some int64) ([]int64, error) {
	rows := make([]int64, len(candidates))
	blocks, _, err := t.size(ctx)
	if err != nil || blocks == 0 {
		return rows, err
	}
	share := min(1, float64(some)/float64(blocks))
	sample := ""
	if share < 1 { // all queries of a sample read the same blocks
		sample = fmt.Sprintf(" TABLESAMPLE SYSTEM (%f) REPEATABLE (%d)", 100*share, time.Now().UnixNano()%math.MaxInt32)
	}
	candidates = slices.Clone(candidates)
	for i, c := range candidates {
		if c.Newest != nil { // by group instead of row by row
			among := c.Newest.among(sqlexpr.Format("ONLY %s AS r%s WHERE %s", t.sweep.Relation, sample, c.Newest.Rest))
			candidates[i].Where = sqlexpr.Format("r.ctid IN (%s)", among)
		}
	}
	q := newCandidateQuery(t.sweep.Relation, candidates)
	q.sample = sample
	tallies, err := q.read(ctx, t, sqlexpr.SQL("true"))
	for i, tally := range tallies {
		rows[i] = int64(float64(tally.Rows+tally.Paired) / share)
	}
	return rows, err
}
