package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Quarantine is 3, iOS 41, Android 42: Adobe's page gives the names, not the numbers.
var addresses = plan.Task{
	Name:  "addresses",
	Title: "Quarantined mobile addresses",
	Description: "Quarantined iOS and Android addresses (NmsAddress) not touched for five days more than the delay " +
		"of mobile subscriptions.",
	Steps: []plan.Step{{
		On: plan.Table("NmsAddress"),
		Rules: plan.Rules{
			{
				plan.Is("iStatus", 3),
				plan.Is("iType", 41, 42),
				plan.Older("tsLastModified", campaign.AppSubscriptionPurge).By(5 * campaign.Day),
			},
		},
	}},
}
