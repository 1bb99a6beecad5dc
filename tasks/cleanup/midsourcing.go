package cleanup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// MidSourcing says what to do with deliveries of mid-sourcing servers, by the names of their external accounts
// (NmsExtAccount.sName). The deliveries of accounts that are not named are deleted in the main database only.
type MidSourcing struct {
	// Databases are the databases of servers, on which deliveries are deleted first. Keep are the accounts whose
	// deliveries are retained.
	Databases map[string]*pgxpool.Pool
	Keep      []string
}

func (c MidSourcing) keeps(account string) bool {
	return c.Databases[account] == nil && slices.Contains(c.Keep, account)
}

var (
	// ErrSameDatabase means that the server's database is the main one, in which the ids belong to other deliveries.
	ErrSameDatabase = errors.New("leads to the main database")
	ErrMain         = errors.New("the main database")
)

// CheckMidSourcing fails with ErrSameDatabase if both pools lead to the same database of the same server. It also fails
// if a database does not answer.
func CheckMidSourcing(ctx context.Context, main, other *pgxpool.Pool) error {
	const identity = "SELECT system_identifier::text || '/' || current_database() FROM pg_control_system()"
	var names [2]string
	for i, pool := range []*pgxpool.Pool{main, other} {
		if err := pool.QueryRow(ctx, identity).Scan(&names[i]); err != nil {
			return err
		}
	}
	if names[0] == names[1] {
		return ErrSameDatabase
	}
	return nil
}

// deliveries are ids on a server, by the ids in the main database.
type deliveries map[int64]int64

var columns = []string{"iDeliveryMode", "iMidRemoteId", "iDeliveryProviderId"}

