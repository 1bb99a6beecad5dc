package insight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// ForecastDays is how many days a forecast covers.
const ForecastDays = 14

// maxCounting is how long all tasks of a forecast together may be counted.
const maxCounting = 30 * time.Second

const leftOut = "its rows were not counted, since those of the tasks before it took 30 seconds; a dry run counts them"

// Due is how many rows of a task are obsolete now, and how many will become obsolete.
type Due struct {
	Task string
	// Known is set if the rows could be counted or estimated, and Exact if they were counted.
	Known, Exact bool
	// Now is how many rows are obsolete now, and PerDay how many more become so on each of the next days, by their
	// dates.
	Now    int64
	PerDay [ForecastDays]int64
	// Dated is set if a date decides when rows become obsolete. Otherwise PerDay is 0 although there may be more rows.
	Dated bool
	// Why explains what is not known, or which rights a run lacks; empty otherwise.
	Why string
}

// Within returns how many rows will be due after a period, including those that are due now.
func (d Due) Within(period time.Duration) int64 {
	rows := float64(d.Now)
	for _, n := range d.PerDay {
		share := min(period.Hours()/24, 1)
		if share <= 0 {
			break
		}
		rows += share * float64(n)
		period -= 24 * time.Hour
	}
	return int64(rows)
}

// Forecaster makes forecasts for the tasks of a database, as the database was when the Forecaster was created.
type Forecaster struct {
	// Until is when counting ends. Tasks after that are left out.
	Until time.Time
	times []*cleanup.Run // a run for each reference time, a day apart
}

// NewForecaster reads the environment of a database.
func NewForecaster(ctx context.Context, c cleanup.Config, holds rules.Holds) (*Forecaster, error) {
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return nil, err
	}
	c.DryRun = true // rows are counted without the rights to change tables
	f := &Forecaster{Until: time.Now().Add(maxCounting)}
	first := cleanup.NewRun(ctx, c, cleanup.Discard{Held: holds}, c.Pool)
	if err := first.Database.Refresh(ctx); err != nil {
		return nil, err
	}
	for day := range ForecastDays + 1 {
		later := c
		later.Now = c.Now.Add(time.Duration(day) * 24 * time.Hour)
		r := cleanup.NewRun(ctx, later, cleanup.Discard{Held: holds}, c.Pool)
		r.Database.Env = first.Database.Env
		r.Database.Env.Now = later.Now
		r.Database.OnHold = first.Database.OnHold
		r.Database.ForgetPlans()
		f.times = append(f.times, r)
	}
	return f, nil
}

// Now returns the reference time.
func (f *Forecaster) Now() time.Time { return f.times[0].Config.Now }

// Task returns the forecast for one task. It is not known for a task on another database.
func (f *Forecaster) Task(ctx context.Context, t rules.Task) (Due, error) {
	ctx = f.times[0].Database.InZone(ctx)
	d := Due{Task: t.Name}
	if _, external := f.times[0].Config.External[t.Name]; external {
		d.Why = "it works on another database"
		return d, nil
	}
	questions, why, rights, err := f.questions(ctx, t)
	if err != nil {
		return Due{Task: t.Name, Why: unknown(err)}, ifLost(ctx, err)
	}
	if why != "" {
		return Due{Task: t.Name, Why: why}, nil
	}
	d.Known, d.Exact = true, true
	if rights != nil {
		d.Why = message.RunLacksRights.With("grants", strings.Join(rights, "; ")).Text
	}
	for _, q := range questions {
		if time.Now().After(f.Until) {
			return Due{Task: t.Name, Why: leftOut}, nil
		}
		d.Dated = d.Dated || q.dated
		counts, exact, why, err := q.count(ctx, f.times[0].Config.Pool)
		if err != nil {
			return d, err
		}
		if why != "" {
			return Due{Task: t.Name, Why: why}, nil
		}
		d.Exact = d.Exact && exact
		d.Now += counts[0]
		for day := range ForecastDays {
			d.PerDay[day] += counts[day+1]
		}
	}
	return d, nil
}

// questions returns the question to each relation of a task. why says what keeps a run from doing the task at all, and
// rights are the GRANT statements for what only a run needs.
func (f *Forecaster) questions(
	ctx context.Context, t rules.Task,
) (questions []*question, why string, rights []string, err error) {
	byUnit := map[string]*question{}
	for time, r := range f.times {
		compiled, err := rules.Compile(t, r.Database.EnvFor(t.Name)) // not kept, since there may be thousands
		if err != nil {
			return nil, "", nil, err
		}
		if why := obstacle(compiled); why != "" {
			return nil, why, nil, nil
		}
		rights = compiled.RunRights
		b := r.Database.Binder(compiled, rules.State{DryRun: &rules.DryRun{}})
		parents, err := b.Parents(ctx, compiled.Parents)
		if err != nil {
			return nil, "", nil, err
		}
		for _, j := range compiled.Jobs {
			if j.Step.Dependent() && len(parents) == 0 {
				continue
			}
			s, err := b.Sweep(ctx, &j, parents)
			if err != nil {
				return nil, "", nil, err
			}
			q := byUnit[j.Unit]
			if q == nil {
				q = &question{sweep: s, dated: isDated(compiled, j)}
				byUnit[j.Unit] = q
				questions = append(questions, q)
			}
			q.add(time, s.Where)
		}
	}
	return slices.DeleteFunc(questions, func(q *question) bool { return !q.readable() }), "", rights, nil
}

