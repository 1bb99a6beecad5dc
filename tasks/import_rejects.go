package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

var importRejects = Task{
	Name:        "import-rejects",
	Title:       "Import rejects",
	Description: "Rejected rows of imports (XtkReject) older than their delay, and those whose job is gone.",
	Steps: []Step{{
		On: table("XtkReject"),
		Rules: []Rule{
			{Where: "tsLog < @cutoff", Option: campaign.RejectsPurge},
			{Orphan: &Link{Column: "iJobId", Parent: "XtkJob", Key: "iJobId"}},
		},
	}},
}
