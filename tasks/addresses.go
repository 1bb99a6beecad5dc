package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// addresses uses codes for which Adobe's page gives only names: status 3 is quarantine, type 41 is iOS, and type 42 is
// Android.
var addresses = rules.Task{
	Name:  "addresses",
	Title: "Quarantined mobile addresses",
	Description: "Quarantined iOS and Android addresses (NmsAddress) not touched for five days more than the delay " +
		"of mobile subscriptions.",
	Steps: []rules.Step{{
		On: rules.Table("NmsAddress"),
		Rules: rules.Rules{
			{
				rules.Is("iStatus", 3), rules.Is("iType", 41, 42),
				rules.Older("tsLastModified", campaign.AppSubscriptionPurge).By(5 * campaign.Day),
			},
		},
	}},
}

// npai is "n'habite pas à l'adresse indiquée". The reference time of this run becomes the lower bound of the next one,
// unless entries were retained.
var npai = rules.Task{
	Name:        "npai",
	Title:       "Addresses found valid",
	Description: "Entries of the quarantine table (NmsAddress) that became valid since the last cleanup.",
	Steps: []rules.Step{{
		On: rules.Table("NmsAddress"),
		Rules: rules.Rules{
			{rules.Is("iStatus", 2), rules.Past("tsLastModified"), rules.Since("tsLastModified", campaign.LastCleanup)},
		},
	}},
	Advances: campaign.LastCleanup,
}
