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
		Task: "delivery-logs", Noun: "a delivery or exclusion log", Criterion: "no delivery mapping names it",
		Default: plan.DeliveryAndExclusionLogs, Matches: (*campaign.Table).IsDeliveryLog,
	}
	trackingLogFamily = plan.Family{
		Task: "tracking-logs", Noun: "a tracking log", Criterion: "no delivery mapping names it",
		Default: plan.TrackingLogs, Matches: (*campaign.Table).IsTrackingLog,
	}
	propositionFamily = plan.Family{
		Task:      "propositions",
		Noun:      "a table of propositions",
		Criterion: "it does not have the name of one",
		Default:   propositionTables,
		Matches:   func(t *campaign.Table) bool { return t.HasPropositions() && t.Has("tsLastModified") },
	}
	appSubscriptionFamily = plan.Family{
		Task:      "app-subscriptions",
		Noun:      "a table of mobile subscriptions",
		Criterion: "it does not have the name of one",
		Default:   appSubscriptionTables,
		Matches:   (*campaign.Table).HasAppSubscriptions,
	}

	families = []plan.Family{deliveryLogFamily, trackingLogFamily, propositionFamily, appSubscriptionFamily}
)

var ErrInclude = errors.New("cannot be included")

// CheckInclude fails with ErrInclude if a task cannot include tables, or if a table to include, by its stored name, is
// missing or does not look like the task's own tables. It also fails if the catalog cannot be read.
func CheckInclude(ctx context.Context, pool *pgxpool.Pool, include map[string][]string) error {
	var known []string
	for _, f := range families {
		known = append(known, f.Task)
	}
	catalog, err := campaign.LoadCatalog(ctx, pool, campaign.Scope{})
	if err != nil {
		return err
	}
	for task, names := range include {
		i := slices.Index(known, task)
		if i < 0 {
			return fmt.Errorf("%w: %q is no task that takes further tables; these are %s", ErrInclude, task,
				strings.Join(known, ", "))
		}
		for _, name := range names {
			if t := catalog.Table(name); t == nil {
				return fmt.Errorf("%w: schema %q has no table %q", ErrInclude, catalog.Schema, name)
			} else if !families[i].Matches(t) {
				return fmt.Errorf("%w: table %q does not look like %s", ErrInclude, name, families[i].Noun)
			}
		}
	}
	return nil
}
