package insight

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// overdueLimits are how long a query about a table may wait for its lock, and how long it may take.
const overdueLimits = "SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '500ms'"

// relation is a relation whose rows become obsolete only by their date.
type relation struct {
	rules.Job
	// deletedBefore is the date up to which rows have been deleted; zero if unknown.
	deletedBefore time.Time
}

// Overdue returns how long the oldest row of each table has been obsolete, by its name with the schema; 0 if no row is.
// It covers the tables whose rule compares only a date, if an index or the planner's statistics have the date. cleaned
// has the reference time of the last run in which a task succeeded, by task, because statistics may be older.
func Overdue(
	ctx context.Context, pool *pgxpool.Pool, catalog *campaign.Catalog, tasks []rules.Task, cleaned map[string]time.Time,
) (map[string]time.Duration, error) {
	c := cleanup.Config{DryRun: true}
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return nil, err
	}
	env, err := cleanup.EnvOf(ctx, c, pool, catalog, rules.Holds{})
	if err != nil {
		return nil, err
	}
	relations, err := datedRelations(tasks, env, cleaned)
	if err != nil {
		return nil, err
	}
	ctx = connection.InZone(ctx, catalog.Zone.Name)
	out, unknown := map[string]time.Duration{}, map[string]bool{}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, overdueLimits); err != nil {
			return err
		}
		for _, r := range relations {
			since, err := r.since(ctx, tx)
			switch {
			case sqlstate.Lost(err) || ctx.Err() != nil:
				return err
			case err != nil: // the date is unknown, or the table is locked
				unknown[r.Table.FullName()] = true
			default:
				name := r.Table.FullName()
				out[name] = max(out[name], since)
			}
		}
		return nil
	})
	for name := range unknown {
		delete(out, name)
	}
	return out, err
}

// since returns how long the oldest row has been obsolete. Its query runs in a savepoint.
func (r relation) since(ctx context.Context, tx pgx.Tx) (since time.Duration, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		oldest, err := r.Older.Oldest(ctx, tx, r.Relation, r.deletedBefore)
		if oldest != nil {
			since = r.Older.Than.Sub(*oldest)
		}
		return err
	})
	return since, err
}

// datedRelations returns the relations whose rows become obsolete only by their date, and that this role may read.
func datedRelations(tasks []rules.Task, env rules.Env, cleaned map[string]time.Time) (relations []relation, err error) {
	for _, t := range tasks {
		if t.Disabled {
			continue
		}
		p, err := rules.Compile(t, env)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			// Neither indexes nor statistics on this server have the rows of other servers.
			if j.Older == nil || j.Partitions == purge.DetachPartitions || !j.Table.CanSelect || j.Table.Location != "" {
				continue
			}
			var deletedBefore time.Time
			if at, ok := cleaned[t.Name]; ok {
				deletedBefore = j.Older.Than.Add(at.Sub(env.Now))
			}
			relations = append(relations, relation{j, deletedBefore})
		}
	}
	return relations, nil
}
