package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// DescribedPolicy is a policy with its warnings.
type DescribedPolicy struct {
	policy.Policy
	Warnings []message.Message
}

// Policy fails with store.ErrNoPolicy.
func (m *Manager) Policy(ctx context.Context, name string) (d DescribedPolicy, err error) {
	err = pgx.BeginTxFunc(ctx, m.calls, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		s, err := store.GetPolicy(ctx, tx, name)
		if err != nil {
			return err
		}
		d.Policy = s.Policy
		env, err := m.policyEnv(ctx, tx, s.Policy)
		if err != nil {
			return err
		}
		if d.Warnings, err = policyWarnings(ctx, tx, env, s, env.Catalog.Table(s.TableName())); err != nil {
			return err
		}
		err = m.withDefaults(s.Policy).Check(ctx, tx, env)
		if isAboutPolicy(err) {
			d.Warnings = append(d.Warnings, policy.Unusable(err))
			return nil
		}
		return err
	})
	return d, err
}

type PolicyChange struct {
	// Etag is the one that the caller has read; "" skips the check.
	Name, Etag string
	// Make gets the current policy, or nil if there is none, and returns the new one. DeletePolicy does not use it.
	Make         func(before *policy.Policy) (policy.Policy, error)
	ValidateOnly bool
}

// SetPolicy stores a policy. When it returns, no run still uses the old rule. It fails with failure.Violations, with
// failure.Precondition if the role lacks rights, or with etag.ErrStale.
func (m *Manager) SetPolicy(ctx context.Context, c PolicyChange) (d DescribedPolicy, err error) {
	err = m.changePolicy(ctx, c, func(tx pgx.Tx, before *policy.Policy) error {
		if d.Policy, err = c.Make(before); err != nil {
			return err
		}
		if before == nil {
			if err := requireRoom(ctx, tx); err != nil {
				return err
			}
		}
		if err := d.Validate(); err != nil {
			return err
		}
		env, err := m.policyEnv(ctx, tx, d.Policy)
		if err != nil {
			return err
		}
		if err := m.withDefaults(d.Policy).Check(ctx, tx, env); err != nil {
			return err
		}
		if err := store.SetPolicy(ctx, tx, d.Resolve(env.Catalog)); err != nil {
			return err
		}
		stored, err := store.GetPolicy(ctx, tx, d.Name)
		if err != nil {
			return err
		}
		stored.Relations = nil // the catalog was read by the names that the policy was given
		if d.Warnings, err = policyWarnings(ctx, tx, env, stored, env.Catalog.Table(d.Table)); err != nil {
			return err
		}
		if c.ValidateOnly {
			return errChecked
		}
		return audit.Note(ctx, tx, audit.Details{"from": before, "to": &d.Policy})
	})
	switch {
	case errors.Is(err, errChecked):
		return d, nil
	case err != nil:
		return d, err
	}
	return d, m.awaitBatches(ctx, d.TaskName())
}

// DeletePolicy deletes a policy. When it returns, no run still uses the policy. It fails with store.ErrNoPolicy, or
// etag.ErrStale.
func (m *Manager) DeletePolicy(ctx context.Context, c PolicyChange) error {
	err := m.changePolicy(ctx, c, func(tx pgx.Tx, before *policy.Policy) error {
		if before == nil {
			return store.NoPolicy(c.Name)
		}
		if err := store.DeletePolicy(ctx, tx, c.Name); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{"from": before})
	})
	if err != nil {
		return err
	}
	return m.awaitBatches(ctx, policy.Prefix+c.Name)
}

// PolicyGrants returns statements that grant the role the rights that a policy needs; see policy.Policy.Grants.
func (m *Manager) PolicyGrants(ctx context.Context, p policy.Policy) (statements []string, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	err = pgx.BeginTxFunc(ctx, m.calls, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		env, err := m.policyEnv(ctx, tx, p)
		if err != nil {
			return err
		}
		statements, err = m.withDefaults(p).Grants(ctx, tx, env)
		return err
	})
	return statements, err
}

// errChecked rolls back the transaction of a change that is only validated.
var errChecked = errors.New("only checked")

// changePolicy locks the policy and passes it to do, or nil if there is none.
func (m *Manager) changePolicy(
	ctx context.Context, c PolicyChange, do func(tx pgx.Tx, before *policy.Policy) error,
) error {
	return pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
			return err
		}
		if err := m.Own(ctx, tx); err != nil {
			return err
		}
		stored, err := store.LockPolicy(ctx, tx, c.Name, c.Etag)
		if err != nil {
			return err
		}
		if stored == nil {
			return do(tx, nil)
		}
		return do(tx, &stored.Policy)
	})
}

// maxPolicies limits the policies, because a run has a task for each of them.
const maxPolicies = 2_000

// requireRoom fails if there are already maxPolicies policies.
func requireRoom(ctx context.Context, tx pgx.Tx) error {
	var full bool
	err := tx.QueryRow(ctx, "SELECT count(*) >= $1 FROM cleanupd.policy", maxPolicies).Scan(&full)
	if err == nil && full {
		err = failure.New(failure.Precondition,
			fmt.Sprintf("at most %d policies are possible: delete some first", maxPolicies))
	}
	return err
}

// withDefaults returns the policy with the service's undo if it has none of its own, because undo needs further rights.
func (m *Manager) withDefaults(p policy.Policy) policy.Policy {
	p.Undo = cmp.Or(p.Undo, &m.config.Undo)
	return p
}

