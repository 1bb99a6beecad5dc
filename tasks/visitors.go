package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// visitors uses the option for its delay. Adobe's page gives both that option and a fixed delay of 30 days.
var visitors = rules.Task{
	Name:        "visitors",
	Title:       "Anonymous visitors",
	Description: "Visitors (NmsVisitor) that are no recipient and were not touched for the length of their delay.",
	Steps: []rules.Step{{
		On: rules.Table("NmsVisitor"),
		Rules: rules.Rules{
			{rules.Is("iRecipientId", 0), rules.Is("iOrigin", 0), rules.Older("tsLastModified", campaign.VisitorPurge)},
		},
		Limit: 20_000,
	}},
}
