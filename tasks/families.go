package tasks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// ErrInclude says that a table cannot be included in a task.
var ErrInclude = errors.New("can not be included")

// family is a kind of table of which the application and its customers may have any number.
type family struct {
	// task is the name of the task that deletes their rows by age.
	task string
	// what is one of them, for people, and how what makes the task take it of itself.
	what, how string
	// taken are those that the task takes of itself.
	taken Selector
	// looks reports whether a table is like them.
	looks func(t *campaign.Table) bool
}

var (
	deliveryLogFamily = family{"delivery-logs", "a delivery or exclusion log", "no delivery mapping names it",
		deliveryAndExclusionLogs, (*campaign.Table).IsDeliveryLog}
	trackingLogFamily = family{"tracking-logs", "a tracking log", "no delivery mapping names it",
		trackingLogTables, (*campaign.Table).IsTrackingLog}
	propositionFamily = family{"propositions", "a table of propositions", "it has not the name of one",
		propositionTables, func(t *campaign.Table) bool { return t.HasPropositions() && t.Has("tsLastModified") }}
	appSubscriptionFamily = family{"app-subscriptions", "a table of mobile subscriptions", "it has not the name of one",
		appSubscriptionTables, (*campaign.Table).HasAppSubscriptions}

	families = []family{deliveryLogFamily, trackingLogFamily, propositionFamily, appSubscriptionFamily}
)

// workTableName is the form of the names of work tables, which have whatever columns a workflow selects.
var workTableName = regexp.MustCompile(`^(wkf|wkdlv_|wksimu_|grp[0-9])`)

// included selects the tables that the operator includes, and notes which others look like those of the family.
func (f family) included(ctx context.Context, e *Env, p *plan) (found []*campaign.Table, err error) {
	taken, err := f.taken(ctx, e, &plan{})
	if err != nil {
		return nil, err
	}
	for _, t := range e.Catalog.Tables(f.looks) {
		switch {
		case slices.Contains(taken, t) || workTableName.MatchString(t.Name):
		case slices.Contains(e.Include[f.task], t.Name):
			found = append(found, t)
		default:
			p.note(Info, "table %[1]s looks like %[2]s, but %[3]s: left alone; serve --include %[4]s=%[1]s makes this task take it in", t.Name, f.what, f.how, f.task)
		}
	}
	for _, name := range e.Include[f.task] {
		if t := e.Catalog.Table(name); t == nil || !f.looks(t) {
			p.note(Warning, "table %s, which is included, is missing or no longer looks like %s: skipped", name, f.what)
		}
	}
	return found, nil
}

// CheckInclude fails if a task takes no further tables, or one of those to be included (by stored names) is missing or does not
// look like the task's. It also fails if the database cannot be asked.
func CheckInclude(ctx context.Context, pool *pgxpool.Pool, include map[string][]string) error {
	var known []string
	for _, f := range families {
		known = append(known, f.task)
	}
	catalog, err := campaign.LoadCatalog(ctx, pool)
	if err != nil {
		return err
	}
	for task, names := range include {
		i := slices.Index(known, task)
		if i < 0 {
			return fmt.Errorf("%w: %q is no task that takes further tables; these are %s", ErrInclude, task, strings.Join(known, ", "))
		}
		for _, name := range names {
			if t := catalog.Table(name); t == nil {
				return fmt.Errorf("%w: schema %q has no table %q", ErrInclude, catalog.Schema, name)
			} else if !families[i].looks(t) {
				return fmt.Errorf("%w: table %q does not look like %s", ErrInclude, name, families[i].what)
			}
		}
	}
	return nil
}
