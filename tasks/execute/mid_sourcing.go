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
	"github.com/cleanupd/cleanupd/tasks/plan"
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

// purgeMidSourced purges some of the deliveries on their mid-sourcing servers, before they are purged here, together
// with those that earlier runs have left there, and returns those that may be purged here. If it fails for a server,
// its deliveries stay here, too, and the task fails at its end.
func (t *task) purgeMidSourced(ctx context.Context, ids []int64) ([]int64, error) {
	servers, err := t.midSourced(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		m := servers[name]
		held := intersection(t.heldBack, slices.Collect(maps.Keys(m))) // all that is theirs stays, there and here
		ids = t.exclude(ids, held)
		for _, id := range held {
			delete(m, id)
		}
		switch {
		case t.MidSourcing.Databases[name] != nil: // follows
		case slices.Contains(t.MidSourcing.Keep, name):
			t.log(
				ctx,
				severity.Info,
				fmt.Sprintf(
					"%d deliveries of the mid-sourcing account %q are kept, with all that belongs to them",
					len(m),
					name,
				),
			)
			ids = t.exclude(ids, slices.Collect(maps.Keys(m)))
		default:
			if err := t.leaveThere(ctx, name, m); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.MidSourcing.Databases)) {
		var left []int64
		if t.Plan == nil { // which names none of them
			if left, err = t.leftovers(ctx, name); err != nil {
				return nil, err
			}
		}
		m := servers[name]
		if len(m)+len(left) == 0 {
			continue
		}
		stay, err := t.purgeThere(ctx, name, m, left)
		ids = t.exclude(ids, stay)
		if errors.Is(err, errMain) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			// Not wrapped: the loss of another database's connection must not count as that of the main one.
			err = fmt.Errorf(
				"mid-sourcing server %q, whose %d deliveries stay here too, and %d that were left there: %s",
				name,
				len(m),
				len(left),
				err.Error(),
			) //nolint:errorlint // see above
			t.undone = errors.Join(t.undone, err)
		}
		ids = t.leaveParents(ids, slices.Collect(maps.Keys(m)))
	}
	return ids, nil
}

// butKept are some deliveries without those of accounts whose deliveries are kept here.
func (t *task) butKept(ctx context.Context, ids []int64) ([]int64, error) {
	if t.plan.Parents == nil || !t.plan.Task.ParentSet.MidSourced || len(t.MidSourcing.Keep) == 0 {
		return ids, nil
	}
	servers, err := t.midSourced(ctx, ids)
	for name, m := range servers {
		if t.MidSourcing.Databases[name] == nil && slices.Contains(t.MidSourcing.Keep, name) {
			ids = without(ids, slices.Collect(maps.Keys(m)))
		}
	}
	return ids, err
}

// midColumns are those that tell the deliveries of mid-sourcing servers.
var midColumns = []string{"iDeliveryMode", "iMidRemoteId", "iDeliveryProviderId"}

// midSourced groups the mid-sourced ones of some deliveries by the names of their servers; the name is empty where a
// delivery has none.
func (t *task) midSourced(ctx context.Context, ids []int64) (map[string]midSourced, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	table := t.plan.Parents.Table
	if missing := table.Missing(midColumns...); missing != nil {
		t.log(
			ctx,
			severity.Info,
			fmt.Sprintf(
				"%s has no column %s, which tells the deliveries of mid-sourcing servers: all are purged here alone",
				table.Name,
				missing[0],
			),
		)
		return nil, nil
	}
	name, join := plan.AccountOf(t.given.Catalog, "r.iDeliveryProviderId")
	rows, err := t.Pool.Query(
		ctx,
		fmt.Sprintf(
			"SELECT %s, r.iMidRemoteId::bigint, r.iDeliveryId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND "+
				"r.iMidRemoteId <> 0 AND r.iDeliveryId = ANY ($1) ORDER BY 3",
			name,
			table.Quoted(),
			join,
		),
		ids,
	)
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

// stopHere stops those of a server's deliveries that are active in the main database, and returns those that could not
// be: one whose row is locked is left for the next run.
func (t *task) stopHere(ctx context.Context, m midSourced) (stay []int64, err error) {
	stops := slices.DeleteFunc(
		slices.Clone(t.plan.Jobs),
		func(j plan.Job) bool { return !j.Step.OfParents || j.Step.Update == nil },
	)
	ids := slices.Sorted(maps.Keys(m))
	done, err := t.carryOut(ctx, stops, ids)
	if err != nil {
		return nil, err
	}
	stopped := idSet(done)
	maps.DeleteFunc(m, func(here, _ int64) bool { return !stopped[here] })
	return slices.DeleteFunc(ids, func(id int64) bool { return stopped[id] }), nil
}
