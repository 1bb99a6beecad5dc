package insight

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
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
	// NextRun is how many rows are obsolete at the time of the next run.
	NextRun int64
	// Dated is set if a date decides when rows become obsolete. Otherwise PerDay is 0 although there may be more rows.
	Dated bool
	// Why explains what is not known, or which rights a run lacks; empty otherwise.
	Why string
}

// Forecaster makes forecasts for the tasks of a database, as the database was when the Forecaster was created.
type Forecaster struct {
	// Until is when counting ends. Tasks after that are left out.
	Until time.Time
	next  time.Time
	times []*cleanup.Run // a run for each reference time: now, a day apart from it, and that of the next run
}

// NewForecaster reads the environment of a database. next is when the next run begins; zero, or a time that has passed,
// is now.
func NewForecaster(ctx context.Context, c cleanup.Config, holds rules.Holds, next time.Time) (*Forecaster, error) {
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return nil, err
	}
	c.DryRun = true // rows are counted without the rights to change tables
	f := &Forecaster{Until: time.Now().Add(maxCounting), next: next}
	first := cleanup.NewRun(ctx, c, cleanup.Discard{Held: holds}, c.Pool)
	if err := first.Database.Refresh(ctx); err != nil {
		return nil, err
	}
	var times []time.Time
	for day := range ForecastDays + 1 {
		times = append(times, c.Now.Add(time.Duration(day)*24*time.Hour))
	}
	if next.After(c.Now) && next.Before(times[ForecastDays]) {
		times = append(times, next)
		slices.SortFunc(times, time.Time.Compare)
	}
	for _, at := range times {
		later := c
		later.Now = at
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
		counts, exact, why, err := q.count(ctx, f.times[0].Database.Engine, len(f.times))
		if err != nil {
			return d, err
		}
		if why != "" {
			return Due{Task: t.Name, Why: why}, nil
		}
		d.Exact = d.Exact && exact
		d.Now += counts[0]
		for i, r := range f.times {
			at := r.Config.Now
			if i == 0 || !at.After(f.next) {
				d.NextRun += counts[i]
			}
			if i > 0 {
				d.PerDay[(at.Sub(f.Now())-1)/(24*time.Hour)] += counts[i]
			}
		}
	}
	return d, nil
}

// IsRefused reports whether a run would refuse the task because of undo.
func (f *Forecaster) IsRefused(ctx context.Context, t rules.Task) (bool, error) {
	r := f.times[0]
	compiled, err := rules.Compile(t, r.Database.EnvFor(t.Name))
	if err != nil {
		return false, err
	}
	err = r.NewAttempt(compiled).CheckUndo(r.Database.InZone(ctx))
	refused := (*failure.Refusal)(nil)
	if errors.As(err, &refused) {
		return true, nil
	}
	return false, ifLost(ctx, err)
}

// questions returns a question for each relation of a task. why is what keeps a run from doing the task at all, and
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
			if j.NoTIDs { // the rows are on another server
				continue
			}
			s, err := b.Sweep(ctx, &j, parents)
			if err != nil {
				return nil, "", nil, err
			}
			q := byUnit[j.Unit]
			if q == nil {
				q = &question{name: j.Name, relation: j.Relation, dated: isDated(compiled, j)}
				byUnit[j.Unit] = q
				questions = append(questions, q)
			}
			q.add(time, rules.RowsOf(t.Name, j, s)[0])
		}
	}
	return questions, "", rights, nil
}

// obstacle returns why a run could not do a compiled task: the role lacks rights, or all tables of the task are
// skipped. It is empty if a run could do it.
func obstacle(p *rules.Plan) string {
	if len(p.Rights) > 0 {
		return rules.MissingRights(p.Rights).Error()
	}
	if len(p.SkippedTables) == 0 || len(p.Jobs) > 0 || len(p.Partitionless) > 0 {
		return ""
	}
	warnings := slices.DeleteFunc(slices.Clone(p.Notes), func(n message.Message) bool {
		return n.Level != message.Warning
	})
	return message.Join(warnings)
}

// isDated reports whether a date decides when rows of a job become obsolete: a date of the rows, or of their
// parents.
func isDated(p *rules.Plan, j rules.Job) bool {
	return j.Date != "" || (j.Step.Dependent() && p.Parents != nil && p.Parents.Date != "")
}

// A question is counted for maxQuestion. If that is not enough, sampleBlocks of the table are read: 16 MiB.
const (
	maxQuestion  = 3 * time.Second
	sampleBlocks = 2_048
)

var errSlow = errors.New("counting takes too long")

// question counts the rows of a relation that match, by the first reference time at which they do.
type question struct {
	name, relation string
	dated          bool
	rows           []purge.Candidates
	times          []int // the reference times of rows
}

// add adds the rows of a reference time: those that do not match at earlier ones.
func (q *question) add(time int, c rules.JobRows) {
	rows := c.Rows
	rows.Date, rows.Key, rows.Follows = "", "", false // only counted, and not for long
	for before := range q.rows {
		rows.Except = append(rows.Except, before)
	}
	if c.Job.Paired != nil {
		rows.Paired = &purge.PairedCandidates{Paired: *c.Job.Paired}
	}
	q.rows, q.times = append(q.rows, rows), append(q.times, time)
}

// count returns how many rows match at the first of some times, and how many more at each later one. exact is false if
// only a sample was read. why says why the numbers are not known.
func (q *question) count(
	ctx context.Context, e *purge.Engine, times int,
) (counts []int64, exact bool, why string, err error) {
	counts = make([]int64, times)
	limited := *e
	limited.StatementTimeout = maxQuestion
	begun := time.Now()
	err = limited.CountCandidates(ctx, q.name, q.relation, q.rows, func(_ context.Context, window []purge.Tally) error {
		for i, tally := range window {
			counts[q.times[i]] += tally.Rows + tally.Paired
		}
		if time.Since(begun) > maxQuestion {
			return errSlow
		}
		return nil
	})
	if !errors.Is(err, errSlow) && !sqlstate.Is(err, pgerrcode.QueryCanceled) || ctx.Err() != nil {
		return counts, true, unknown(err), ifLost(ctx, err)
	}
	sampled, err := limited.SampleCandidates(ctx, q.name, q.relation, q.rows, sampleBlocks)
	clear(counts)
	for i, rows := range sampled {
		counts[q.times[i]] = rows
	}
	return counts, false, unknown(err), ifLost(ctx, err)
}

// unknown returns why rows could not be counted; empty if err is nil.
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
