package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// visitors uses the option for its delay. Adobe's page gives both that option and a fixed delay of 30 days.
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
