package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var deliveryLogFamily = plan.Family{
	Select:    plan.DeliveryAndExclusionLogs,
	Matches:   (*campaign.Table).IsDeliveryLog,
	Noun:      "a delivery or exclusion log",
	Criterion: "no delivery mapping names it",
	Column:    "tsLastModified",
}

// deliveryLogs retains a log if the task deliveries retained its delivery in this run, and a coupon or proposition
// is linked to the delivery only by this log, because the next run must find that row.
var deliveryLogs = plan.Task{
	Name:  "delivery-logs",
	Title: "Delivery logs",
	Description: "Delivery and exclusion logs, and the message ids of providers (NmsProviderMsgId), older than the " +
		"delay of delivery logs.",
	Steps: []plan.Step{
		{
			On:       deliveryLogFamily.Tables,
			Rules:    plan.Rules{{plan.Older(deliveryLogFamily.Column, campaign.BroadLogPurge)}},
			NeededBy: &deliveries,
		},
		{On: plan.Table("NmsProviderMsgId"), Rules: plan.Rules{{plan.Older("tsCreated", campaign.BroadLogPurge)}}},
	},
}

var trackingLogFamily = plan.Family{
	Select:    plan.TrackingLogs,
	Matches:   (*campaign.Table).IsTrackingLog,
	Noun:      "a tracking log",
	Criterion: "no delivery mapping names it",
	Column:    "tsLog",
}

// trackingLogs deletes each row of NmsWebTrackingLog with the tracking log of the same id, because that table has
// no date.
var trackingLogs = plan.Task{
	Name:  "tracking-logs",
	Title: "Tracking logs",
	Description: "Tracking logs older than their delay, with the web tracking logs that belong to them, and tracking " +
		"statistics (NmsTrackingStats) older than theirs.",
	Steps: []plan.Step{
		{
			On:     trackingLogFamily.Tables,
			Rules:  plan.Rules{{plan.Older(trackingLogFamily.Column, campaign.TrackingLogPurge)}},
			Paired: &plan.Paired{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
		},
		{On: plan.Table("NmsTrackingStats"), Rules: plan.Rules{{plan.Older("tsStart", campaign.TrackingStatPurge)}}},
	},
}
