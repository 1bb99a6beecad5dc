package binding

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Values returns the parameters of a query, with the values that are only known when it runs.
func (b *Binder) Values(ctx context.Context, args []any) ([]any, error) {
	return b.values(ctx, args, nil)
}

// values returns parameters, with the values that are only known when they are sent.
func (b *Binder) values(ctx context.Context, args []any, parents []int64) ([]any, error) {
	values := slices.Clone(args)
	for i, a := range args {
		switch a := a.(type) {
		case plan.ParentIDs:
			values[i] = parents
		case plan.RemoteIDs:
			values[i] = b.remoteOf(parents)
		case plan.SucceededTask:
			values[i] = b.State.Succeeded[string(a)]
		case plan.DryRunSet:
			values[i] = b.State.DryRun.Deleted[string(a)]
		case plan.DryRunParents:
			values[i] = b.State.DryRun.Processed[string(a)]
		case plan.RolledUpFrom:
			values[i] = b.State.DryRun.RolledUp[string(a)]
		case plan.Lookup:
			var err error
			if values[i], err = b.lookup(ctx, a); err != nil {
				return nil, err
			}
		}
	}
	return values, nil
}

// lookup returns what a query finds. It asks once a task.
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

// Among returns the ids that a query finds, whose first parameter is the ids.
func (b *Binder) Among(ctx context.Context, db campaign.Querier, q plan.Query, ids []int64) (map[int64]bool, error) {
	args, err := b.Values(ctx, q.Args)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, q.SQL, append([]any{ids}, args...)...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return set(found), err
}

// Bool returns the result of a query for one boolean.
func (b *Binder) Bool(ctx context.Context, db campaign.Querier, q plan.Query) (result bool, err error) {
	args, err := b.Values(ctx, q.Args)
	if err != nil {
		return false, err
	}
	return result, db.QueryRow(ctx, q.SQL, args...).Scan(&result)
}

// RightsError returns the error about missing rights, given as GRANT statements; nil if none is missing.
func RightsError(grants []string) error {
	if len(grants) == 0 {
		return nil
	}
	grants = slices.Sorted(slices.Values(grants))
	return fmt.Errorf(
		"the role lacks rights, nothing was changed; let an owner of the tables run: %s",
		strings.Join(slices.Compact(grants), "; "),
	)
}
