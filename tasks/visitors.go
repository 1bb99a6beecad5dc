package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

// Adobe's page gives a fixed 30 days, and also says that the option decides; here the option decides.
var visitors = Task{
	Name:        "visitors",
	Title:       "Anonymous visitors",
	Description: "Visitors (NmsVisitor) that are no recipient and were not touched for the length of their delay.",
	Steps: []Step{{
		On: table("NmsVisitor"),
		Rules: []Rule{
			{Where: "iRecipientId = 0 AND iOrigin = 0 AND tsLastModified < @cutoff", Option: campaign.VisitorPurge},
		},
		Limit: 20_000,
	}},
}
