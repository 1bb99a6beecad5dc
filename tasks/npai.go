package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// npai, "n'habite pas à l'adresse indiquée": addresses that became valid since the last cleanup. The lower bound for
// the next run advances, unless entries had to be left.
var npai = plan.Task{
	Name:        "npai",
	Title:       "Addresses found valid",
	Description: "Entries of the quarantine table (NmsAddress) that became valid since the last cleanup.",
	Steps: []plan.Step{{
		On: plan.Table("NmsAddress"),
		Rules: plan.Rules{
			{plan.Is("iStatus", 2), plan.Past("tsLastModified"), plan.Since("tsLastModified", campaign.LastCleanup)},
		},
	}},
	Advances: campaign.LastCleanup,
}
