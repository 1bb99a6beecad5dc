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

// purgeMidSourced purges the deliveries of the set on their mid-sourcing servers, before they are purged here, together with
// those that earlier runs have left there. If that fails for a server, its deliveries stay here, too, and the task fails at its
// end.
func purgeMidSourced(ctx context.Context, e *Env) (later, err error) {
	servers, err := e.midSourced(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		m := servers[name]
		switch {
		case e.MidSourcing.Databases[name] != nil: // follows
		case slices.Contains(e.MidSourcing.Keep, name):
			e.log(ctx, Info, fmt.Sprintf("%d deliveries of the mid-sourcing account %q are kept, with all that belongs to them", len(m), name))
			e.keep(slices.Collect(maps.Keys(m)))
		default:
			if err := e.leave(ctx, name, m); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.MidSourcing.Databases)) {
		left, err := e.leftovers(ctx, name)
		if err != nil {
			return nil, err
		}
		m := servers[name]
		if len(m)+len(left) == 0 {
			continue
		}
		err = e.purgeThere(ctx, name, m, left)
		if errors.Is(err, errMain) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			e.bind(slices.Collect(maps.Keys(m)))
			// Not wrapped: the loss of another database's connection must not count as that of the main one.
			err = fmt.Errorf("mid-sourcing server %q, whose %d deliveries stay here too, and %d that were left there: %s", name, len(m), len(left), err.Error()) //nolint:errorlint // see above
			later = errors.Join(later, err)
		}
	}
	return later, nil
}

// midColumns are those that tell the deliveries of mid-sourcing servers.
var midColumns = []string{"iDeliveryMode", "iMidRemoteId", "iDeliveryProviderId"}

// midSourced groups the mid-sourced deliveries of the set by the names of their servers; the name is empty where a
// delivery has none.
func (e *Env) midSourced(ctx context.Context) (map[string]midSourced, error) {
	t := e.set.table
	if len(e.set.ids) == 0 {
		return nil, nil
	}
	if missing := t.Missing(midColumns...); missing != nil {
		e.log(ctx, Info, fmt.Sprintf("%s has no column %s, which tells the deliveries of mid-sourcing servers: all are purged here alone", t.Name, missing[0]))
		return nil, nil
	}
	name, join := e.accountOf("r.iDeliveryProviderId")
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

// accountOf is the SQL of the name of the external account with an id, empty where there is none, and the join that it needs.
func (e *Env) accountOf(id string) (name, join string) {
	accounts := e.Catalog.Table("NmsExtAccount")
	if accounts == nil || !accounts.Has("iExtAccountId", "sName") {
		return "''", ""
	}
	return "COALESCE(a.sName, '')", fmt.Sprintf(" LEFT JOIN %s AS a ON a.iExtAccountId = %s AND a.iExtAccountId <> 0", accounts.Quoted(), id)
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
	stopped := idSet(e.set.ids)
	maps.DeleteFunc(m, func(here, _ int64) bool { return !stopped[here] })
	e.set.ids = whole
	e.keep(slices.DeleteFunc(before, func(id int64) bool { return stopped[id] }))
	return nil
}
