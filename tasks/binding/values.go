package binding

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Bind sets the values that are known only when the SQL is sent. ids are the current parents, or the ids that a
// query is about.
func (b *Binder) Bind(ctx context.Context, sql sqlexpr.Expr, ids []int64) (sqlexpr.Expr, error) {
	return sql.Bind(func(value any) (any, error) {
		switch v := value.(type) {
		case plan.ParentIDs, plan.IDs:
			return ids, nil
		case plan.RemoteIDs:
			return b.remoteOf(ids), nil
		case plan.SucceededTask:
			return b.State.Succeeded[string(v)], nil
		case plan.DryRunSet:
			return b.State.DryRun.Deleted[string(v)], nil
		case plan.DryRunParents:
			return b.State.DryRun.Processed[string(v)], nil
		case plan.RolledUpFrom:
			return b.State.DryRun.RolledUp[string(v)], nil
		case plan.Lookup:
			return b.lookup(ctx, v)
		}
		return value, nil
	})
}

// lookup reads a value once per task.
func (b *Binder) lookup(ctx context.Context, l plan.Lookup) (value any, err error) {
	if value, known := b.lookups[l]; known {
		return value, nil
	}
	if err := b.Pool.QueryRow(ctx, string(l)).Scan(&value); err != nil {
		return nil, fmt.Errorf("look up a value for %s: %w", b.Plan.Task.Name, err)
	}
	if b.lookups == nil {
		b.lookups = map[plan.Lookup]any{}
	}
	b.lookups[l] = value
	return value, nil
}

// Among returns those of ids that the query finds.
func (b *Binder) Among(ctx context.Context, db campaign.Querier, q sqlexpr.Expr, ids []int64) (map[int64]bool, error) {
	query, err := b.Bind(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	found, err := query.IDs(ctx, db)
	return set(found), err
}

func (b *Binder) Bool(ctx context.Context, db campaign.Querier, q sqlexpr.Expr) (result bool, err error) {
	query, err := b.Bind(ctx, q, nil)
	if err != nil {
		return false, err
	}
	return result, query.QueryRow(ctx, db).Scan(&result)
}

// RightsError returns an error that names the missing rights, given as GRANT statements; nil if none is missing.
func RightsError(grants []string) error {
	if len(grants) == 0 {
		return nil
	}
	grants = slices.Sorted(slices.Values(grants))
	return fmt.Errorf("the role lacks rights, nothing was changed; let an owner of the tables run: %s",
		strings.Join(slices.Compact(grants), "; "))
}
