package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// ErrSameDatabase says that the database of a mid-sourcing server is the main one: there, ids would name other
// deliveries.
var ErrSameDatabase = errors.New("leads to the main database")

// CheckMidSourcing fails with ErrSameDatabase when both are the same database of the same server. It also fails when one of
// them does not answer.
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

// purgeThere purges deliveries on a mid-sourcing server, with the same steps, whatever their delete status there: those of the
// set, and some that were left there (their ids there), whose entries go with them.
func (e *Env) purgeThere(ctx context.Context, name string, m midSourced, left []int64) error {
	pool := e.MidSourcing.Databases[name]
	if err := CheckMidSourcing(ctx, e.Pool, pool); err != nil {
		return err
	}
	there := &Env{Config: e.Config}
	there.Pool = pool
	j := &remoteJournal{Journal: e.journal, main: e, server: name}
	engine := purge.New(*e.engine) // with samples of the other server's load
	engine.Pool, engine.Commit, engine.Proceed, engine.Lock, engine.Workers, engine.Durable = pool, j.Commit, j.Proceed, 0, 1, true
	there.engine, there.journal = engine, j
	if err := there.look(ctx); err != nil {
		return err
	}
	table := there.Catalog.Table("NmsDelivery")
	switch {
	case table == nil:
		return campaign.ErrNotCampaign
	case table.RowSecurity: // what is hidden would be taken for gone
		return errors.New("row security may hide rows of NmsDelivery")
	}
	if !e.DryRun { // an active one is stopped here, too, before anything of it is deleted anywhere
		if err := e.stopHere(ctx, m); err != nil {
			return fmt.Errorf("%w: %w", errMain, err)
		}
	}
	ids := slices.Concat(slices.Collect(maps.Values(m)), left)
	slices.Sort(ids)
	there.set = &fixedSet{Set: Set{Parent: "NmsDelivery", Key: "iDeliveryId"}, table: table, ids: slices.Compact(ids)}
	p, err := there.plan(ctx, numbered(deliverySteps))
	if err != nil {
		return err
	}
	for _, n := range p.notes {
		e.log(ctx, n.level, fmt.Sprintf("mid-sourcing server %q: %s", name, n.text))
	}
	if err := rightsError(p.rights); err != nil {
		return err
	}
	if err := errors.Join(there.carryOut(ctx, deliverySteps), there.refused); err != nil {
		return err
	}
	gone := idSet(there.set.ids)
	maps.DeleteFunc(m, func(_, id int64) bool { return gone[id] })
	e.bind(slices.Collect(maps.Keys(m))) // those that were held back there
	what := "purged"
	if e.DryRun {
		what = "would purge"
	} else if err := e.journal.Forget(ctx, name, there.set.ids); err != nil {
		return fmt.Errorf("%w: %w", errMain, err)
	}
	left = slices.DeleteFunc(left, func(id int64) bool { return !gone[id] })
	e.log(ctx, Info, fmt.Sprintf("mid-sourcing server %q: %s %d deliveries, %d of them left there by earlier runs: %d rows deleted, %d updated", name, what, len(gone), len(left), j.deleted, j.updated))
	return nil
}

// errMain says that an error came from the main database.
var errMain = errors.New("the main database")

// remoteJournal keeps what is done in another database out of the task's counts.
type remoteJournal struct {
	Journal
	main             *Env
	server           string
	deleted, updated int64
}

// Proceed calls that of the main journal.
func (j *remoteJournal) Proceed(ctx context.Context) error {
	if err := j.Journal.Proceed(ctx); err != nil {
		return fmt.Errorf("%w: %w", errMain, err)
	}
	return nil
}

// Commit first checks whether the run may proceed.
func (j *remoteJournal) Commit(ctx context.Context, tx Tx, d purge.Delta) error {
	if err := j.Proceed(ctx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	j.deleted += d.Deleted
	j.updated += d.Updated
	return nil
}

// Count adds up what a dry run finds.
func (j *remoteJournal) Count(_ context.Context, d purge.Delta) error {
	j.deleted += d.Deleted
	j.updated += d.Updated
	return nil
}

// At prefixes the table with the server.
func (j *remoteJournal) At(object string, _ int64) { j.Journal.At(j.server+": "+object, -1) }
