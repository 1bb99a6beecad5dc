package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
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

// midSourced is what to purge on a server: its ids of deliveries, by the ids that they have here.
type midSourced map[int64]int64

// purgeMidSourced purges the deliveries of the set on their mid-sourcing servers, before they are purged here. If that fails
// for a server, its deliveries stay here, too, and the task fails at its end.
func purgeMidSourced(ctx context.Context, e *Env) (later, err error) {
	servers, err := e.midSourced(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		m := servers[name]
		pool := e.MidSourcing[name]
		if pool == nil {
			e.log(ctx, Warning, fmt.Sprintf("no database is configured for the mid-sourcing account %q: its %d deliveries are purged here alone", name, len(m)))
			continue
		}
		err := e.purgeThere(ctx, name, pool, m)
		if errors.Is(err, errMain) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			e.keep(slices.Collect(maps.Keys(m)))
			// Not wrapped: the loss of another database's connection must not count as that of the main one.
			err = fmt.Errorf("mid-sourcing server %q, whose %d deliveries stay here too: %s", name, len(m), err.Error()) //nolint:errorlint // see above
			later = errors.Join(later, err)
		}
	}
	return later, nil
}

// midSourced groups the mid-sourced deliveries of the set by the names of their servers; the name is empty where a
// delivery has none.
func (e *Env) midSourced(ctx context.Context) (map[string]midSourced, error) {
	t := e.set.table
	if missing := t.Missing("iDeliveryMode", "iMidRemoteId", "iDeliveryProviderId"); missing != nil {
		e.log(ctx, Info, fmt.Sprintf("%s has no column %s, which tells the deliveries of mid-sourcing servers: all are purged here alone", t.Name, missing[0]))
		return nil, nil
	}
	name, join := "''", ""
	if accounts := e.Catalog.Table("NmsExtAccount"); accounts != nil && accounts.Has("iExtAccountId", "sName") {
		name, join = "COALESCE(a.sName, '')", " LEFT JOIN "+accounts.Quoted()+" AS a ON a.iExtAccountId = r.iDeliveryProviderId AND a.iExtAccountId <> 0"
	}
	rows, err := e.Pool.Query(ctx, fmt.Sprintf("SELECT %s, r.iMidRemoteId::bigint, r.iDeliveryId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND r.iMidRemoteId <> 0 AND r.iDeliveryId = ANY ($1) ORDER BY 3",
		name, t.Quoted(), join), e.set.ids)
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	servers := map[string]midSourced{}
	var (
		server      string
		there, here int64
	)
	_, err = pgx.ForEachRow(rows, []any{&server, &there, &here}, func() error {
		if servers[server] == nil {
			servers[server] = midSourced{}
		}
		servers[server][here] = there
		return nil
	})
	return servers, err
}

// purgeThere purges deliveries on a mid-sourcing server, with the same steps, whatever their delete status there.
func (e *Env) purgeThere(ctx context.Context, name string, pool *pgxpool.Pool, m midSourced) error {
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
	if table == nil {
		return campaign.ErrNotCampaign
	}
	if !e.DryRun { // an active one is stopped here, too, before anything of it is deleted anywhere
		if err := e.stopHere(ctx, m); err != nil {
			return fmt.Errorf("%w: %w", errMain, err)
		}
	}
	there.set = &fixedSet{Set: Set{Parent: "NmsDelivery", Key: "iDeliveryId"}, table: table, ids: slices.Compact(slices.Sorted(maps.Values(m)))}
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
	maps.DeleteFunc(m, func(_, id int64) bool { return slices.Contains(there.set.ids, id) })
	e.keep(slices.Collect(maps.Keys(m))) // those that were held back there
	what := "purged"
	if e.DryRun {
		what = "would purge"
	}
	e.log(ctx, Info, fmt.Sprintf("mid-sourcing server %q: %s %d deliveries: %d rows deleted, %d updated", name, what, len(there.set.ids), j.deleted, j.updated))
	return nil
}

// stopHere stops those of a server's deliveries that are active in the main database. One whose row is locked is left for
// the next run.
func (e *Env) stopHere(ctx context.Context, m midSourced) error {
	whole := e.set.ids
	before := slices.Sorted(maps.Keys(m))
	e.set.ids = before
	if err := e.carryOut(ctx, []Step{stopDelivery}); err != nil {
		return err
	}
	held := slices.DeleteFunc(slices.Clone(before), func(id int64) bool { return slices.Contains(e.set.ids, id) })
	maps.DeleteFunc(m, func(here, _ int64) bool { return slices.Contains(held, here) })
	e.set.ids = whole
	e.keep(held)
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
