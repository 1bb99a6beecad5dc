package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// npai stands for "n'habite pas à l'adresse indiquée". The lower bound of the next run is this run's reference time,
// unless entries were retained.
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
