package cleanup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// rollUpPeriod has the rows since the last time that rows were rolled up, and before the reference time.
type rollUpPeriod struct {
	rules.RollUp
	Table *campaign.Table
	// Start is set by Find; it is not valid if the table has no dates.
	Start pgtype.Timestamptz
	End   time.Time

	last *time.Time // nil if rows were never rolled up
}

func NewPeriod(env rules.Env, r rules.RollUp) (p *rollUpPeriod, skip *message.Message) {
	p = &rollUpPeriod{RollUp: r, Table: env.Catalog.Table(r.Table), End: env.Now}
	if p.Table == nil || !p.Table.Has(append([]string{r.Date, r.Total}, r.By...)...) {
		m := message.Infof("table %s, or a column of it, is missing: skipped", r.Table)
		return p, &m
	}
	if !env.Catalog.KeepsMoments() {
		m := message.Infof(
			"table XtkOption, or a column of it, is missing, or row security may hide rows of it, so the time up to which " +
				"statistics are rolled up cannot be stored: skipped",
		)
		return p, &m
	}
	var err error
	if p.last, err = env.Options.Moment(r.Since); err != nil {
		m := message.OptionUnusable.With("error", err, "table", p.Table.Name)
		return p, &m
	}
	if p.last != nil {
		*p.last = env.Catalog.Zone.After(*p.last)
	}
	return p, nil
}

// Check fails if the table is on another server, since its rows and the option might then not be changed together.
func (p *rollUpPeriod) Check() error {
	if p.Table.Location == "" {
		return nil
	}
	return fmt.Errorf("%s is %s: its rows cannot be rolled up there", p.Table.Name, p.Table.Location)
}

// OnHold reports whether the rows are retained: because their table is on hold, because XtkOption is, which is written
// together with them, or because rows that foreign keys delete or change with them may be.
func (p *rollUpPeriod) OnHold(env rules.Env, compiled *rules.Plan) bool {
	return compiled.RollUpOnHold || env.Holds.WholeTable(p.Table) ||
		env.Holds.WholeTable(env.Catalog.Table("XtkOption"))
}

// Find determines Start.
func (p *rollUpPeriod) Find(ctx context.Context, db campaign.Querier) error {
	if p.last != nil {
		p.Start = pgtype.Timestamptz{Time: *p.last, Valid: true}
		return nil
	}
	return db.QueryRow(ctx, fmt.Sprintf("SELECT min(%s)::timestamptz FROM %s", p.Date, p.Table.Quoted())).Scan(&p.Start)
}

func (p *rollUpPeriod) Count(ctx context.Context, db campaign.Querier) (rows int64, err error) {
	err = sqlexpr.Format("SELECT count(*) FROM %s", p.Rows()).QueryRow(ctx, db).Scan(&rows)
	return rows, err
}

// Rows returns the FROM and WHERE of a statement on the rows of the period.
func (p *rollUpPeriod) Rows() sqlexpr.Expr {
	return sqlexpr.Format("%s AS r WHERE %s", p.Table.Quoted(), p.Condition())
}

func (p *rollUpPeriod) start() sqlexpr.Expr { return sqlexpr.Arg(p.Start, "timestamptz") }

func (p *rollUpPeriod) Condition() sqlexpr.Expr { return p.condition(p.start()) }

func (p *rollUpPeriod) condition(start sqlexpr.Expr) sqlexpr.Expr {
	where := sqlexpr.Format("r.%[1]s >= %[2]s AND r.%[1]s < %[3]s", p.Date, start, sqlexpr.Arg(p.End, "timestamptz"))
	if p.Table.Key != "" {
		where = sqlexpr.Format("%s AND r.%s IS DISTINCT FROM 0", where, p.Table.Key)
	}
	return where
}

func (p *rollUpPeriod) UpToDate() bool {
	return p.Start.InfinityModifier == pgtype.Infinity || (p.starts() && !p.Start.Time.Before(p.End))
}

func (p *rollUpPeriod) starts() bool {
	return p.Start.Valid && p.Start.InfinityModifier == pgtype.Finite
}

// Rules returns rules to explain a row; the statements compare with Start instead.
func (p *rollUpPeriod) Rules() rules.Rules {
	return rules.Rules{{rules.Since(p.Date, p.Since), rules.Past(p.Date)}}
}

