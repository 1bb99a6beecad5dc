package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var emailErrorStats = plan.Task{
	Name:  "email-error-stats",
	Title: "E-mail error statistics",
	Description: "Statistics of e-mail errors (NmsEmailErrorStat) since the last time: replaced by one row a mail " +
		"exchanger and sender, and none where there were fewer than 20 errors.",
	RollUp: &plan.RollUp{
		Table: "NmsEmailErrorStat",
		By:    []string{"iMXIP", "iPublicId"},
		Date:  "tsDate",
		Sums: []string{
			"iTotalErrors",
			"iTotalConnections",
			"iMessageErrors",
			"iAbortedConnections",
			"iFailedConnections",
			"iRefusedConnections",
			"iTimeoutConnections",
		},
		Total: "iTotalErrors",
		Least: 20,
		Since: campaign.LastErrorStatCoalesce,
	},
}
