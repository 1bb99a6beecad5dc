package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var (
	deliveryLogFamily = plan.Family{
		Task: "delivery-logs", What: "a delivery or exclusion log", How: "no delivery mapping names it",
		Taken: plan.DeliveryAndExclusionLogs, Looks: (*campaign.Table).IsDeliveryLog,
	}
	trackingLogFamily = plan.Family{
		Task: "tracking-logs", What: "a tracking log", How: "no delivery mapping names it",
		Taken: plan.TrackingLogs, Looks: (*campaign.Table).IsTrackingLog,
	}
	propositionFamily = plan.Family{
		Task:  "propositions",
		What:  "a table of propositions",
		How:   "it has not the name of one",
		Taken: propositionTables,
		Looks: func(t *campaign.Table) bool { return t.HasPropositions() && t.Has("tsLastModified") },
	}
	appSubscriptionFamily = plan.Family{
		Task: "app-subscriptions", What: "a table of mobile subscriptions", How: "it has not the name of one",
		Taken: appSubscriptionTables, Looks: (*campaign.Table).HasAppSubscriptions,
	}

	families = []plan.Family{deliveryLogFamily, trackingLogFamily, propositionFamily, appSubscriptionFamily}
)

// ErrInclude says that a table cannot be included in a task.
var ErrInclude = errors.New("can not be included")

// CheckInclude fails if a task takes no further tables, or one of those to be included (by stored names) is missing or
// does not look like the task's. It also fails if the database cannot be asked.
func CheckInclude(ctx context.Context, pool *pgxpool.Pool, include map[string][]string) error {
	var known []string
	for _, f := range families {
		known = append(known, f.Task)
	}
	catalog, err := campaign.LoadCatalog(ctx, pool)
	if err != nil {
		return err
	}
	for task, names := range include {
		i := slices.Index(known, task)
		if i < 0 {
			return fmt.Errorf(
				"%w: %q is no task that takes further tables; these are %s",
				ErrInclude,
				task,
				strings.Join(known, ", "),
			)
		}
		for _, name := range names {
			if t := catalog.Table(name); t == nil {
				return fmt.Errorf("%w: schema %q has no table %q", ErrInclude, catalog.Schema, name)
			} else if !families[i].Looks(t) {
				return fmt.Errorf("%w: table %q does not look like %s", ErrInclude, name, families[i].What)
			}
		}
	}
	return nil
}