// Rule describes the rows, and what happens to them.
func (p *rollUpPeriod) Rule() string {
	period := "since the last time"
	if p.starts() {
		period = fmt.Sprintf("from %s to %s", inUTC(p.Start.Time), inUTC(p.End))
	}
	return fmt.Sprintf("%s %s: replaced by their sums", p.Date, period)
}

func (p *rollUpPeriod) Remark() string {
	return fmt.Sprintf("one row is inserted for each %s whose %s is %d or more", strings.Join(p.By, " and "), p.Total,
		p.Least)
}

func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// prepareRollUp finds the period and counts its rows. If there is nothing to roll up, it logs that and returns no rows.
// ok is false if the task rolls nothing up in this database.
func prepareRollUp(ctx context.Context, a *Attempt) (p *rollUpPeriod, rows int64, ok bool, err error) {
	if a.Task.RollUp == nil {
		return nil, 0, false, nil
	}
	p, skip := NewPeriod(a.Binder.Env, *a.Task.RollUp)
	if skip != nil {
		a.Log(ctx, *skip)
		return nil, 0, false, nil
	}
	if err := p.Check(); err != nil {
		return nil, 0, false, err
	}
	err = a.Binder.Engine.Retry(ctx, p.Table.Name, func() (err error) {
		if err := p.Find(ctx, a.Binder.Pool); err != nil {
			return err
		}
		rows, err = p.Count(ctx, a.Binder.Pool)
		return err
	})
	switch {
	case err != nil:
		return nil, 0, false, err
	case p.UpToDate():
		a.Log(ctx, message.Infof("coalesceUpToDate"))
		return p, 0, true, nil
	case rows > 0 && p.OnHold(a.Binder.Env, a.Plan):
		a.Log(ctx, message.Infof("%s, or XtkOption, is on hold: its rows are not changed", p.Table.Name))
		a.Retained.OnHold += rows
		return p, 0, true, nil
	case rows > 0:
		a.Log(ctx, message.Infof("coalescingErrors"))
	}
	return p, rows, true, nil
}

var intBytes = map[string]int{"smallint": 2, "integer": 4, "bigint": 8}

// Statement replaces the rows of the period by their sums, except for the rows at some TIDs, and selects how many
// rows it deleted. A sum is clamped to the range of its column, and the sum of NULLs alone is 0. PostgreSQL
// computes generated columns from the sums of the others.
func (p *rollUpPeriod) Statement(ctx context.Context, db campaign.Querier, except []pgtype.TID) (sqlexpr.Expr, error) {
	var columns, sums []string
	for _, column := range p.Sums {
		if !p.Table.Has(column) {
			continue
		}
		sum, generated, err := p.sum(ctx, db, column)
		if err != nil {
			return sqlexpr.Expr{}, err
		}
		if generated {
			continue
		}
		columns, sums = append(columns, column), append(sums, sum)
	}
	start := p.start()
	return sqlexpr.Format(
		"WITH gone AS (DELETE FROM %[1]s AS r WHERE %[2]s AND r.ctid <> ALL (%[9]s) RETURNING *),"+
			" kept AS (INSERT INTO %[1]s (%[3]s, %[4]s, %[5]s) SELECT %[3]s, %[10]s, %[6]s FROM gone GROUP "+
			"BY %[3]s HAVING sum(%[7]s) >= %[8]d) SELECT count(*) FROM gone",
		p.Table.Quoted(), p.condition(start), strings.Join(p.By, ", "), p.Date, strings.Join(columns, ", "),
		strings.Join(sums, ", "), p.Total, p.Least, sqlexpr.Arg(except, "tid[]"), start,
	), nil
}

// columnTypeSQL returns the type of a column, or the base type of its domain, and whether the column is generated.
const columnTypeSQL = `WITH RECURSIVE typed (oid, level) AS (
  SELECT atttypid, 0 FROM pg_attribute WHERE attrelid = $1 AND attname = $2
  UNION ALL SELECT t.typbasetype, level + 1 FROM typed JOIN pg_type t ON t.oid = typed.oid AND t.typtype = 'd')
SELECT typed.oid::regtype::text, a.attgenerated <> '' FROM typed, pg_attribute a
WHERE a.attrelid = $1 AND a.attname = $2 ORDER BY level DESC LIMIT 1`

