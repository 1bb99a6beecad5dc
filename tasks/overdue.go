package tasks

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// briefly limits how long a query about a table may wait for its lock, and take.
const briefly = "SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '500ms'"

// aged is a relation whose rows become obsolete by their date alone.
type aged struct {
	table *campaign.Table
	leaf  campaign.Leaf
	older *purge.Older
	gone  time.Time // older rows have been deleted; zero: unknown
}

// Overdue returns how long the oldest row of each table has been obsolete, by the tables' stored names; 0: none is. It covers
// the tables whose rule is a date alone, if an index or the planner's statistics have it. cleaned is the clock of the last run
// in which a task succeeded, by the task's name: statistics may be older than that. include is as in Config.
func Overdue(ctx context.Context, pool *pgxpool.Pool, include map[string][]string, cleaned map[string]time.Time) (map[string]time.Duration, error) {
	e := &Env{Config: Config{Pool: pool, DryRun: true, Include: include}, engine: purge.New(purge.Engine{Pool: pool})}
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&e.Now); err != nil {
		return nil, err
	}
	if err := e.look(ctx); err != nil {
		return nil, err
	}
	relations, err := e.aged(ctx, cleaned)
	if err != nil {
		return nil, err
	}
	out, unknown := map[string]time.Duration{}, map[string]bool{}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, briefly); err != nil {
			return err
		}
		for _, r := range relations {
			var since time.Duration
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				oldest, err := r.older.Oldest(ctx, tx, r.leaf.Quoted(), r.gone)
				if oldest != nil {
					since = r.older.Than.Sub(*oldest)
				}
				return err
			})
			switch {
			case Lost(err) || ctx.Err() != nil:
				return err
			case err != nil: // unknown, or locked
				unknown[r.table.Name] = true
			default:
				out[r.table.Name] = max(out[r.table.Name], since)
			}
		}
		return nil
	})
	for name := range unknown {
		delete(out, name)
	}
	return out, err
}

// aged returns the relations that this role may read.
func (e *Env) aged(ctx context.Context, cleaned map[string]time.Time) (relations []aged, err error) {
	for _, t := range Pipeline {
		for _, step := range t.Steps {
			tables, err := step.On(ctx, e, &plan{})
			if err != nil {
				return nil, err
			}
			for _, table := range tables {
				older := e.older(step, table)
				if older == nil || !table.CanSelect || !table.Has(older.Column) || table.Elsewhere != "" { // no index or statistics here have rows that are elsewhere
					continue
				}
				var gone time.Time
				if at, ok := cleaned[t.Name]; ok {
					gone = older.Than.Add(at.Sub(e.Now))
				}
				leaves, err := table.Leaves(ctx, e.Pool)
				if err != nil {
					return nil, err
				}
				for _, leaf := range leaves {
					relations = append(relations, aged{table, leaf, older, gone})
				}
			}
		}
	}
	return relations, nil
}
