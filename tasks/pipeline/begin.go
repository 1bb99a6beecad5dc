package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/refused"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Begin checks, before anything is deleted, whether the run may begin or continue, and fails if it may not.
func (r *Run) Begin(ctx context.Context) error {
	engine := r.Database.Engine
	if err := engine.Retry(ctx, "the catalog", func() error { return r.checkRights(ctx) }); err != nil {
		return err
	}
	if err := engine.Retry(ctx, "the clock", func() error { return r.readClock(ctx) }); err != nil {
		return err
	}
	if len(r.Config.Todo) < len(r.Config.Chosen) || r.cursor != (purge.Cursor{}) { // the run is continued
		return nil
	}
	if err := r.warnOfOtherCleaner(ctx); sqlstate.Lost(err) {
		return err
	}
	if err := r.warnOfPublishedSchema(ctx); sqlstate.Lost(err) {
		return err
	}
	return engine.Retry(ctx, "the guards", func() error { return r.guardStart(r.Database.InZone(ctx)) })
}

// checkRights fails if rights are missing, or if this is not a Campaign database. The error names every missing
// right to a table. A right that a policy lacks fails that policy alone, when the run comes to it.
func (r *Run) checkRights(ctx context.Context) error {
	if err := r.Database.Refresh(ctx); err != nil {
		return err
	}
	if r.Config.ContinueOnError {
		return nil
	}
	var missing []string
	for _, t := range r.Config.Todo {
		if t.Kind == plan.Policy {
			continue
		}
		_ = rescue.Call(func() error { // the task will meet and report its error
			p, err := r.Database.Compile(t)
			if err == nil {
				missing = append(missing, p.Rights...)
			}
			return err
		})
	}
	return binding.RightsError(missing)
}

func (r *Run) readClock(ctx context.Context) error {
	asked := time.Now()
	var database time.Time
	if err := r.Database.Primary.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&database); err != nil {
		return err
	}
	r.ClockOffset = asked.Add(time.Since(asked) / 2).Sub(database)
	return nil
}

// warnOfOtherCleaner warns if the application cleans the database, too. It fails if that is unknown.
func (r *Run) warnOfOtherCleaner(ctx context.Context) error {
	var started bool
	err := r.Database.Engine.InTx(ctx, func(tx pgx.Tx) (err error) {
		started, err = r.Database.Env.Catalog.OtherCleaner(ctx, tx)
		return err
	})
	if started {
		r.Database.Log(ctx, message.ApplicationCleanupStarted.With())
	}
	return err
}

// PublishingSchema returns the names of the publications that have tables of the service; it is empty if there are
// none.
const PublishingSchema = `SELECT COALESCE(string_agg(DISTINCT quote_ident(pubname), ', '), '')
FROM pg_publication_tables WHERE schemaname = 'cleanupd'`

func (r *Run) warnOfPublishedSchema(ctx context.Context) error {
	if !r.Database.Env.Catalog.Publishes {
		return nil
	}
	var publications string
	err := r.Database.Primary.QueryRow(ctx, PublishingSchema).Scan(&publications)
	if publications != "" {
		r.Database.Log(ctx, message.SchemaPublished.With("publications", publications))
	}
	return err
}

// guardStart judges the clock, whether the run is the first one, and whether the application is idle. A dry run
// only warns.
func (r *Run) guardStart(ctx context.Context) error {
	h, err := r.Journal.Safety.History(ctx)
	if err != nil {
		return fmt.Errorf("read what guards compare with: %w", err)
	}
	if h == nil {
		return nil
	}
	newest, err := r.newestActivity(ctx, h.MaxIdle)
	if err != nil {
		return err
	}
	name, why := guard.Clock, h.JudgeClock(time.Now(), r.ClockOffset)
	if why == "" {
		name, why = guard.First, h.JudgeFirst()
	}
	if why == "" {
		name, why = guard.Idle, h.JudgeIdle(newest, r.Config.Now)
	}
	if why == "" {
		return nil
	}
	if r.Config.DryRun {
		r.Database.Log(ctx, message.GuardWouldRefuse.With("guard", name, "problem", why))
		return nil
	}
	return &refused.Error{
		Reason:   refused.Guard,
		Metadata: map[string]string{"guard": string(name)},
		Message: fmt.Sprintf(
			"the guard %s refuses the run, which has changed nothing: %s; if that is right, set the guard: "+
				"cleanupd guards set",
			name, why,
		),
	}
}

// activity is a date that shows when the application last wrote something.
type activity struct {
	table *campaign.Table
	date  string
}

// newestActivity returns when the application last wrote something. That is the reference time if it was within
// maxIdle, and zero if it is unknown or maxIdle is 0.
func (r *Run) newestActivity(ctx context.Context, maxIdle time.Duration) (newest time.Time, err error) {
	if maxIdle == 0 {
		return newest, nil
	}
	for _, a := range r.activities() {
		recent, at, err := r.newest(ctx, a, maxIdle)
		switch {
		case sqlstate.Lost(err) || ctx.Err() != nil:
			return newest, cmp.Or(err, ctx.Err())
		case err != nil:
			r.Database.Log(ctx, message.IdlenessUnknown.With("table", a.table.Name, "error", sqlstate.Explain(err)))
		case recent:
			return r.Config.Now, nil
		case at != nil && at.After(newest):
			newest = *at
		}
	}
	return newest, nil
}

// activities returns the dates that show when the application last wrote something. Those that are read fastest
// come first.
func (r *Run) activities() (all []activity) {
	add := func(t *campaign.Table, date string) {
		a := activity{t, date}
		if t != nil && t.Has(date) && t.CanSelect && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	catalog := r.Database.Env.Catalog
	add(catalog.Table("XtkWorkflowLog"), "tsLog")
	for _, name := range []string{"NmsRtEvent", "NmsBatchEvent", "NmsEventHisto"} {
		add(catalog.Table(name), "tsCreated")
	}
	logs, err := catalog.TrackingLogs()
	if err != nil { // the tasks report that the logs are not known
		return all
	}
	for _, t := range logs.Tables {
		add(t, "tsLog")
	}
	return all
}

// newest returns whether a date is within maxIdle (recent) or, if none is, the newest date; it is nil without
// dates.
func (r *Run) newest(ctx context.Context, a activity, maxIdle time.Duration) (recent bool, at *time.Time, err error) {
	now := r.Config.Now
	err = pgx.BeginFunc(ctx, r.Database.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		from := sqlexpr.Format("FROM %s AS r WHERE r.%s <= %s AND r.%[2]s > '-infinity'", a.table.Quoted(), a.date,
			sqlexpr.Arg(now, "timestamptz"))
		least := sqlexpr.Arg(now.Add(-maxIdle), "timestamptz")
		exists := sqlexpr.Format("SELECT EXISTS (SELECT %s AND r.%s >= %s)", from, a.date, least)
		if err := exists.QueryRow(ctx, tx).Scan(&recent); err != nil || recent {
			return err
		}
		return sqlexpr.Format("SELECT max(r.%s)::timestamptz %s", a.date, from).QueryRow(ctx, tx).Scan(&at)
	})
	return recent, at, err
}
