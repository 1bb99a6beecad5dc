package hold

import (
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// NotCoveredByRecipients returns the tables whose rows tasks or foreign keys delete, and that refer to a recipient
// in another way than by iRecipientId. A hold of recipients does not cover these.
func NotCoveredByRecipients(env plan.Env) (names []string, err error) {
	names = []string{}
	for _, t := range env.Pipeline {
		p, err := plan.Compile(t, env)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			for _, table := range append(j.Table.Dependents(), j.Table) {
				if reachesRecipients(table) {
					names = append(names, table.NameIn(env.Catalog.Schema))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Concerns reports whether a task changes rows that the environment's holds keep. A task that cannot be compiled
// changes none.
func Concerns(env plan.Env) bool {
	return slices.ContainsFunc(env.Pipeline, func(t plan.Task) bool {
		p, err := plan.Compile(t, env)
		if err != nil {
			return false
		}
		isConcerned := func(j plan.Job) bool { return len(j.OnHold) > 0 }
		return p.RollUpOnHold || (p.Parents != nil && !p.Parents.OnHold.IsZero()) ||
			slices.ContainsFunc(slices.Concat(p.Jobs, p.Partitionless), isConcerned)
	})
}

func reachesRecipients(t *campaign.Table) bool {
	links := []string{"iBroadLogId", "iMessageId", "iTrackingLogId", "iWebTrackingLogId", "iVisitorId"}
	return t.OfRecipients ||
		(!t.Has("iRecipientId") && slices.ContainsFunc(links, func(c string) bool { return t.Has(c) }))
}
