package tasks

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// leave has the mid-sourced deliveries of a server purged here alone, and recorded with that.
func (e *Env) leave(ctx context.Context, name string, m midSourced) error {
	e.log(ctx, Warning, fmt.Sprintf("no database is configured for the mid-sourcing account %q: its %d deliveries are purged here alone, and recorded as left there", name, len(m)))
	if e.DryRun {
		return e.journal.Count(ctx, purge.Delta{Recorded: int64(len(m))})
	}
	for id := range m {
		e.set.leftovers = append(e.set.leftovers, id)
	}
	return nil
}

// recordLeftovers is the statement that records those of a batch's deliveries that stay on a mid-sourcing server: as part of the
// deletion, so that there is an entry for each of these and for no other.
func recordLeftovers(_ context.Context, c *condition) (*alsoSQL, error) {
	stays := idSet(c.env.set.leftovers)
	left := slices.DeleteFunc(slices.Clone(c.env.set.ids), func(id int64) bool { return !stays[id] })
	if len(left) == 0 {
		return nil, nil
	}
	label := "''"
	if c.table.Has("sLabel") {
		label = "COALESCE(r.sLabel::text, '')"
	}
	name, join := c.env.accountOf("gone.provider")
	return &alsoSQL{
		returning: "r.iDeliveryId::bigint AS here, r.iMidRemoteId::bigint AS there, r.iDeliveryProviderId AS provider, " + label + " AS label",
		sql: c.env.journal.Record(fmt.Sprintf("SELECT %s AS account, gone.there, gone.here, gone.label FROM gone%s WHERE gone.there <> 0 AND (gone.here IN (SELECT unnest(%s))) IS TRUE",
			name, join, c.bind(left, "bigint[]"))),
	}, nil
}

// leftovers are the deliveries that earlier runs have left on a server, by their ids there, without those that a delivery here
// has again: its row was restored, and they go with it.
func (e *Env) leftovers(ctx context.Context, account string) ([]int64, error) {
	left, err := e.journal.Leftovers(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("read what was left on mid-sourcing servers: %w", err)
	}
	t := e.set.table
	if len(left) == 0 || t.Missing(midColumns...) != nil {
		return left, nil
	}
	name, join := e.accountOf("r.iDeliveryProviderId")
	rows, err := e.Pool.Query(ctx, fmt.Sprintf("SELECT r.iMidRemoteId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND r.iMidRemoteId = ANY ($1::bigint[]) AND %s = $2",
		t.Quoted(), join, name), left, account)
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	again := idSet(ids)
	if len(again) > 0 {
		e.log(ctx, Info, fmt.Sprintf("%d deliveries that were left on the mid-sourcing server %q are here again: they stay there as long as here", len(again), account))
	}
	return slices.DeleteFunc(left, func(id int64) bool { return again[id] }), nil
}
