package midsourcing

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// deliveries are ids on a server, by the ids in the main database.
type deliveries map[int64]int64

var columns = []string{"iDeliveryMode", "iMidRemoteId", "iDeliveryProviderId"}

// byAccount returns the mid-sourced deliveries by account, which is "" for deliveries without one.
func (p *Purge) byAccount(ctx context.Context, ids []int64) (map[string]deliveries, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	table := p.Binder.Plan.Parents.Table
	if missing := table.Missing(columns...); missing != nil {
		p.Log(ctx,
			message.Infof(
				"%s has no column %s, which identifies deliveries of mid-sourcing servers: all are deleted only here",
				table.Name, missing[0]))
		return nil, nil
	}
	name, join := plan.AccountOf(p.Binder.Env.Catalog, "r.iDeliveryProviderId")
	rows := sqlexpr.Format(
		"SELECT %s, r.iMidRemoteId::bigint, r.iDeliveryId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND "+
			"r.iMidRemoteId <> 0 AND r.iDeliveryId = ANY (%s) ORDER BY 3",
		name, table.Quoted(), join, sqlexpr.Arg(ids, ""),
	).Query(ctx, p.Binder.Pool)
	accounts := map[string]deliveries{}
	var (
		account     string
		there, here int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&account, &there, &here}, func() error {
		if accounts[account] == nil {
			accounts[account] = deliveries{}
		}
		accounts[account][here] = there
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	return accounts, nil
}

// accountsUnknown returns why a delivery without an account may have one that cannot be read; nil if that is not
// possible.
func (p *Purge) accountsUnknown() *message.Message {
	const accounts = "NmsExtAccount"
	catalog := p.Binder.Env.Catalog
	if t := catalog.InPlaceOf(accounts); t != nil {
		m := message.NotATable.With("table", accounts, "kind", t.Kind)
		return &m
	}
	if t := catalog.Table(accounts); t != nil && t.RowSecurity {
		m := message.RowsHidden.With("table", t.Name, "role", catalog.Role)
		return &m
	}
	return nil
}

// leftovers returns the recorded deliveries of an account, by their ids on the server. It leaves out those that the
// main database has again because their row was restored: they are deleted together with that row. It returns none
// if such rows may be hidden.
func (p *Purge) leftovers(ctx context.Context, account string) ([]int64, error) {
	left, err := p.Register.Leftovers(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("read what was left on mid-sourcing servers: %w", err)
	}
	table := p.Binder.Plan.Parents.Table
	if len(left) == 0 || table.Missing(columns...) != nil {
		return left, nil
	}
	hidden := p.accountsUnknown()
	if table.RowSecurity {
		m := message.RowsHidden.With("table", table.Name, "role", p.Binder.Env.Catalog.Role)
		hidden = &m
	}
	if hidden != nil {
		p.Log(ctx, *hidden)
		return nil, nil
	}
	name, join := plan.AccountOf(p.Binder.Env.Catalog, "r.iDeliveryProviderId")
	restored, err := sqlexpr.Format(
		"SELECT r.iMidRemoteId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND r.iMidRemoteId = ANY (%s) AND "+
			"%s = %s",
		table.Quoted(), join, sqlexpr.Arg(left, "bigint[]"), name, sqlexpr.Arg(account, ""),
	).IDs(ctx, p.Binder.Pool)
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	if restored = binding.Intersection(left, restored); len(restored) > 0 {
		slices.Sort(restored)
		p.Log(ctx, message.Infof(
			"%d deliveries that were left on the mid-sourcing server %q are here again: they are retained there "+
				"as long as here",
			len(slices.Compact(restored)), account,
		))
	}
	return binding.Without(left, restored), nil
}
