package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

// The page names neither the tables nor the column: they are inferred from Message Center.
var expiredEvents = Task{
	Name:        "expired-events",
	Title:       "Message Center events",
	Description: "Received events (NmsRtEvent, NmsBatchEvent) and archived ones (NmsEventHisto) older than their delays; not their statistics.",
	Steps: []Step{
		{On: table("NmsRtEvent"), Rules: []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.EventPurge}}, Limit: 20_000},
		{On: table("NmsBatchEvent"), Rules: []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.EventPurge}}, Limit: 20_000},
		{On: table("NmsEventHisto"), Rules: []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.EventHistoPurge}}, Limit: 20_000},
	},
}
