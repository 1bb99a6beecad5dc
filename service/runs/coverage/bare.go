package coverage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

// Uncovered returns the tables that no task covers, with their suggestions, as Lister does with SuggestAll, but without
// anything that the service has stored about them.
func Uncovered(
	ctx context.Context, pool *pgxpool.Pool, of insight.Coverage, now time.Time,
) (found []*Table, err error) {
	c := covered{of}
	measured, err := insight.Measure(ctx, pool, nil)
	if err != nil {
		return nil, err
	}
	details, err := insight.ReadDetails(connection.InZone(ctx, c.Zone), pool, measured.Tables)
	if err != nil {
		return nil, err
	}
	var all []*Table
	for i, t := range measured.Tables {
		listed := &Table{Table: t, Details: details[i]}
		listed.CoveredBy, _ = c.of(t)
		all = append(all, listed)
	}
	names := c.policyNames(all)
	for _, t := range all {
		t.Suggestion = DefaultLimits.suggest(t, c, names[t.Name], true, now)
		if t.Suggestion != nil {
			found = append(found, t)
		}
	}
	return found, nil
}
