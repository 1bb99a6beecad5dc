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

// parseInclude parses entries of the form TASK=TABLE. It returns the tables' names in lower case, by task.
func parseInclude(entries []string) (map[string][]string, error) {
	include := map[string][]string{}
	var mistakes []error
	for _, entry := range entries {
		task, table, _ := strings.Cut(entry, "=")
		if task == "" || table == "" {
			mistakes = append(mistakes, flags.Errorf("--include must be TASK=TABLE, not %q", entry))
		}
		include[task] = append(include[task], strings.ToLower(table))
	}
	return include, errors.Join(mistakes...)
}

// checkInclude fails if an included table is missing, or does not look like the tables of its task.
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
