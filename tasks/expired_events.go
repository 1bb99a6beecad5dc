package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var oldEvents = rules.Rules{{rules.Older("tsLastModified", campaign.EventPurge)}}

// expiredEvents names the tables and the column that Message Center uses. Adobe's page does not name them.
var expiredEvents = rules.Task{
	Name:  "expired-events",
	Title: "Message Center events",
	Description: "Received events (NmsRtEvent, NmsBatchEvent) and archived ones (NmsEventHisto) older than their " +
		"delays; not their statistics.",
	Steps: []rules.Step{
		{On: rules.Table("NmsRtEvent"), Rules: oldEvents, Limit: 20_000, Empties: true},
		{On: rules.Table("NmsBatchEvent"), Rules: oldEvents, Limit: 20_000, Empties: true},
		{
			On:    rules.Table("NmsEventHisto"),
			Rules: rules.Rules{{rules.Older("tsLastModified", campaign.EventHistoPurge)}},
			Limit: 20_000,
		},
	},
}
