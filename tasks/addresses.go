package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

// Quarantine is 3, iOS 41, Android 42: Adobe's page gives the names, not the numbers.
var addresses = Task{
	Name:        "addresses",
	Title:       "Quarantined mobile addresses",
	Description: "Quarantined iOS and Android addresses (NmsAddress) not touched for five days more than the delay of mobile subscriptions.",
	Steps: []Step{{
		On: table("NmsAddress"),
		Rules: []Rule{{
			Where:  "iStatus = 3 AND iType IN (41, 42) AND tsLastModified < @cutoff",
			Option: campaign.AppSubscriptionPurge,
			Extra:  5 * campaign.Day,
		}},
	}},
}
