package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var mirrorPageTables = plan.Tables("NmsMirrorPageInfo", "NmsMirrorPageSearch")

// mirrorPages marks a delivery as purged even if the entry of the job log cannot be written, which is reported.
var mirrorPages = plan.Task{
	Name:        "mirror-pages",
	Title:       "Mirror pages",
	Description: "Mirror pages (NmsMirrorPageInfo, NmsMirrorPageSearch) of deliveries whose web validity is over.",
	ParentSet: &plan.ParentSet{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: plan.Rules{
		{plan.Is("iWebResPurged", 0), plan.Past("tsWebValidity"), plan.IsKnown("iNeedMirrorPage")},
	}},
	Steps: []plan.Step{
		{
			On: mirrorPageTables, Link: "iDeliveryId", Empties: true,
			Rules: plan.Rules{{ofDelivery(plan.IsNot("iNeedMirrorPage", 0))}},
		},
		{
			On: plan.Table("NmsDelivery"), OfParents: true,
			Update: []plan.Assignment{{Column: "iWebResPurged", Value: plan.Number(1)}},
			Entry:  &plan.Entry{Job: "iDeliveryId", If: "iNeedMirrorPage", Message: "Mirror pages purged"},
		},
	},
}
