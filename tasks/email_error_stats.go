package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// summed are the columns of NmsEmailErrorStat that are added up; others keep their defaults.
var summed = []string{"iTotalErrors", "iTotalConnections", "iMessageErrors", "iAbortedConnections", "iFailedConnections", "iRefusedConnections", "iTimeoutConnections"}

var emailErrorStats = Task{
	Name:        "email-error-stats",
	Title:       "E-mail error statistics",
	Description: "Statistics of e-mail errors (NmsEmailErrorStat) since the last time: replaced by one row a mail exchanger and sender, and none where there were fewer than 20 errors.",
	Needs:       []Need{{"NmsEmailErrorStat", []string{"SELECT", "INSERT", "DELETE"}}, {"XtkOption", []string{"INSERT"}}},
	Options:     []campaign.Option{campaign.LastErrorStatCoalesce},
	Do:          coalesceErrors,
}

// coalesceErrors does not work in batches: one statement deletes the rows and inserts their sums, so that no row that arrives
// in between is lost, and the option advances in the same transaction.
func coalesceErrors(ctx context.Context, e *Env) (bool, error) {
	t := e.Catalog.Table("NmsEmailErrorStat")
	if t == nil || !t.Has("iMXIP", "iPublicId", "tsDate", "iTotalErrors") {
		e.log(ctx, Info, "table NmsEmailErrorStat, or a column of it, is missing: skipped")
		return false, nil
	}
	if t.Elsewhere != "" { // where rows and option might not be changed together
		return false, fmt.Errorf("%s is %s: its rows can not be coalesced there", t.Name, t.Elsewhere)
	}
	if !e.Catalog.KeepsMoments() {
		e.log(ctx, Info, "table XtkOption, or a column of it, is missing, or row security may hide rows of it, which keeps up to when statistics are coalesced: skipped")
		return false, nil
	}
	kept, err := e.Options.Moment(campaign.LastErrorStatCoalesce)
	if err != nil {
		e.log(ctx, Warning, fmt.Sprintf("%v; %s is left as it is", err, t.Name))
		return false, nil
	}
	var start pgtype.Timestamptz
	var rows int64
	if err := e.engine.Retry(ctx, t.Name, func() error {
		if kept != nil {
			start = pgtype.Timestamptz{Time: *kept, Valid: true}
		} else if err := e.Pool.QueryRow(ctx, "SELECT min(tsDate)::timestamptz FROM "+t.Quoted()).Scan(&start); err != nil {
			return err
		}
		return e.Pool.QueryRow(ctx, "SELECT count(*) FROM "+t.Quoted()+" AS r WHERE "+period(t), start, e.Now).Scan(&rows)
	}); err != nil {
		return false, err
	}
	switch {
	case start.InfinityModifier == pgtype.Infinity || start.InfinityModifier == pgtype.Finite && start.Valid && !start.Time.Before(e.Now):
		e.log(ctx, Info, "coalesceUpToDate")
		return true, nil
	case rows == 0:
		return true, nil
	}
	e.log(ctx, Info, "coalescingErrors")
	e.journal.At(t.Name, rows)
	if e.DryRun {
		return true, e.journal.Count(ctx, purge.Delta{Deleted: rows})
	}
	sql, err := coalesceSQL(ctx, e, t)
	if err != nil {
		return false, err
	}
	stay := []pgtype.TID{}
	coalesce := func() error {
		return e.inBatch(ctx, t.Name, func(tx Tx) (d purge.Delta, err error) {
			d.Deleted, err = coalesceIn(ctx, tx, e, sql, start, stay)
			d.Space = []purge.Space{{Relation: t.Quoted(), Rows: d.Deleted}}
			return d, err
		})
	}
	err = coalesce()
	if leaves, failed := t.Leaves(ctx, e.Pool); failed != nil || len(leaves) > 1 || !sqlstate.OfRow(err) { // TIDs are those of one table
		return true, errors.Join(err, failed)
	}
	refusals, failed := refusedStats(ctx, e, t, start)
	if failed != nil || len(refusals) == 0 || len(refusals) > purge.MostRefused {
		return true, errors.Join(failed, err)
	}
	for _, r := range refusals {
		stay = append(stay, r.Row)
	}
	if err := coalesce(); err != nil {
		return true, err
	}
	e.report(ctx, unit{Sweep: purge.Sweep{Name: t.Name}}, purge.Result{Left: purge.Left{Refused: int64(len(stay))}, Refusal: refusals[0].Err})
	for _, r := range refusals[:min(len(refusals), purge.RefusedShown)] {
		e.log(ctx, Warning, purge.Refused(t.Name, r.Row, nil, r.Err))
	}
	return true, nil
}

