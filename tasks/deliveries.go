package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// The steps stop deliveries that are still active, delete all rows that belong to the deliveries, and then the
// deliveries. Stopping one does not change tsLastModified, which may be the date that the rule compares. In tables that
// are not named here, a column iDeliveryId has another meaning.
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
		{On: plan.Only(propositionTables, linkedByMessage), Message: "iBroadLogId", Limit: 20_000},
		{On: plan.Table("NmsDlvExclusion"), Link: "iDeliveryId"},
		{On: plan.DeliveryAndExclusionLogs, Link: "iDeliveryId", Limit: 20_000},
		{On: plan.Only(propositionTables, linkedByDelivery), Link: "iDeliveryId", Limit: 20_000},
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
				"NmsAttachments", "NmsProviderMsgId", "NmsDeliveryStat", "NmsDeliveryLogStats", "NmsTrackingUrl",
			),
			Link: "iDeliveryId",
		},
		{On: plan.Table("NmsDelivery"), OfParents: true, Records: true},
	},
}

// linkedByMessage reports whether a message's log is the only link from rows of a table to their delivery, as in tables
// of propositions of version 6.
func linkedByMessage(t *campaign.Table) bool { return !t.Has("iDeliveryId") && t.Has("iBroadLogId") }

func linkedByDelivery(t *campaign.Table) bool { return !linkedByMessage(t) }
