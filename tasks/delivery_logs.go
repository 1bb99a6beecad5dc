package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

var oldDeliveryLogs = []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.BroadLogPurge}}

var deliveryLogs = Task{
	Name:        "delivery-logs",
	Title:       "Delivery logs",
	Description: "Delivery and exclusion logs, and the message ids of providers (NmsProviderMsgId), older than the delay of delivery logs.",
	Steps: []Step{
		{On: deliveryAndExclusionLogs, Rules: oldDeliveryLogs},
		{On: deliveryLogFamily.included, Rules: oldDeliveryLogs},
		{
			On:    table("NmsProviderMsgId"),
			Rules: []Rule{{Where: "tsCreated < @cutoff", Option: campaign.BroadLogPurge}},
		},
	},
}
