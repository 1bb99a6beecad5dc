package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var oldEvents = plan.Rules{{plan.Older("tsLastModified", campaign.EventPurge)}}

// expiredEvents names the tables and the column that Message Center uses. Adobe's page does not name them.
var expiredEvents = plan.Task{
	Name:  "expired-events",
	Title: "Message Center events",
	Description: "Received events (NmsRtEvent, NmsBatchEvent) and archived ones (NmsEventHisto) older than their " +
		"delays; not their statistics.",
	Steps: []plan.Step{
		{On: plan.Table("NmsRtEvent"), Rules: oldEvents, Limit: 20_000, Empties: true},
		{On: plan.Table("NmsBatchEvent"), Rules: oldEvents, Limit: 20_000, Empties: true},
		{
			On:    plan.Table("NmsEventHisto"),
			Rules: plan.Rules{{plan.Older("tsLastModified", campaign.EventHistoPurge)}},
			Limit: 20_000,
		},
	},
}
