package serve

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// parseInclude parses TASK=TABLE of tables that tasks take in, and returns the tables' stored names by task.
func parseInclude(given []string) (map[string][]string, error) {
	include := map[string][]string{}
	var mistakes []error
	for _, entry := range given {
		task, table, _ := strings.Cut(entry, "=")
		if task == "" || table == "" {
			mistakes = append(mistakes, flags.Errorf("--include is TASK=TABLE, not %q", entry))
		}
		include[task] = append(include[task], strings.ToLower(table))
	}
	return include, errors.Join(mistakes...)
}

// checkInclude refuses tables that are missing, or do not look like those of the task.
func checkInclude(ctx context.Context, pool *pgxpool.Pool, include map[string][]string) error {
	if len(include) == 0 {
		return nil
	}
	err := tasks.CheckInclude(ctx, pool, include)
	if errors.Is(err, tasks.ErrInclude) || errors.Is(err, campaign.ErrNotCampaign) {
		return flags.Errorf("--include: %w", err)
	}
	return err
}
