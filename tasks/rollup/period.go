package rollup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Period has the rows since the last time that rows were rolled up, and before the reference time.
type Period struct {
	plan.RollUp
	Table *campaign.Table
	// Start is set by Find; it is not valid if the table has no dates.
	Start pgtype.Timestamptz
	End   time.Time

	last *time.Time // nil if rows were never rolled up
}

func New(env plan.Env, r plan.RollUp) (p *Period, skip *message.Message) {
	p = &Period{RollUp: r, Table: env.Catalog.Table(r.Table), End: env.Now}
	if p.Table == nil || !p.Table.Has(append([]string{r.Date, r.Total}, r.By...)...) {
		m := message.Infof("table %s, or a column of it, is missing: skipped", r.Table)
		return p, &m
	}
	if !env.Catalog.KeepsMoments() {
		m := message.Infof(
			"table XtkOption, which keeps up to when statistics are rolled up, or a column of it, is missing, or row " +
				"security may hide rows of it: skipped",
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
func (p *Period) Check() error {
	if p.Table.Location == "" {
		return nil
	}
	return fmt.Errorf("%s is %s: its rows cannot be rolled up there", p.Table.Name, p.Table.Location)
}

// OnHold reports whether the rows are retained because their table is on hold, because that of the option, which is
// written with them, is, or because rows that foreign keys delete or change with them may be.
func (p *Period) OnHold(env plan.Env, compiled *plan.Plan) bool {
	return compiled.RollUpOnHold || env.Holds.WholeTable(p.Table) ||
		env.Holds.WholeTable(env.Catalog.Table("XtkOption"))
}

// Find determines Start.
func (p *Period) Find(ctx context.Context, db campaign.Querier) error {
	if p.last != nil {
		p.Start = pgtype.Timestamptz{Time: *p.last, Valid: true}
		return nil
	}
	return db.QueryRow(ctx, fmt.Sprintf("SELECT min(%s)::timestamptz FROM %s", p.Date, p.Table.Quoted())).Scan(&p.Start)
}

func (p *Period) Count(ctx context.Context, db campaign.Querier) (rows int64, err error) {
	err = sqlexpr.Format("SELECT count(*) FROM %s", p.Rows()).QueryRow(ctx, db).Scan(&rows)
	return rows, err
}

// Rows returns the FROM and WHERE of a statement on the rows of the period.
func (p *Period) Rows() sqlexpr.Expr {
	return sqlexpr.Format("%s AS r WHERE %s", p.Table.Quoted(), p.Condition())
}

func (p *Period) start() sqlexpr.Expr { return sqlexpr.Arg(p.Start, "timestamptz") }

func (p *Period) Condition() sqlexpr.Expr { return p.condition(p.start()) }

func (p *Period) condition(start sqlexpr.Expr) sqlexpr.Expr {
	where := sqlexpr.Format("r.%[1]s >= %[2]s AND r.%[1]s < %[3]s", p.Date, start, sqlexpr.Arg(p.End, "timestamptz"))
	if p.Table.Key != "" {
		where = sqlexpr.Format("%s AND r.%s IS DISTINCT FROM 0", where, p.Table.Key)
	}
	return where
}

func (p *Period) UpToDate() bool {
	return p.Start.InfinityModifier == pgtype.Infinity || (p.starts() && !p.Start.Time.Before(p.End))
}

func (p *Period) starts() bool { return p.Start.Valid && p.Start.InfinityModifier == pgtype.Finite }

// Rules returns rules to explain a row; the statements compare with Start instead.
func (p *Period) Rules() plan.Rules {
	return plan.Rules{{plan.Since(p.Date, p.Since), plan.Past(p.Date)}}
}

// Rule describes the rows, and what becomes of them.
func (p *Period) Rule() string {
	period := "since the last time"
	if p.starts() {
		period = fmt.Sprintf("from %s to %s", inUTC(p.Start.Time), inUTC(p.End))
	}
	return fmt.Sprintf("%s %s: replaced by their sums", p.Date, period)
}

func (p *Period) Remark() string {
	return fmt.Sprintf("one row is inserted for each %s whose %s is %d or more", strings.Join(p.By, " and "), p.Total,
		p.Least)
}

func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
