package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var oldDeliveryLogs = plan.Rules{{plan.Older("tsLastModified", campaign.BroadLogPurge)}}

// deliveryLogs retains a log if the task deliveries retained its delivery in this run, and a coupon or proposition
// is linked to the delivery only by this log, because the next run must find that row.
var deliveryLogs = plan.Task{
	Name:  "delivery-logs",
	Title: "Delivery logs",
	Description: "Delivery and exclusion logs, and the message ids of providers (NmsProviderMsgId), older than the " +
		"delay of delivery logs.",
	Steps: []plan.Step{
		{On: plan.DeliveryAndExclusionLogs, Rules: oldDeliveryLogs, NeededBy: &deliveries},
		{On: deliveryLogFamily.Included, Rules: oldDeliveryLogs},
		{On: plan.Table("NmsProviderMsgId"), Rules: plan.Rules{{plan.Older("tsCreated", campaign.BroadLogPurge)}}},
	},
}

var oldTrackingLogs = plan.Rules{{plan.Older("tsLog", campaign.TrackingLogPurge)}}

// trackingLogs deletes each row of NmsWebTrackingLog with the tracking log of the same id, because that table has
// no date.
var trackingLogs = plan.Task{
	Name:  "tracking-logs",
	Title: "Tracking logs",
	Description: "Tracking logs older than their delay, with the web tracking logs that belong to them, and tracking " +
		"statistics (NmsTrackingStats) older than theirs.",
	Steps: []plan.Step{
		{
			On:     plan.TrackingLogs,
			Rules:  oldTrackingLogs,
			Paired: &plan.Paired{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
		},
		// not paired: rows with the same ids may belong to other logs, as in archives
		{On: trackingLogFamily.Included, Rules: oldTrackingLogs},
		{On: plan.Table("NmsTrackingStats"), Rules: plan.Rules{{plan.Older("tsStart", campaign.TrackingStatPurge)}}},
	},
}
