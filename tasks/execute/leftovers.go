package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// leaveThere has the mid-sourced deliveries of a server purged here alone, and recorded with that.
func (t *task) leaveThere(ctx context.Context, name string, m midSourced) error {
	t.log(
		ctx,
		severity.Warning,
		fmt.Sprintf(
			"no database is configured for the mid-sourcing account %q: its %d deliveries are purged here alone, and "+
				"recorded as left there",
			name,
			len(m),
		),
	)
	if t.DryRun {
		return t.journal.Count(ctx, purge.Delta{Recorded: int64(len(m))})
	}
	for id := range m {
		t.remote = append(t.remote, id)
	}
	return nil
}

// leftovers are the deliveries that earlier runs have left on a server, by their ids there, without those that a
// delivery here has again: its row was restored, and they go with it.
func (t *task) leftovers(ctx context.Context, account string) ([]int64, error) {
	left, err := t.journal.Leftovers(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("read what was left on mid-sourcing servers: %w", err)
	}
	table := t.plan.Parents.Table
	if len(left) == 0 || table.Missing(midColumns...) != nil {
		return left, nil
	}
	name, join := plan.AccountOf(t.given.Catalog, "r.iDeliveryProviderId")
	rows, err := t.Pool.Query(
		ctx,
		fmt.Sprintf(
			"SELECT r.iMidRemoteId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND r.iMidRemoteId = ANY "+
				"($1::bigint[]) AND %s = $2",
			table.Quoted(),
			join,
			name,
		),
		left,
		account,
	)
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	again := idSet(ids)
	if len(again) > 0 {
		t.log(
			ctx,
			severity.Info,
			fmt.Sprintf(
				"%d deliveries that were left on the mid-sourcing server %q are here again: they stay there as long "+
					"as here",
				len(again),
				account,
			),
		)
	}
	return slices.DeleteFunc(left, func(id int64) bool { return again[id] }), nil
}
