package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var importRejects = rules.Task{
	Name:        "import-rejects",
	Title:       "Import rejects",
	Description: "Rejected rows of imports (XtkReject) older than their delay, and those whose job is gone.",
	Steps: []rules.Step{{
		On: rules.Table("XtkReject"),
		Rules: rules.Rules{
			{rules.Older("tsLog", campaign.RejectsPurge)},
			{rules.Orphan{Column: "iJobId", Parent: "XtkJob", Key: "iJobId"}},
		},
	}},
}
