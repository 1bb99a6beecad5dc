package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Status 3 is quarantine, type 41 is iOS, type 42 is Android: Adobe's page gives only these names.
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
