package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var deliveryLogFamily = rules.Family{
	Select:    rules.DeliveryAndExclusionLogs,
	Matches:   (*campaign.Table).IsDeliveryLog,
	Noun:      "a delivery or exclusion log",
	Criterion: "no delivery mapping names it",
	Column:    "tsLastModified",
}

// deliveryLogs retains a log if the task deliveries retained its delivery in this run, and a coupon or proposition is
// linked to the delivery only by this log: the next run needs it to find that row.
var deliveryLogs = rules.Task{
	Name:  "delivery-logs",
	Title: "Delivery logs",
	Description: "Delivery and exclusion logs, and the message ids of providers (NmsProviderMsgId), older than the " +
		"delay of delivery logs.",
	Steps: []rules.Step{
		{
			On:       deliveryLogFamily.Tables,
			Rules:    rules.Rules{{rules.Older(deliveryLogFamily.Column, campaign.BroadLogPurge)}},
			NeededBy: &deliveries,
		},
		{On: rules.Table("NmsProviderMsgId"), Rules: rules.Rules{{rules.Older("tsCreated", campaign.BroadLogPurge)}}},
	},
}

var trackingLogFamily = rules.Family{
	Select:    rules.TrackingLogs,
	Matches:   (*campaign.Table).IsTrackingLog,
	Noun:      "a tracking log",
	Criterion: "no delivery mapping names it",
	Column:    "tsLog",
}

// trackingLogs deletes each row of NmsWebTrackingLog with the tracking log of the same id, because that table has
// no date.
var trackingLogs = rules.Task{
	Name:  "tracking-logs",
	Title: "Tracking logs",
	Description: "Tracking logs older than their delay, with the web tracking logs that belong to them, and tracking " +
		"statistics (NmsTrackingStats) older than theirs.",
	Steps: []rules.Step{
		{
			On:     trackingLogFamily.Tables,
			Rules:  rules.Rules{{rules.Older(trackingLogFamily.Column, campaign.TrackingLogPurge)}},
			Paired: &rules.Paired{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
		},
		{On: rules.Table("NmsTrackingStats"), Rules: rules.Rules{{rules.Older("tsStart", campaign.TrackingStatPurge)}}},
	},
}
