package midsourcing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
)

// Purge handles the deliveries of a task that are on mid-sourcing servers.
type Purge struct {
	Config   Config
	Binder   *binding.Binder
	Remote   Remote
	Register Register
	Log      func(ctx context.Context, messages ...message.Message)
	// Leftovers is set if deliveries that earlier runs left on servers are deleted, too.
	Leftovers bool
}

// Remote deletes deliveries on servers, or counts them in a dry run.
type Remote interface {
	Open(ctx context.Context, account string) (Server, error)
	// Stop stops active deliveries in the main database, before any of their rows is deleted anywhere. It returns
	// those that it could not stop; they are left to the next run.
	Stop(ctx context.Context, ids []int64) (retained []int64, err error)
	Forget(ctx context.Context, account string, ids []int64) error
	// DeleteHereAlone has the deliveries recorded as remaining on their servers.
	DeleteHereAlone(ctx context.Context, ids []int64) error
}

type Server interface {
	// Purge deletes deliveries with all rows that depend on them, by the steps of the task but regardless of its
	// rules. It returns the deleted ones.
	Purge(ctx context.Context, ids []int64) (purged []int64, summary Summary, err error)
}

// Summary is what was done on a server, or would be.
type Summary struct {
	// Verb is "purged" or "would purge".
	Verb             string
	Deleted, Updated int64
}

// Result is what remains to be done in the main database.
type Result struct {
	IDs []int64
	// Dependent counts deliveries that are left out because a server failed or retained them.
	Dependent int64
	// Failed is the error of a server, which fails the task at its end.
	Failed error
}

// Run deletes parents on their servers, and the deliveries that earlier runs left there. Deliveries with rows on
// hold are retained in both places, and so are those of a server that fails.
func (p *Purge) Run(ctx context.Context, parents binding.Parents) (r Result, err error) {
	r.IDs = parents.IDs
	accounts, err := p.byAccount(ctx, parents.IDs)
	if err != nil {
		return r, err
	}
	unknown := p.accountsUnknown()
	for _, account := range slices.Sorted(maps.Keys(accounts)) {
		d := accounts[account]
		onHold := binding.Intersection(parents.RowsOnHold, slices.Collect(maps.Keys(d)))
		r.IDs = binding.Without(r.IDs, onHold)
		maps.DeleteFunc(d, func(here, _ int64) bool { return slices.Contains(onHold, here) })
		if p.Config.Databases[account] != nil {
			continue
		}
		ids := slices.Sorted(maps.Keys(d))
		if p.Config.keeps(account) {
			p.Log(ctx,
				message.Infof("%d deliveries of the mid-sourcing account %q are kept, with all that belongs to them",
					len(d), account))
			r.IDs = binding.Without(r.IDs, ids)
			continue
		}
		if account == "" && unknown != nil {
			p.Log(ctx, *unknown,
				message.ParentsRetained.With("rows", len(d), "table", p.Binder.Plan.Parents.Table.Name,
					"problem", "their mid-sourcing account is not known"))
			r.IDs, r.Dependent = binding.Without(r.IDs, ids), r.Dependent+int64(len(ids))
			continue
		}
		p.Log(ctx, message.RemoteDeliveriesRetained.With("account", strconv.Quote(account), "deliveries", len(d)))
		if err := p.Remote.DeleteHereAlone(ctx, ids); err != nil {
			return r, err
		}
	}
	for _, account := range slices.Sorted(maps.Keys(p.Config.Databases)) {
		if err := p.runServer(ctx, account, accounts[account], &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// runServer deletes the deliveries of one account on its server. err is an error of the main database; an error of
// the server is in the result.
func (p *Purge) runServer(ctx context.Context, account string, d deliveries, r *Result) (err error) {
	var left []int64
	if p.Leftovers {
		if left, err = p.leftovers(ctx, account); err != nil {
			return err
		}
	}
	if len(d)+len(left) == 0 {
		return nil
	}
	retained, err := p.purge(ctx, account, d, left)
	r.IDs = binding.Without(r.IDs, retained)
	if errors.Is(err, ErrMain) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		// The error is not wrapped: losing the connection to another database must not count as losing the main one.
		r.Failed = errors.Join(r.Failed, fmt.Errorf(
			"mid-sourcing server %q failed: %d of its deliveries are retained here, and %d of earlier runs there: %s",
			account, len(d), len(left), sqlstate.Text(err),
		)) //nolint:errorlint // see above
	}
	rest := binding.Without(r.IDs, slices.Collect(maps.Keys(d)))
	r.IDs, r.Dependent = rest, r.Dependent+int64(len(r.IDs)-len(rest))
	return nil
}

// purge deletes deliveries on a server, and removes the deleted ones from d. retained are those that could not be
// stopped in the main database.
func (p *Purge) purge(ctx context.Context, account string, d deliveries, left []int64) (retained []int64, err error) {
	if err := Check(ctx, p.Binder.Pool, p.Config.Databases[account]); err != nil {
		return nil, err
	}
	server, err := p.Remote.Open(ctx, account)
	if err != nil {
		return nil, err
	}
	if retained, err = p.Remote.Stop(ctx, slices.Sorted(maps.Keys(d))); err != nil {
		return retained, fmt.Errorf("%w: %w", ErrMain, err)
	}
	for _, id := range retained {
		delete(d, id)
	}
	ids := slices.Concat(slices.Collect(maps.Values(d)), left)
	slices.Sort(ids)
	purged, summary, err := server.Purge(ctx, slices.Compact(ids))
	if err != nil {
		return retained, err
	}
	done := map[int64]bool{}
	for _, id := range purged {
		done[id] = true
	}
	maps.DeleteFunc(d, func(_, there int64) bool { return done[there] })
	if err := p.Remote.Forget(ctx, account, purged); err != nil {
		return retained, fmt.Errorf("%w: %w", ErrMain, err)
	}
	p.Log(ctx,
		message.Infof(
			"mid-sourcing server %q: %s %d deliveries, %d of them left there by earlier runs: %d rows deleted, %d updated",
			account, summary.Verb, len(done), len(binding.Intersection(left, purged)), summary.Deleted,
			summary.Updated))
	return retained, nil
}

// WithoutKept leaves out the deliveries of accounts that are retained, and those whose account is unknown.
func (p *Purge) WithoutKept(ctx context.Context, ids []int64) ([]int64, error) {
	unknown := p.accountsUnknown() != nil
	if len(p.Config.Keep) == 0 && !unknown {
		return ids, nil
	}
	accounts, err := p.byAccount(ctx, ids)
	for account, d := range accounts {
		if p.Config.keeps(account) || (account == "" && unknown) {
			ids = binding.Without(ids, slices.Collect(maps.Keys(d)))
		}
	}
	return ids, err
}
