package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// The page names neither the tables nor the column: they are inferred from Message Center.
var expiredEvents = plan.Task{
	Name:  "expired-events",
	Title: "Message Center events",
	Description: "Received events (NmsRtEvent, NmsBatchEvent) and archived ones (NmsEventHisto) older than their " +
		"delays; not their statistics.",
	Steps: []plan.Step{
		{
			On:      plan.Table("NmsRtEvent"),
			Rules:   plan.Rules{{plan.Older("tsLastModified", campaign.EventPurge)}},
			Limit:   20_000,
			Empties: true,
		},
		{
			On:      plan.Table("NmsBatchEvent"),
			Rules:   plan.Rules{{plan.Older("tsLastModified", campaign.EventPurge)}},
			Limit:   20_000,
			Empties: true,
		},
		{
			On:    plan.Table("NmsEventHisto"),
			Rules: plan.Rules{{plan.Older("tsLastModified", campaign.EventHistoPurge)}},
			Limit: 20_000,
		},
	},
}
