package execute

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// coalesce replaces rows by their sums. It does not work in batches: one statement deletes the rows and inserts their
// sums, so that no row that arrives in between is lost, and the moment advances in the same transaction. It returns
// whether there was anything to look at.
func (t *task) coalesce(ctx context.Context) (bool, error) {
	if t.plan.Task.RollUp == nil {
		return false, nil
	}
	w, skip := t.coalescing()
	if skip != nil {
		t.log(ctx, skip.Level, skip.Text)
		return false, nil
	}
	if err := w.refusal(); err != nil {
		return false, err
	}
	rows, err := w.begin(ctx)
	if err != nil {
		return false, err
	}
	switch {
	case w.upToDate():
		t.log(ctx, severity.Info, "coalesceUpToDate")
		return true, nil
	case rows == 0:
		return true, nil
	}
	if w.held() {
		t.log(ctx, severity.Info, w.table.Name+", or XtkOption, is held: its rows stay as they are")
		t.left.OnHold += rows
		return true, nil
	}
	t.log(ctx, severity.Info, "coalescingErrors")
	t.journal.At(w.table.Name, rows)
	if t.DryRun {
		return true, w.foresee(ctx, rows)
	}
	return true, w.replace(ctx)
}

// coalescing is rows of a period that are being coalesced.
type coalescing struct {
	*task
	plan.RollUp
	table *campaign.Table
	kept  *time.Time         // up to when rows were coalesced the last time; nil: they were not
	start pgtype.Timestamptz // of the period, which ends with the run's clock
}

// coalescing is that of the task, with a note if it is not applicable to this database.
func (t *task) coalescing() (w *coalescing, skip *plan.Note) {
	c := *t.plan.Task.RollUp
	w = &coalescing{task: t, RollUp: c, table: t.given.Catalog.Table(c.Table)}
	if w.table == nil || !w.table.Has(append([]string{c.Date, c.Total}, c.By...)...) {
		return w, &plan.Note{
			Level: severity.Info,
			Text:  fmt.Sprintf("table %s, or a column of it, is missing: skipped", c.Table),
		}
	}
	if !t.given.Catalog.KeepsMoments() {
		return w, &plan.Note{
			Level: severity.Info,
			Text: "table XtkOption, or a column of it, is missing, or row security may hide rows of it, which keeps " +
				"up to when statistics are coalesced: skipped",
		}
	}
	var err error
	if w.kept, err = t.given.Options.Moment(c.Since); err != nil {
		return w, &plan.Note{Level: severity.Warning, Text: fmt.Sprintf("%v; %s is left as it is", err, w.table.Name)}
	}
	if w.kept != nil {
		*w.kept = t.given.Catalog.Zone.After(*w.kept)
	}
	return w, nil
}

// refusal is why the rows can not be coalesced where they are: rows and option might not be changed together.
func (w *coalescing) refusal() error {
	if w.table.Elsewhere == "" {
		return nil
	}
	return fmt.Errorf("%s is %s: its rows can not be coalesced there", w.table.Name, w.table.Elsewhere)
}

// held reports whether the rows are retained, since their table is on hold, or that of the option, which is written
// with them, or what foreign keys delete or change with them may be.
func (w *coalescing) held() bool {
	return w.plan.RollUpOnHold || w.Holds.WholeTable(w.table) || w.Holds.WholeTable(w.given.Catalog.Table("XtkOption"))
}

// rules say which rows are in the period, for people; the statements go by its start.
func (w *coalescing) rules() plan.Rules {
	return plan.Rules{{plan.Since(w.Date, w.Since), plan.Past(w.Date)}}
}

// rule says the same in words, with what becomes of the rows.
func (w *coalescing) rule() string {
	period := "since the last time"
	if w.start.Valid && w.start.InfinityModifier == pgtype.Finite {
		period = fmt.Sprintf("from %s to %s", inUTC(w.start.Time), inUTC(w.Now))
	}
	return fmt.Sprintf("%s %s: replaced by their sums", w.Date, period)
}

// begin finds out when the period begins, and how many rows it has.
func (w *coalescing) begin(ctx context.Context) (rows int64, err error) {
	err = w.engine.Retry(ctx, w.table.Name, func() error {
		if err := w.find(ctx, w.Pool); err != nil {
			return err
		}
		return w.Pool.QueryRow(ctx, "SELECT count(*) FROM "+w.table.Quoted()+" AS r WHERE "+w.period(), w.start, w.Now).
			Scan(&rows)
	})
	return rows, err
}

// find finds out when the period begins.
func (w *coalescing) find(ctx context.Context, db campaign.Querier) error {
	if w.kept != nil {
		w.start = pgtype.Timestamptz{Time: *w.kept, Valid: true}
		return nil
	}
	return db.QueryRow(ctx, fmt.Sprintf("SELECT min(%s)::timestamptz FROM %s", w.Date, w.table.Quoted())).Scan(&w.start)
}

// upToDate reports whether the period has yet to begin.
func (w *coalescing) upToDate() bool {
	return w.start.InfinityModifier == pgtype.Infinity ||
		(w.start.InfinityModifier == pgtype.Finite && w.start.Valid && !w.start.Time.Before(w.Now))
}

