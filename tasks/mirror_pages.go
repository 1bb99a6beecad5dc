package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var mirrorPageTables = rules.Tables("NmsMirrorPageInfo", "NmsMirrorPageSearch")

// mirrorPages marks a delivery as purged even if the entry of the job log cannot be written, which is reported.
var mirrorPages = rules.Task{
	Name:        "mirror-pages",
	Title:       "Mirror pages",
	Description: "Mirror pages (NmsMirrorPageInfo, NmsMirrorPageSearch) of deliveries whose web validity is over.",
	ParentRule: &rules.ParentRule{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: rules.Rules{
		{rules.Is("iWebResPurged", 0), rules.Past("tsWebValidity"), rules.IsKnown("iNeedMirrorPage")},
	}},
	Steps: []rules.Step{
		{
			On: mirrorPageTables, Link: "iDeliveryId", Empties: true,
			Rules: rules.Rules{{ofDelivery(rules.IsNot("iNeedMirrorPage", 0))}},
		},
		{
			On: rules.Table("NmsDelivery"), OfParents: true,
			Update: []rules.Assignment{{Column: "iWebResPurged", Value: rules.Number(1)}},
			Entry:  &rules.Entry{Job: "iDeliveryId", If: "iNeedMirrorPage", Message: "Mirror pages purged"},
		},
	},
}
