package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Adobe's page gives a fixed 30 days, and also says that the option decides; here the option decides.
var visitors = plan.Task{
	Name:        "visitors",
	Title:       "Anonymous visitors",
	Description: "Visitors (NmsVisitor) that are no recipient and were not touched for the length of their delay.",
	Steps: []plan.Step{{
		On: plan.Table("NmsVisitor"),
		Rules: plan.Rules{
			{plan.Is("iRecipientId", 0), plan.Is("iOrigin", 0), plan.Older("tsLastModified", campaign.VisitorPurge)},
		},
		Limit: 20_000,
	}},
}
