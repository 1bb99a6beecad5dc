package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var importRejects = plan.Task{
	Name:        "import-rejects",
	Title:       "Import rejects",
	Description: "Rejected rows of imports (XtkReject) older than their delay, and those whose job is gone.",
	Steps: []plan.Step{{
		On: plan.Table("XtkReject"),
		Rules: plan.Rules{
			{plan.Older("tsLog", campaign.RejectsPurge)},
			{plan.Orphan{Column: "iJobId", Parent: "XtkJob", Key: "iJobId"}},
		},
	}},
}
