package execute

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// briefly limits how long a query about a table may wait for its lock, and take.
const briefly = "SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '500ms'"

// aged is a relation whose rows become obsolete by their date alone.
type aged struct {
	plan.Job
	gone time.Time // older rows have been deleted; zero: unknown
}

// Overdue returns how long the oldest row of each table has been obsolete, by the tables' stored names; 0: none is. It
// covers the tables whose rule is a date alone, if an index or the planner's statistics have it. cleaned is the clock
// of the last run in which a task succeeded, by the task's name: statistics may be older than that. include is as in
// Config.
func Overdue(
	ctx context.Context,
	pool *pgxpool.Pool,
	catalog *campaign.Catalog,
	pipeline []plan.Task,
	include map[string][]string,
	cleaned map[string]time.Time,
) (map[string]time.Duration, error) {
	c := Config{Pool: pool, DryRun: true, Include: include}
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return nil, err
	}
	g, err := given(ctx, c, catalog)
	if err != nil {
		return nil, err
	}
	relations, err := findAged(pipeline, g, cleaned)
	if err != nil {
		return nil, err
	}
	ctx = connection.InZone(ctx, catalog.Zone.Name)
	out, unknown := map[string]time.Duration{}, map[string]bool{}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, briefly); err != nil {
			return err
		}
		for _, r := range relations {
			var since time.Duration
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				oldest, err := r.Older.Oldest(ctx, tx, r.Relation, r.gone)
				if oldest != nil {
					since = r.Older.Than.Sub(*oldest)
				}
				return err
			})
			switch {
			case sqlstate.Lost(err) || ctx.Err() != nil:
				return err
			case err != nil: // unknown, or locked
				unknown[r.Table.Name] = true
			default:
				out[r.Table.Name] = max(out[r.Table.Name], since)
			}
		}
		return nil
	})
	for name := range unknown {
		delete(out, name)
	}
	return out, err
}

// findAged returns the relations that this role may read.
func findAged(pipeline []plan.Task, g plan.Env, cleaned map[string]time.Time) (relations []aged, err error) {
	for _, t := range pipeline {
		p, err := plan.Compile(t, g)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			// no index or statistics here have rows that are elsewhere
			if j.Older == nil || !j.Table.CanSelect || j.Table.Elsewhere != "" {
				continue
			}
			var gone time.Time
			if at, ok := cleaned[t.Name]; ok {
				gone = j.Older.Than.Add(at.Sub(g.Now))
			}
			relations = append(relations, aged{j, gone})
		}
	}
	return relations, nil
}
