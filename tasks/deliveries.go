package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Its steps delete everything that belongs to a delivery, and the delivery last. Other tables with an iDeliveryId are
// left alone: there it means something else. Active deliveries are stopped first; tsLastModified is left alone then,
// since the delete date may be read from it.
var deliveries = plan.Task{
	Name:  "deliveries",
	Title: "Deleted deliveries",
	Description: "Deliveries marked as deleted or recycled for longer than their delay, with all that the published " +
		"rules name, on their mid-sourcing servers first. Seed members, relations to assets and simulations, " +
		"snapshots, validation logs and volumes stay.",
	ParentSet: &plan.ParentSet{Parent: "NmsDelivery", Key: "iDeliveryId", MidSourced: true, Rules: plan.Rules{
		{plan.IsNot("iDeleteStatus", 0), plan.Older("tsDelete", campaign.RecycledDeliveryPurge).Or("tsLastModified")},
	}},
	Steps: []plan.Step{
		{
			On: plan.Table("NmsDelivery"), OfParents: true,
			Rules:  plan.Rules{{plan.Is("iState", 51, 55, 61, 62, 71, 72, 75)}},
			Update: []plan.Assignment{{Column: "iState", Value: plan.Number(85)}},
		},
		{On: plan.Table("NmsCouponValue"), Message: "iMessageId", ByKey: "iMessageId"}, // before the logs
		{On: plan.Only(propositionTables, knowMessage), Message: "iBroadLogId", Limit: 20_000},
		{On: plan.Table("NmsDlvExclusion"), Link: "iDeliveryId"},
		{On: plan.DeliveryAndExclusionLogs, Link: "iDeliveryId", Limit: 20_000},
		{On: plan.Only(propositionTables, knowDelivery), Link: "iDeliveryId", Limit: 20_000},
		{On: plan.TrackingLogs, Link: "iDeliveryId", Limit: 20_000},
		{On: plan.Tables("NmsWebTrackingLog", "NmsTrackingStats"), Link: "iDeliveryId", Limit: 20_000},
		{On: plan.Table("NmsDeliveryPart"), Link: "iDeliveryId", Limit: 500_000, Empties: true},
		{
			On:      plan.Tables("NmsMirrorPageInfo", "NmsMirrorPageSearch"),
			Link:    "iDeliveryId",
			Limit:   20_000,
			Empties: true,
		},
		{On: plan.Table("XtkJobLog"), Link: "iJobId", Limit: 20_000}, // a delivery is a job
		{
			On: plan.Tables(
				"NmsAttachments",
				"NmsProviderMsgId",
				"NmsDeliveryStat",
				"NmsDeliveryLogStats",
				"NmsTrackingUrl",
			),
			Link: "iDeliveryId",
		},
		{On: plan.Table("NmsDelivery"), OfParents: true, Records: true},
	},
}

// knowMessage reports whether the rows of a table know their delivery only by the log of a message: so do propositions
// in version 6.
func knowMessage(t *campaign.Table) bool { return !t.Has("iDeliveryId") && t.Has("iBroadLogId") }

func knowDelivery(t *campaign.Table) bool { return !knowMessage(t) }