// refusedStats are the rows of the period that refuse: they stay, beside the sums of the others.
func refusedStats(ctx context.Context, e *Env, t *campaign.Table, start pgtype.Timestamptz) (refusals []purge.Refusal, err error) {
	err = e.engine.Retry(ctx, t.Name, func() error {
		tx, err := e.engine.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		rows, err := tx.Query(ctx, "SELECT r.ctid FROM "+t.Quoted()+" AS r WHERE "+period(t)+" ORDER BY r.ctid", start, e.Now)
		if err != nil {
			return err
		}
		places, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		if err != nil {
			return err
		}
		refusals, err = purge.Refusals(ctx, tx, t.Quoted(), places)
		return err
	})
	return refusals, err
}

// coalesceIn coalesces all but some rows.
func coalesceIn(ctx context.Context, tx Tx, e *Env, sql string, start pgtype.Timestamptz, stay []pgtype.TID) (deleted int64, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '1h'"); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, sql, start, e.Now, stay).Scan(&deleted); err != nil {
		return 0, err
	}
	return deleted, campaign.StoreMoment(ctx, tx, e.Catalog, campaign.LastErrorStatCoalesce, e.Now)
}

// period is the condition that a row is in the period from $1 to before $2.
func period(t *campaign.Table) string {
	where := "r.tsDate >= $1::timestamptz AND r.tsDate < $2::timestamptz"
	if t.Key != "" {
		where += " AND r." + t.Key + " IS DISTINCT FROM 0"
	}
	return where
}

// coalesceSQL replaces the rows of the period, but for those at some TIDs ($3), by their sums. A sum is clamped to the range of its column; that of nothing but
// NULL is 0.
func coalesceSQL(ctx context.Context, e *Env, t *campaign.Table) (string, error) {
	var columns, sums []string
	for _, column := range summed {
		if !t.Has(column) {
			continue
		}
		var sqlType string
		if err := e.Pool.QueryRow(ctx, "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = $1 AND attname = $2", t.OID, strings.ToLower(column)).Scan(&sqlType); err != nil {
			return "", err
		}
		sum := fmt.Sprintf("sum(%s)", column)
		if bytes, ok := map[string]int{"smallint": 2, "integer": 4, "bigint": 8}[sqlType]; ok {
			most := int64(math.MaxInt64) >> (64 - 8*bytes)
			sum = fmt.Sprintf("greatest(least(COALESCE(%s, 0), %d), %d)::%s", sum, most, -most-1, sqlType)
		}
		columns, sums = append(columns, column), append(sums, sum)
	}
	return fmt.Sprintf("WITH gone AS (DELETE FROM %[1]s AS r WHERE %[2]s AND r.ctid <> ALL ($3::tid[]) RETURNING *),"+
		" kept AS (INSERT INTO %[1]s (iMXIP, iPublicId, tsDate, %[3]s) SELECT iMXIP, iPublicId, $1::timestamptz, %[4]s FROM gone GROUP BY iMXIP, iPublicId HAVING sum(iTotalErrors) >= 20) SELECT count(*) FROM gone",
		t.Quoted(), period(t), strings.Join(columns, ", "), strings.Join(sums, ", ")), nil
}