func (p *rollUpPeriod) sum(
	ctx context.Context, db campaign.Querier, column string,
) (sql string, generated bool, err error) {
	var sqlType string
	if err := db.QueryRow(ctx, columnTypeSQL, p.Table.OID, strings.ToLower(column)).
		Scan(&sqlType, &generated); err != nil {
		return "", false, err
	}
	sum := fmt.Sprintf("sum(%s)", column)
	bytes, isInt := intBytes[sqlType]
	if !isInt {
		return sum, generated, nil
	}
	largest := int64(math.MaxInt64) >> (64 - 8*bytes)
	sql = fmt.Sprintf("greatest(least(COALESCE(%s, 0), %d), %d)::%s", sum, largest, -largest-1, sqlType)
	return sql, generated, nil
}

// rollUp replaces rows by their sums, without batches: a single statement deletes the rows and inserts the sums, so
// that no row that arrives in between is lost, and the stored time advances in the same transaction. It returns false
// if the task rolls nothing up in this database.
func (t *executedTask) rollUp(ctx context.Context) (bool, error) {
	p, rows, ok, err := prepareRollUp(ctx, t.Attempt)
	if err != nil || rows == 0 {
		return ok, err
	}
	t.journal.At(p.Table.Name, rows)
	failed := []pgtype.TID{}
	replace := func() error {
		statement, err := p.Statement(ctx, t.Binder.Pool, failed)
		if err != nil {
			return err
		}
		return t.inBatch(ctx, p.Table.Name, func(tx pgx.Tx) (d purge.Delta, err error) {
			s := purge.Sweep{Relation: p.Table.Quoted(), Root: p.Table.Quoted()}
			if len(p.Table.Cascades) > 0 {
				s.Cascade = &purge.Cascade{}
			}
			err = s.CountCascade(ctx, tx, &d, func() error {
				d.Deleted, err = t.replace(ctx, tx, p, statement)
				return err
			})
			d.Space = append(d.Space, purge.Space{Relation: s.Relation, Root: s.Root, Rows: d.Deleted})
			return d, err
		})
	}
	err = replace()
	if len(p.Table.Leaves) > 1 || !sqlstate.OfRow(err) { // TIDs identify rows of one table
		return true, err
	}
	rowErrors, findErr := t.findRowErrors(ctx, p)
	if findErr != nil || len(rowErrors) == 0 || len(rowErrors) > purge.MaxFailedRows {
		return true, errors.Join(findErr, err)
	}
	for _, r := range rowErrors {
		failed = append(failed, r.Row)
	}
	if err := replace(); err != nil {
		return true, err
	}
	t.report(ctx, p.Table.Name, purge.Result{
		Retained:   purge.Retained{Failed: int64(len(failed))},
		FirstError: rowErrors[0].Err,
	})
	for _, r := range rowErrors[:min(len(rowErrors), purge.FailedRowsLogged)] {
		t.Log(ctx, purge.RowFailed(p.Table.Name, r.Row, nil, r.Err))
	}
	return true, nil
}

// replace runs the statement in a transaction, and returns how many rows it deleted.
func (t *executedTask) replace(
	ctx context.Context, tx pgx.Tx, p *rollUpPeriod, statement sqlexpr.Expr,
) (deleted int64, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '1h'"); err != nil {
		return 0, err
	}
	if err := statement.QueryRow(ctx, tx).Scan(&deleted); err != nil {
		return 0, err
	}
	return deleted, campaign.StoreTime(ctx, tx, t.Binder.Env.Catalog, p.Since, p.End)
}

// findRowErrors finds the rows that cannot be deleted. The roll-up leaves them in place and sums the rest. The search
// stops once it has found more than purge.MaxFailedRows.
func (t *executedTask) findRowErrors(ctx context.Context, p *rollUpPeriod) (rowErrors []purge.RowError, err error) {
	find := func(tx pgx.Tx) error {
		rows := sqlexpr.Format("SELECT r.ctid FROM %s ORDER BY r.ctid", p.Rows()).Query(ctx, tx)
		tids, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		if err != nil {
			return err
		}
		rowErrors, err = purge.FindRowErrors(ctx, tx, p.Table.Quoted(), tids)
		return err
	}
	err = t.Binder.Engine.Retry(ctx, p.Table.Name, func() error { return t.Binder.Engine.InTx(ctx, find) })
	return rowErrors, err
}
