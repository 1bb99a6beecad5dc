package purge

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// groupAxis visits rows that were found group by group. Its windows have the condition that the rows are not among the
// newest of their groups now. A row that was changed since then does not match, since it has another TID.
type groupAxis struct {
	rowAxis
	newest   *Newest
	relation string
	index    func() map[pgtype.TID]int64 // positions
}

func newGroupAxis(s *Sweep, found []pgtype.TID, maxRows int) groupAxis {
	return groupAxis{rowAxis{found, maxRows}, s.Newest, s.Relation, sync.OnceValue(func() map[pgtype.TID]int64 {
		index := make(map[pgtype.TID]int64, len(found))
		for i, row := range found {
			index[row] = int64(i)
		}
		return index
	})}
}

func (a groupAxis) window(_ uint16, from, to int64) sqlexpr.Expr { return a.among(a.found[from:to]) }

func (a groupAxis) rowWindow(row pgtype.TID) sqlexpr.Expr { return a.among([]pgtype.TID{row}) }

// among returns the condition that a row has one of some TIDs, and is not among the newest of its group. IS TRUE keeps
// the planner from joining by TID: many versions of PostgreSQL do not compare TIDs again after waiting for a lock.
func (a groupAxis) among(rows []pgtype.TID) sqlexpr.Expr {
	these := amongTIDs(rows)
	obsolete := a.newest.among(sqlexpr.Format("ONLY %s AS r WHERE %s", a.relation, these))
	return sqlexpr.Format("%s AND (r.ctid IN (%s)) IS TRUE", these, obsolete)
}

func (a groupAxis) position(row pgtype.TID) int64 {
	if i, found := a.index()[row]; found {
		return i
	}
	return -1
}

func (a groupAxis) after(row pgtype.TID) (position int64, offset uint16) {
	return a.position(row) + 1, 0
}

// obsoleteTIDs returns the TIDs of rows of a sweep that keeps the newest of each group, group by group, no more than
// limit.
func (t *table) obsoleteTIDs(ctx context.Context, limit int64) (found []pgtype.TID, err error) {
	s := t.sweep
	query := sqlexpr.Format("SELECT o.place FROM %s LIMIT %d", s.Newest.obsolete(s.Relation, "r.ctid AS place"), limit)
	err = t.find(ctx, func(tx pgx.Tx) error {
		found, err = pgx.CollectRows(query.Query(ctx, tx), pgx.RowTo[pgtype.TID])
		return err
	})
	return found, err
}

// groupScan returns how rows would be found group by group. It has no method if the planner would rather find them one
// by one: by an index on another condition, or in a small table.
func (t *table) groupScan(ctx context.Context) (scan Scan, err error) {
	s := t.sweep
	if s.Newest == nil {
		return scan, nil
	}
	byGroup, err := t.explain(ctx, s.Newest.obsolete(s.Relation, "r.ctid"))
	if err != nil {
		return scan, err
	}
	byRow, err := t.explain(ctx, s.matchSQL())
	if err != nil || byRow.Cost < byGroup.Cost {
		return scan, err
	}
	scan = Scan{Method: TableScan}
	if scan.Index, err = t.indexes(ctx, byGroup); scan.Index != "" {
		scan.Method = IndexScan
	}
	return scan, err
}

// byGroup finds the rows group by group, if the planner would, and deletes them in that order. done is false if they
// have to be found in another way.
func (l *localSweep) byGroup(ctx context.Context) (done bool, err error) {
	scan, err := l.table.groupScan(ctx)
	if err != nil || scan.Method == "" {
		return false, err
	}
	l.table.engine.Recorder.Scanning(scan)
	group := *l.table.sweep
	group.Where = group.Newest.Rest
	return l.passes(func(limit int64) (rows int64, err error) {
		found, err := l.table.obsoleteTIDs(ctx, limit+1)
		l.progress.startPass()
		rows = int64(len(found))
		if err != nil || rows == 0 {
			return rows, err
		}
		found = l.notFailed(found[:min(rows, limit)])
		return rows, l.traverse(ctx, &group, newGroupAxis(&group, found, l.maxRows), 0, int64(len(found)), false)
	})
}

// countByGroup returns the tally of candidates, which it finds group by group.
func (t *table) countByGroup(ctx context.Context, c Candidates) (tally Tally, err error) {
	columns, number, keys := cmp.Or(c.Date, "NULL::date")+" AS date", "", "NULL::bigint[]"
	if c.Key != "" {
		columns += fmt.Sprintf(", r.%s::bigint AS key", pgx.Identifier{c.Key}.Sanitize())
		number = ", row_number() OVER () AS number"
		keys = fmt.Sprintf("array_agg(o.key) FILTER (WHERE o.number <= %d)", SampleSize)
	}
	query := sqlexpr.Format(
		"SELECT count(*), min(o.date)::timestamptz, max(o.date)::timestamptz, %s FROM (SELECT o.*%s FROM %s) AS o",
		keys, number, c.Newest.obsolete(t.sweep.Relation, columns),
	)
	var oldest, newest pgtype.Timestamptz
	err = t.find(ctx, func(tx pgx.Tx) error {
		return query.QueryRow(ctx, tx).Scan(&tally.Rows, &oldest, &newest, &tally.Keys)
	})
	tally.Oldest, tally.Newest, tally.Windows = FiniteTime(oldest), FiniteTime(newest), min(tally.Rows, 1)
	return tally, err
}