// byAccount returns the mid-sourced deliveries by account, which is "" for deliveries without one.
func (p *midSourcingPurge) byAccount(ctx context.Context, ids []int64) (map[string]deliveries, error) {
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
	name, join := rules.AccountOf(p.Binder.Env.Catalog, "r.iDeliveryProviderId")
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

// accountsUnknown returns why a delivery that seems to have no account may have one: the role may not see all accounts.
// It returns nil if it does.
func (p *midSourcingPurge) accountsUnknown() *message.Message {
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
func (p *midSourcingPurge) leftovers(ctx context.Context, account string) ([]int64, error) {
	left, err := p.Journal.RemoteIDs(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries left on mid-sourcing servers: %w", err)
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
	name, join := rules.AccountOf(p.Binder.Env.Catalog, "r.iDeliveryProviderId")
	restored, err := sqlexpr.Format(
		"SELECT r.iMidRemoteId::bigint FROM %s AS r%s WHERE r.iDeliveryMode = 4 AND r.iMidRemoteId = ANY (%s) AND "+
			"%s = %s",
		table.Quoted(), join, sqlexpr.Arg(left, "bigint[]"), name, sqlexpr.Arg(account, ""),
	).IDs(ctx, p.Binder.Pool)
	if err != nil {
		return nil, fmt.Errorf("read the mid-sourced deliveries: %w", err)
	}
	if restored = rules.Intersection(left, restored); len(restored) > 0 {
		slices.Sort(restored)
		p.Log(ctx, message.Infof(
			"%d deliveries that were left on the mid-sourcing server %q exist here again: they are retained there "+
				"as long as they exist here",
			len(slices.Compact(restored)), account,
		))
	}
	return rules.Without(left, restored), nil
}

// midSourcingPurge handles the deliveries of a task that are on mid-sourcing servers.
type midSourcingPurge struct {
	Config  MidSourcing
	Binder  *rules.Binder
	Remote  midSourcingDatabase
	Journal Journal
	Log     func(ctx context.Context, messages ...message.Message)
	// Leftovers is set if deliveries that earlier runs left on servers are also deleted.
	Leftovers bool
}

// midSourcingDatabase deletes deliveries on servers, or counts them in a dry run.
type midSourcingDatabase interface {
	Open(ctx context.Context, account string) (midSourcingServer, error)
	// Stop stops active deliveries in the main database, before any of their rows is deleted anywhere. It returns
	// those that it could not stop; they are left to the next run.
	Stop(ctx context.Context, ids []int64) (retained []int64, err error)
	Forget(ctx context.Context, account string, ids []int64) error
	// DeleteHereAlone records that deliveries which are deleted here remain on their servers.
	DeleteHereAlone(ctx context.Context, ids []int64) error
}

type midSourcingServer interface {
	// Purge deletes deliveries with all rows that depend on them, by the steps of the task but regardless of its
	// rules. It returns the deleted ones.
	Purge(ctx context.Context, ids []int64) (purged []int64, summary midSourcingSummary, err error)
}

// midSourcingSummary is what a run did on a server, or would do.
type midSourcingSummary struct {
	// Verb is "purged" or "would purge".
	Verb             string
	Deleted, Updated int64
}

// midSourcingResult is what remains to be done in the main database.
type midSourcingResult struct {
	IDs []int64
	// Dependent counts deliveries that are left out because a server failed or retained them.
	Dependent int64
	// Failed is the error of a server, which fails the task at its end.
	Failed error
}

// Run deletes parents on their servers, and the deliveries that earlier runs left there. Deliveries with rows on
// hold are retained in both places, and so are those of a server that fails.
func (p *midSourcingPurge) Run(ctx context.Context, parents rules.ChosenParents) (r midSourcingResult, err error) {
	r.IDs = parents.IDs
	accounts, err := p.byAccount(ctx, parents.IDs)
	if err != nil {
		return r, err
	}
	unknown := p.accountsUnknown()
	for _, account := range slices.Sorted(maps.Keys(accounts)) {
		d := accounts[account]
		onHold := rules.Intersection(parents.RowsOnHold, slices.Collect(maps.Keys(d)))
		r.IDs = rules.Without(r.IDs, onHold)
		maps.DeleteFunc(d, func(here, _ int64) bool { return slices.Contains(onHold, here) })
		if p.Config.Databases[account] != nil {
			continue
		}
		ids := slices.Sorted(maps.Keys(d))
		if p.Config.keeps(account) {
			p.Log(ctx,
				message.Infof("%d deliveries of the mid-sourcing account %q are retained, with all that belongs to them",
					len(d), account))
			r.IDs = rules.Without(r.IDs, ids)
			continue
		}
		if account == "" && unknown != nil {
			p.Log(ctx, *unknown,
				message.ParentsRetained.With("rows", len(d), "table", p.Binder.Plan.Parents.Table.Name,
					"problem", "their mid-sourcing account is unknown"))
			r.IDs, r.Dependent = rules.Without(r.IDs, ids), r.Dependent+int64(len(ids))
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
func (p *midSourcingPurge) runServer(
	ctx context.Context, account string, d deliveries, r *midSourcingResult,
) (err error) {
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
	r.IDs = rules.Without(r.IDs, retained)
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
	rest := rules.Without(r.IDs, slices.Collect(maps.Keys(d)))
	r.IDs, r.Dependent = rest, r.Dependent+int64(len(r.IDs)-len(rest))
	return nil
}

// purge deletes deliveries on a server, and removes the deleted ones from d. retained are those that could not be
// stopped in the main database.
func (p *midSourcingPurge) purge(
	ctx context.Context, account string, d deliveries, left []int64,
) (retained []int64, err error) {
	if err := CheckMidSourcing(ctx, p.Binder.Pool, p.Config.Databases[account]); err != nil {
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
			account, summary.Verb, len(done), len(rules.Intersection(left, purged)), summary.Deleted,
			summary.Updated))
	return retained, nil
}

// WithoutKept leaves out the deliveries of accounts that are retained, and those whose account is unknown.
func (p *midSourcingPurge) WithoutKept(ctx context.Context, ids []int64) ([]int64, error) {
	unknown := p.accountsUnknown() != nil
	if len(p.Config.Keep) == 0 && !unknown {
		return ids, nil
	}
	accounts, err := p.byAccount(ctx, ids)
	for account, d := range accounts {
		if p.Config.keeps(account) || (account == "" && unknown) {
			ids = rules.Without(ids, slices.Collect(maps.Keys(d)))
		}
	}
	return ids, err
}

// midSourcing returns how to delete parents on their mid-sourcing servers; nil if none can be there. A saved plan
// has no leftovers.
func (a *Attempt) midSourcing(r midSourcingDatabase) *midSourcingPurge {
	if a.Plan.Parents == nil || !a.Task.ParentRule.MidSourced {
		return nil
	}
	return &midSourcingPurge{
		Config:    a.run.Config.MidSourcing,
		Binder:    a.Binder,
		Remote:    r,
		Journal:   a.run.Journal,
		Log:       a.Log,
		Leftovers: a.run.Config.SavedPlan == nil,
	}
}

// PurgeMidSourced deletes parents on their servers, or counts them in a dry run, and returns those that are also to
// be deleted here.
func (a *Attempt) PurgeMidSourced(
	ctx context.Context, parents rules.ChosenParents, r midSourcingDatabase,
) ([]int64, error) {
	m := a.midSourcing(r)
	if m == nil {
		return parents.IDs, nil
	}
	result, err := m.Run(ctx, parents)
	if err != nil {
		return nil, err
	}
	a.Retained.Dependent += result.Dependent
	a.ParentsRetained = a.ParentsRetained || len(result.IDs) < len(parents.IDs)
	a.Unfinished = errors.Join(a.Unfinished, result.Failed)
	return result.IDs, nil
}

func (a *Attempt) WithoutKept(ctx context.Context, ids []int64) ([]int64, error) {
	if m := a.midSourcing(nil); m != nil {
		return m.WithoutKept(ctx, ids)
	}
	return ids, nil
}

type executedRemote struct{ main *executedTask }

func (r executedRemote) Open(ctx context.Context, account string) (midSourcingServer, error) {
	j := &executedJournal{Journal: r.main.journal, main: r.main.Binder.Engine}
	engine := *r.main.Binder.Engine
	engine.Ledger, engine.Bounds, engine.Durable = j, nil, true
	a, err := r.main.run.OnServer(ctx, account, r.main.Task, j, engine)
	if err != nil {
		return nil, err
	}
	return &executedServer{&executedTask{Attempt: a, run: r.main.run, journal: j, expected: -1}, j}, nil
}

// Stop stops deliveries, and returns those that are retained. A delivery whose row is locked is left to the next
// run.
func (r executedRemote) Stop(ctx context.Context, ids []int64) (retained []int64, err error) {
	stops := slices.DeleteFunc(slices.Clone(r.main.Plan.Jobs), func(j rules.Job) bool {
		return !j.Step.OfParents || j.Step.Update == nil
	})
	stopped, err := r.main.sweepAll(ctx, stops, rules.ChosenParents{IDs: ids})
	return rules.Without(ids, stopped), err
}

func (r executedRemote) Forget(ctx context.Context, account string, ids []int64) error {
	return r.main.journal.ForgetRemote(ctx, account, ids)
}

// DeleteHereAlone only notes the deliveries; they are recorded when they are deleted.
func (r executedRemote) DeleteHereAlone(_ context.Context, ids []int64) error {
	r.main.Binder.Remote = append(r.main.Binder.Remote, ids...)
	return nil
}

type executedServer struct {
	task    *executedTask
	journal *executedJournal
}

func (s *executedServer) Purge(ctx context.Context, ids []int64) ([]int64, midSourcingSummary, error) {
	ctx = s.task.Database().InZone(ctx)
	ids, err := s.task.RetainForSkipped(ctx, ids)
	if err != nil {
		return nil, midSourcingSummary{}, err
	}
	purged, err := s.task.sweepAll(ctx, s.task.Jobs, rules.ChosenParents{IDs: ids})
	if err == nil {
		err = s.task.Unfinished
	}
	return purged, midSourcingSummary{Verb: "purged", Deleted: s.journal.deleted, Updated: s.journal.updated}, err
}

// executedJournal keeps deletions on a mid-sourcing server out of the counts of the run.
type executedJournal struct {
	Journal
	main             *purge.Engine
	deleted, updated int64
}

func (j *executedJournal) Proceed(ctx context.Context) error {
	if err := j.Journal.Proceed(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrMain, err)
	}
	return nil
}

// Write first checks whether the run may proceed, in a transaction of the main database that ends after the batch on
// the server. Whoever waits for the run's batches thus also waits for those on the server.
func (j *executedJournal) Write(
	ctx context.Context, _ *pgx.Batch, d purge.Delta,
) (settled func(error) error, err error) {
	tx, err := j.main.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMain, err)
	}
	if err := j.Proceed(ctx); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func(err error) error {
		_ = tx.Rollback(ctx) // the transaction changed nothing
		if err == nil {
			j.deleted += d.Deleted
			j.updated += d.Updated
		}
		return err
	}, nil
}

type countedRemote struct{ *countedTask }

func (r countedRemote) Open(ctx context.Context, account string) (midSourcingServer, error) {
	if r.parentsOnly { // the server can be reached, and would purge its deliveries
		return reachable{}, nil
	}
	a, err := r.run.OnServer(ctx, account, r.Task, r.run.Journal, *r.Binder.Engine)
	if err != nil {
		return nil, err
	}
	return &countedServer{a, r.run.Journal}, nil
}

func (countedRemote) Stop(context.Context, []int64) ([]int64, error) { return nil, nil }

func (countedRemote) Forget(context.Context, string, []int64) error { return nil }

func (r countedRemote) DeleteHereAlone(ctx context.Context, ids []int64) error {
	return r.run.Journal.Count(ctx, purge.Delta{Recorded: int64(len(ids))})
}

type reachable struct{}

func (reachable) Purge(_ context.Context, ids []int64) ([]int64, midSourcingSummary, error) {
	return ids, midSourcingSummary{Verb: "would purge"}, nil
}

type countedServer struct {
	attempt *Attempt
	journal Journal
}

func (s *countedServer) Purge(ctx context.Context, ids []int64) (purged []int64, sum midSourcingSummary, err error) {
	a := s.attempt
	ctx = a.Database().InZone(ctx)
	sum.Verb = "would purge"
	if ids, err = a.RetainForSkipped(ctx, ids); err != nil {
		return nil, sum, err
	}
	for _, j := range a.Jobs {
		if err := s.count(ctx, j, rules.ChosenParents{IDs: ids}, &sum); err != nil {
			return nil, sum, err
		}
	}
	return ids, sum, a.Unfinished
}

func (s *countedServer) count(
	ctx context.Context, j rules.Job, parents rules.ChosenParents, sum *midSourcingSummary,
) error {
	a := s.attempt
	s.journal.At(j.Name, -1)
	sweep, err := a.Binder.Sweep(ctx, &j, parents.IDs)
	if err != nil {
		return err
	}
	if err := sweep.OtherServerError(); err != nil {
		a.OtherServerFailed(ctx, j, sweep, err)
		return nil
	}
	return a.Uncounted(ctx, j, sweep, a.Binder.Engine.Count(ctx, sweep, func(_ context.Context, found purge.Tally) error {
		if sweep.Set != nil {
			sum.Updated += found.Rows
		} else {
			sum.Deleted += found.Rows + found.Paired
		}
		return nil
	}))
}