// policyEnv returns the environment that a run would have now if the policy were stored.
func (m *Manager) policyEnv(ctx context.Context, tx pgx.Tx, p policy.Policy) (env rules.Env, err error) {
	config, err := m.readConfig(ctx, tx)
	if err != nil {
		return env, err
	}
	isSame := func(t rules.Task) bool { return t.Name == p.TaskName() }
	config.Pipeline = append(slices.DeleteFunc(slices.Clone(config.Pipeline), isSame), p.Task())
	if config.Now, err = store.Now(ctx, tx); err != nil {
		return env, err
	}
	holds, _, err := store.EffectiveHolds(ctx, tx, config.Now)
	if err != nil {
		return env, err
	}
	return cleanup.LoadEnv(ctx, config, tx, holds)
}

func isAboutPolicy(err error) bool {
	kinded := failure.Kinded(nil)
	return errors.As(err, &kinded) && (kinded.Kind() == failure.Invalid || kinded.Kind() == failure.Precondition)
}

// The table is nil if it does not exist.
func policyWarnings(
	ctx context.Context, tx pgx.Tx, env rules.Env, s store.Policy, table *campaign.Table,
) (found []message.Message, err error) {
	found = s.Unproven()
	if a := s.OlderThan; a != nil && *cmp.Or(a.Days, a.Hours) == 0 && !capacity.IsExpiry(a.Column) {
		found = append(found, message.PolicyOfEveryRow.With("table", s.Table, "column", a.Column))
	}
	if s.Partitions == purge.DropPartitions && !s.RemovesPartitions() {
		found = append(found, message.PolicyDropsNothing.With("table", s.Table))
	}
	if table == nil {
		return found, nil
	}
	owners, err := campaign.Owners(ctx, tx, table.OID)
	if err != nil {
		return found, err
	}
	for _, o := range owners {
		found = append(found, message.SeveralOwners.With("table", o.Table, "owner", o.Name, "others", o.Others))
	}
	triggers, err := campaign.TriggersAsRole(ctx, tx, table.OID, s.Assign != nil)
	if err != nil {
		return found, err
	}
	if len(triggers) > 0 {
		found = append(found, message.PolicyTriggers.With("triggers", strings.Join(triggers, ", ")))
	}
	if covering := covering(env, s.TaskName(), table); covering != nil {
		found = append(found,
			message.PolicyTableCovered.With("table", table.Quoted(), "tasks", strings.Join(covering, ", ")))
	}
	if statement := s.MissingIndex(table); statement != "" {
		found = append(found, message.PolicyUnindexed.With("table", table.Quoted(), "statement", statement))
	}
	var dependent []string
	for _, t := range table.Dependents() {
		if t == table || !s.Unreferenced {
			dependent = append(dependent, t.Quoted())
		}
	}
	if s.Assign != nil {
		return found, nil
	}
	if dependent != nil {
		slices.Sort(dependent)
		found = append(found,
			message.PolicyCascades.With("table", table.Quoted(), "tables", strings.Join(dependent, ", ")))
	}
	references, err := table.References(ctx, tx)
	if references.Refusing != nil && !s.Unreferenced {
		refused := message.PolicyRefused.With("table", table.Quoted(), "tables", strings.Join(references.Refusing, ", "))
		if rows, counted := countRefused(ctx, tx, env, s); counted && rows > 0 {
			refused = message.PolicyRowsRefused.With("table", table.Quoted(), "rows", rows,
				"tables", strings.Join(references.Refusing, ", "))
		}
		found = append(found, refused)
	}
	if references.Unindexed != nil {
		found = append(found,
			message.PolicyKeyUnindexed.With("table", table.Quoted(),
				"statements", strings.Join(references.Unindexed, "; ")))
	}
	return found, err
}

// countRefused counts the matching rows that foreign keys keep from being deleted. counted is false if that is not
// possible, or if a query takes longer than two seconds.
func countRefused(ctx context.Context, tx pgx.Tx, env rules.Env, s store.Policy) (rows int64, counted bool) {
	compiled, err := rules.Compile(s.Task(), env)
	if err != nil || len(compiled.Jobs) == 0 {
		return 0, false
	}
	within, err := tx.Begin(ctx)
	if err != nil {
		return 0, false
	}
	defer func() { _ = within.Rollback(ctx) }() // also undoes the timeouts
	_, err = within.Exec(ctx, "SET LOCAL statement_timeout = '2s'; SET LOCAL lock_timeout = '500ms'")
	for _, j := range compiled.Jobs {
		if err != nil || j.Refused.IsZero() || j.Newest != nil { // the condition does not leave out the newest rows
			return 0, false
		}
		var n int64
		err = sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE (%s) AND (%s)", j.Relation, j.Where, j.Refused).
			QueryRow(ctx, within).Scan(&n)
		rows += n
	}
	return rows, err == nil
}

// covering returns the other tasks that change rows of the table, or that may do so because they do not compile.
func covering(env rules.Env, self string, table *campaign.Table) (names []string) {
	env.DryRun = true // so that missing rights on other tables do not matter
	for _, t := range env.Pipeline {
		if t.Name == self {
			continue
		}
		p, err := rules.Compile(t, env)
		if err != nil {
			names = append(names, fmt.Sprintf("possibly %s", t.Name))
			continue
		}
		changes := func(j rules.Job) bool { return j.Table == table }
		if slices.ContainsFunc(p.Jobs, changes) {
			names = append(names, t.Name)
		}
	}
	return names
}