// foresee counts the rows in a dry run.
func (w *coalescing) foresee(ctx context.Context, rows int64) error {
	w.preview.coalesced[w.plan.Task.Name] = w.start.Time
	p := w.preview.at(w.table.Quoted(), Delete, w.rule())
	p.remark(
		fmt.Sprintf(
			"one row is inserted for each %s whose %s is %d or more",
			strings.Join(w.By, " and "),
			w.Total,
			w.Least,
		),
	)
	found := purge.Tally{Rows: rows}
	err := w.engine.Retry(ctx, w.table.Name, func() error {
		return between(
			ctx,
			w.Pool,
			"r."+w.Date,
			w.table.Quoted()+" AS r WHERE "+w.period(),
			[]any{w.start, w.Now},
			&found,
		)
	})
	if err != nil {
		return err
	}
	w.preview.add(p, w.table, w.table.Quoted(), found)
	return w.journal.Count(ctx, purge.Delta{Deleted: rows})
}

func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// replace coalesces the rows, but for those that refuse, if there are not too many.
func (w *coalescing) replace(ctx context.Context) error {
	sql, err := w.sql(ctx)
	if err != nil {
		return err
	}
	stay := []pgtype.TID{}
	replace := func() error {
		return w.inBatch(ctx, w.table.Name, func(tx Tx) (d purge.Delta, err error) {
			d.Deleted, err = w.in(ctx, tx, sql, stay)
			d.Space = []purge.Space{{Relation: w.table.Quoted(), Root: w.table.Quoted(), Rows: d.Deleted}}
			return d, err
		})
	}
	err = replace()
	if len(w.table.Leaves) > 1 || !sqlstate.OfRow(err) { // TIDs are those of one table
		return err
	}
	refusals, failed := w.refusals(ctx)
	if failed != nil || len(refusals) == 0 || len(refusals) > purge.MaxFailedRows {
		return errors.Join(failed, err)
	}
	for _, r := range refusals {
		stay = append(stay, r.Row)
	}
	if err := replace(); err != nil {
		return err
	}
	w.report(
		ctx,
		w.table.Name,
		purge.Result{Retained: purge.Retained{Failed: int64(len(stay))}, FirstError: refusals[0].Err},
	)
	for _, r := range refusals[:min(len(refusals), purge.FailedRowsLogged)] {
		w.log(ctx, severity.Warning, purge.DescribeRowError(w.table.Name, r.Row, nil, r.Err))
	}
	return nil
}

// refusals are the rows of the period that refuse: they stay, beside the sums of the others.
func (w *coalescing) refusals(ctx context.Context) (refusals []purge.RowError, err error) {
	err = w.engine.Retry(ctx, w.table.Name, func() error {
		tx, err := w.engine.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		rows, err := tx.Query(
			ctx,
			"SELECT r.ctid FROM "+w.table.Quoted()+" AS r WHERE "+w.period()+" ORDER BY r.ctid",
			w.start,
			w.Now,
		)
		if err != nil {
			return err
		}
		places, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		if err != nil {
			return err
		}
		refusals, err = purge.FindRowErrors(ctx, tx, w.table.Quoted(), places)
		return err
	})
	return refusals, err
}

// in coalesces all but some rows, in a transaction.
func (w *coalescing) in(ctx context.Context, tx Tx, sql string, stay []pgtype.TID) (deleted int64, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '1h'"); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, sql, w.start, w.Now, stay).Scan(&deleted); err != nil {
		return 0, err
	}
	return deleted, campaign.StoreMoment(ctx, tx, w.given.Catalog, w.Since, w.Now)
}

// period is the condition that a row is in the period from $1 to before $2.
func (w *coalescing) period() string {
	where := fmt.Sprintf("r.%[1]s >= $1::timestamptz AND r.%[1]s < $2::timestamptz", w.Date)
	if w.table.Key != "" {
		where += " AND r." + w.table.Key + " IS DISTINCT FROM 0"
	}
	return where
}

// sql replaces the rows of the period, but for those at some TIDs ($3), by their sums. A sum is clamped to the range of
// its column; that of nothing but NULL is 0.
func (w *coalescing) sql(ctx context.Context) (string, error) {
	var columns, sums []string
	for _, column := range w.Sums {
		if !w.table.Has(column) {
			continue
		}
		var sqlType string
		if err := w.Pool.QueryRow(ctx, "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = $1 AND "+
			"attname = $2", w.table.OID, strings.ToLower(column)).
			Scan(&sqlType); err != nil {
			return "", err
		}
		sum := fmt.Sprintf("sum(%s)", column)
		if bytes, ok := map[string]int{"smallint": 2, "integer": 4, "bigint": 8}[sqlType]; ok {
			most := int64(math.MaxInt64) >> (64 - 8*bytes)
			sum = fmt.Sprintf("greatest(least(COALESCE(%s, 0), %d), %d)::%s", sum, most, -most-1, sqlType)
		}
		columns, sums = append(columns, column), append(sums, sum)
	}
	by := strings.Join(w.By, ", ")
	return fmt.Sprintf(
		"WITH gone AS (DELETE FROM %[1]s AS r WHERE %[2]s AND r.ctid <> ALL ($3::tid[]) RETURNING *),"+
			" kept AS (INSERT INTO %[1]s (%[3]s, %[4]s, %[5]s) SELECT %[3]s, $1::timestamptz, %[6]s FROM gone GROUP "+
			"BY %[3]s HAVING sum(%[7]s) >= %[8]d) SELECT count(*) FROM gone",
		w.table.Quoted(),
		w.period(),
		by,
		w.Date,
		strings.Join(columns, ", "),
		strings.Join(sums, ", "),
		w.Total,
		w.Least,
	), nil
}
