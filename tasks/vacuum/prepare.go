package vacuum

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// Prepare returns the tables to vacuum, and logs how many belong to other roles. Those from which the run deleted
// most come first. There are none if the option XtkCleanup_NoStats turns vacuuming off.
func Prepare(ctx context.Context, a *pipeline.Attempt, truncate bool) (c Commander, tables []Storage, err error) {
	env := a.Binder.Env
	c = Commander{Catalog: env.Catalog, Truncate: truncate}
	if c.Mode, err = env.Options.Statistics(); err != nil {
		a.Log(ctx, message.StatisticsOptionUnusable.With("error", err))
	}
	if c.Mode == campaign.NoStatistics {
		a.Log(ctx, message.Infof("Option 'XtkCleanup_NoStats' is set to '1'"))
		return c, nil, nil
	}
	emptied, err := a.Journal().Counts.Emptied(ctx, "")
	if err != nil {
		return c, nil, fmt.Errorf("list the tables: %w", err)
	}
	tables, others, err := All(ctx, a.Binder.Pool, env.Catalog.Schema, emptied)
	if others > 0 {
		const left = "%d tables of %s belong to another role: left to autovacuum"
		text := fmt.Sprintf(left, others, env.Catalog.Schema)
		if env.Catalog.Version >= 170_000 {
			text += fmt.Sprintf("; to have them vacuumed: GRANT MAINTAIN ON ALL TABLES IN SCHEMA %s TO %s",
				pgx.Identifier{env.Catalog.Schema}.Sanitize(), pgx.Identifier{env.Catalog.Role}.Sanitize())
		}
		a.Log(ctx, message.Infos(text)...)
	}
	return c, tables, err
}