// obstacle returns why a run could not do a compiled task: the role lacks rights, or all tables of the task are
// skipped. It is empty if a run could do it.
func obstacle(p *rules.Plan) string {
	if len(p.Rights) > 0 {
		return "the role lacks rights; let an owner of the tables run: " + strings.Join(p.Rights, "; ")
	}
	if len(p.SkippedTables) == 0 || len(p.Jobs) > 0 || len(p.Partitionless) > 0 {
		return ""
	}
	warnings := slices.DeleteFunc(slices.Clone(p.Notes), func(n message.Message) bool {
		return n.Level != severity.Warning
	})
	return message.Join(warnings)
}

// isDated reports whether a date decides when rows of a job become obsolete: a date of the rows, or of their
// parents.
func isDated(p *rules.Plan, j rules.Job) bool {
	return j.Date != "" || (j.Step.Dependent() && p.Parents != nil && p.Parents.Date != "")
}

// forecastLimits are settings that limit what one question costs the server.
const forecastLimits = "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '500ms'; SET LOCAL jit = off"

// sampleBlocks is how many blocks of a table are read if counting takes too long: 16 MiB.
const sampleBlocks = 2_048

// question counts the rows of a relation that match, by the first reference time at which they do.
type question struct {
	sweep purge.Sweep
	dated bool
	cases sqlexpr.Expr // a WHEN for each reference time
	last  sqlexpr.Expr // the condition at the last reference time
}

// add adds the condition at a reference time.
func (q *question) add(time int, where sqlexpr.Expr) {
	q.cases = sqlexpr.Format("%s WHEN (%s) IS TRUE THEN %d", q.cases, where, time)
	q.last = where
}

// readable reports whether the relation's rows are on this server.
func (q *question) readable() bool { return !q.sweep.NoTIDs }

// sql returns the query for the counts. A row counts with its paired row.
func (q *question) sql(sample string) sqlexpr.Expr {
	rows := "1"
	if p := q.sweep.Paired; p != nil {
		rows = fmt.Sprintf("1 + (SELECT count(*) FROM %s AS t WHERE t.%s = r.%s AND t.%[2]s <> 0)", p.Relation, p.Key,
			p.ID)
	}
	return sqlexpr.Format(
		"SELECT day, sum(rows)::bigint FROM (SELECT CASE%s END AS day, %s AS rows FROM ONLY %s AS r%s WHERE (%s) IS TRUE "+
			"OFFSET 0) AS q WHERE day IS NOT NULL GROUP BY day",
		q.cases,
		rows,
		q.sweep.Relation,
		sample,
		q.last,
	)
}

// count returns how many rows match now, and how many more on each day. exact is false if only a sample was read.
// why says why the numbers are not known.
func (q *question) count(
	ctx context.Context, pool *pgxpool.Pool,
) (counts [ForecastDays + 1]int64, exact bool, why string, err error) {
	if counts, err = q.ask(ctx, pool, "", 1); !sqlstate.Is(err, pgerrcode.QueryCanceled) || ctx.Err() != nil {
		return counts, true, unknown(err), ifLost(ctx, err)
	}
	var blocks float64
	const size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::float8"
	if err := pool.QueryRow(ctx, size, q.sweep.Relation).Scan(&blocks); err != nil {
		return counts, false, unknown(err), ifLost(ctx, err)
	}
	share := min(sampleBlocks/max(blocks, 1), 1)
	counts, err = q.ask(ctx, pool, fmt.Sprintf(" TABLESAMPLE SYSTEM (%f)", 100*share), 1/share)
	return counts, false, unknown(err), ifLost(ctx, err)
}

// unknown returns the text of an error because of which something is unknown; empty if there is none.
func unknown(err error) string {
	if err == nil {
		return ""
	}
	return sqlstate.Explain(err)
}

// ifLost returns an error after which nothing more can be read; nil for other errors.
func ifLost(ctx context.Context, err error) error {
	if sqlstate.Lost(err) || ctx.Err() != nil {
		return err
	}
	return nil
}

// ask reads the counts, each multiplied by a factor.
func (q *question) ask(
	ctx context.Context, pool *pgxpool.Pool, sample string, factor float64,
) (counts [ForecastDays + 1]int64, err error) {
	options := pgx.TxOptions{AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, forecastLimits); err != nil {
			return err
		}
		var day int
		var rows int64
		_, err := pgx.ForEachRow(q.sql(sample).Query(ctx, tx), []any{&day, &rows}, func() error {
			counts[day] = int64(float64(rows) * factor)
			return nil
		})
		return err
	})
	return counts, err
}
