package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MidSourcing says what is done about the deliveries of mid-sourcing servers, by the names of their accounts
// (NmsExtAccount.sName). Those of other accounts are purged here alone.
type MidSourcing struct {
	// Databases are those of servers: their deliveries are purged there first.
	Databases map[string]*pgxpool.Pool
	// Keep are the accounts whose deliveries are kept here.
	Keep []string
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
		m, pool := servers[name], e.MidSourcing.Databases[name]
		if pool == nil && slices.Contains(e.MidSourcing.Keep, name) {
			e.log(ctx, Info, fmt.Sprintf("%d deliveries of the mid-sourcing account %q are kept, with all that belongs to them", len(m), name))
			e.keep(slices.Collect(maps.Keys(m)))
			continue
		}
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
