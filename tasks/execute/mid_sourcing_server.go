package execute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// ErrSameDatabase says that the database of a mid-sourcing server is the main one: there, ids would name other
// deliveries.
var ErrSameDatabase = errors.New("leads to the main database")

// CheckMidSourcing fails with ErrSameDatabase when both are the same database of the same server. It also fails when
// one of them does not answer.
func CheckMidSourcing(ctx context.Context, main, other *pgxpool.Pool) error {
	var here, there string
	const identity = "SELECT system_identifier::text || '/' || current_database() FROM pg_control_system()"
	if err := main.QueryRow(ctx, identity).Scan(&here); err != nil {
		return err
	}
	if err := other.QueryRow(ctx, identity).Scan(&there); err != nil {
		return err
	}
	if here == there {
		return ErrSameDatabase
	}
	return nil
}

// purgeThere purges deliveries on a mid-sourcing server, with the same steps, whatever their delete status there: those
// of the set, and some that were left there (their ids there), whose entries go with them. Those that are purged are
// removed from m; stay are those that could not be stopped here.
func (t *task) purgeThere(ctx context.Context, name string, m midSourced, left []int64) (stay []int64, err error) {
	if err := CheckMidSourcing(ctx, t.Pool, t.MidSourcing.Databases[name]); err != nil {
		return nil, err
	}
	if t.preview != nil && t.preview.blind { // it can be reached: they go
		clear(m)
		return nil, nil
	}
	there, j := t.on(name)
	if err := there.look(ctx); err != nil {
		return nil, err
	}
	table := there.given.Catalog.Table(t.plan.Task.ParentSet.Parent)
	switch {
	case table == nil:
		return nil, campaign.ErrNotCampaign
	case table.RowSecurity: // what is hidden would be taken for gone
		return nil, errors.New("row security may hide rows of " + t.plan.Task.ParentSet.Parent)
	}
	if !t.DryRun { // an active one is stopped here, too, before anything of it is deleted anywhere
		if stay, err = t.stopHere(ctx, m); err != nil {
			return stay, fmt.Errorf("%w: %w", errMain, err)
		}
	}
	what := t.plan.Task
	what.ParentSet = &plan.ParentSet{Parent: what.ParentSet.Parent, Key: what.ParentSet.Key}
	if there.plan, err = there.compile(what); err != nil {
		return stay, err
	}
	for _, n := range there.plan.Notes {
		there.log(ctx, n.Level, n.Text)
	}
	if err := rightsError(there.plan.Rights); err != nil {
		return stay, err
	}
	ids := slices.Concat(slices.Collect(maps.Values(m)), left)
	slices.Sort(ids)
	if ids, err = there.carryOut(there.inZone(ctx), there.plan.Jobs, slices.Compact(ids)); err == nil {
		err = there.undone
	}
	if err != nil {
		return stay, err
	}
	gone := idSet(ids)
	maps.DeleteFunc(m, func(_, id int64) bool { return gone[id] }) // but for those that were kept there
	done := "purged"
	if t.DryRun {
		done = "would purge"
	} else if err := t.journal.Forget(ctx, name, ids); err != nil {
		return stay, fmt.Errorf("%w: %w", errMain, err)
	}
	left = slices.DeleteFunc(left, func(id int64) bool { return !gone[id] })
	there.log(
		ctx,
		severity.Info,
		fmt.Sprintf(
			"%s %d deliveries, %d of them left there by earlier runs: %d rows deleted, %d updated",
			done,
			len(gone),
			len(left),
			j.deleted,
			j.updated,
		),
	)
	return stay, nil
}

// on is the task on a mid-sourcing server.
func (t *task) on(server string) (*task, *remoteJournal) {
	c := t.Config
	c.Pool = c.MidSourcing.Databases[server]
	j := &remoteJournal{Journal: t.journal, server: server, main: t.engine}
	r := newRecorder(t.recorder.ctx, j)
	engine := purge.New(*t.engine) // with samples of the other server's load
	engine.Pool, engine.Ledger, engine.Recorder, engine.Lock, engine.Workers, engine.Durable = c.Pool, j, r, 0, 1, true
	return &task{
		database: &database{Config: c, primary: c.Pool, engine: engine, journal: j, recorder: r},
		lookups:  map[plan.Lookup]any{},
	}, j
}

// errMain says that an error came from the main database.
var errMain = errors.New("the main database")

// remoteJournal keeps what is done in another database out of the task's counts.
type remoteJournal struct {
	Journal
	server           string
	main             *purge.Engine
	deleted, updated int64
}

// Log logs messages with the server's name.
func (j *remoteJournal) Log(ctx context.Context, level severity.Level, messages ...string) error {
	named := slices.Clone(messages)
	for i, m := range messages {
		named[i] = fmt.Sprintf("mid-sourcing server %q: %s", j.server, m)
	}
	return j.Journal.Log(ctx, level, named...)
}

// Proceed calls that of the main journal.
func (j *remoteJournal) Proceed(ctx context.Context) error {
	if err := j.Journal.Proceed(ctx); err != nil {
		return fmt.Errorf("%w: %w", errMain, err)
	}
	return nil
}

// Holds are none: those of the main database name its ids, and what they are about has been excluded.
func (j *remoteJournal) Holds(context.Context) (plan.Holds, error) { return plan.Holds{}, nil }

// Write has no account there. It first checks whether the run may proceed, in a batch of the main database that ends
// after the one there: whoever waits for batches waits for both.
func (j *remoteJournal) Write(ctx context.Context, _ *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	tx, err := j.main.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMain, err)
	}
	if err := j.Proceed(ctx); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func(err error) error {
		_ = tx.Rollback(ctx) // it changed nothing
		if err == nil {
			j.deleted += d.Deleted
			j.updated += d.Updated
		}
		return err
	}, nil
}

// Count adds up what a dry run finds.
func (j *remoteJournal) Count(_ context.Context, d purge.Delta) error {
	j.deleted += d.Deleted
	j.updated += d.Updated
	return nil
}

// At prefixes the table with the server.
func (j *remoteJournal) At(object string, _ int64) { j.Journal.At(j.server+": "+object, -1) }
