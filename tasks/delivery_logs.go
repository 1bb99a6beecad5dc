package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var oldDeliveryLogs = plan.Rules{{plan.Older("tsLastModified", campaign.BroadLogPurge)}}

// A log is retained if the task deliveries retained its delivery in this run, and a coupon or proposition is linked to
// the delivery only by this log: the next run must find that row.
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
