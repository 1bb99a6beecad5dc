package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Mass deliveries have expired, or were stopped while many messages were not processed. Mid-sourced deliveries have
// expired long ago, or before the last pull of logs from their active server.
var (
	massDelivery = plan.Rule{plan.Is("iDeleteStatus", 0), plan.Is("iIsModel", 0), plan.Is("iDeliveryMode", 1)}
	stopped      = plan.Rule{plan.Is("iState", 85), plan.Younger("tsLastModified", 15*campaign.Day), unprocessed}
	midSourced   = plan.Rule{
		plan.Is("iDeliveryMode", 4),
		plan.Is("iState", 85, 95),
		plan.Younger("tsLastModified", 15*campaign.Day),
	}

	unprocessed = plan.SQL{
		Text:  "r.iToDeliver::bigint - r.iProcessed >= 10000",
		Reads: []plan.Source{{Columns: []string{"iToDeliver", "iProcessed"}}},
		Words: "10,000 messages or more (iToDeliver less iProcessed) are not processed",
	}
	expiredAtPull = plan.SQL{
		Text: "EXISTS (SELECT FROM {a} JOIN {o} ON o.sName = 'NmsMidSourcing_LastBroadLog_' || a.sName WHERE " +
			"a.iExtAccountId = r.iDeliveryProviderId AND a.iExtAccountId <> 0 AND a.iActive <> 0 AND r.tsValidity < " +
			"o.tsTimeStampValue)",
		Reads: []plan.Source{
			{Alias: "a", Table: "NmsExtAccount", Columns: []string{"iExtAccountId", "sName", "iActive"}},
			{Alias: "o", Table: "XtkOption", Columns: []string{"sName", "tsTimeStampValue"}},
			{Columns: []string{"iDeliveryProviderId", "tsValidity"}},
		},
		Words: "tsValidity before the last pull of logs from its active server (NmsMidSourcing_LastBroadLog_…)",
	}
)

var expiredDeliveries = plan.Task{
	Name:  "expired-deliveries",
	Title: "Expired deliveries",
	Description: "Deletes only parts of deliveries (NmsDeliveryPart); the pending logs of deliveries whose validity " +
		"is over are cancelled, and these deliveries end.",
	ParentSet: &plan.ParentSet{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: plan.Rules{
		massDelivery.And(plan.AtLeast("iState", 51), plan.Below("iState", 85), plan.Past("tsValidity")),
		massDelivery.And(stopped...),
		midSourced.And(plan.Past("tsValidity").By(15 * campaign.Day)),
		midSourced.And(expiredAtPull),
	}},
	Steps: []plan.Step{
		{
			On: plan.DeliveryLogs, Link: "iDeliveryId", Limit: 10_000,
			Rules: plan.Rules{{plan.Is("iStatus", 6)}},
			Update: []plan.Assignment{
				{Column: "iStatus", Value: plan.Number(7)},
				{Column: "tsLastModified", Value: plan.Clock{}},
				{Column: "iMsgId", Value: plan.Message("Delivery cancelled")},
			},
		},
		{
			On: plan.Table("NmsDelivery"), OfParents: true,
			Rules: plan.Rules{{plan.IsNot("iState", 95)}}, // an ended delivery would match again in each run
			Update: []plan.Assignment{
				{Column: "iState", Value: plan.Number(95)},
				{Column: "tsLastModified", Value: plan.Clock{}},
				{Column: "tsBroadEnd", Value: plan.Clock{Unless: "tsValidity"}},
			},
		},
		{
			On: plan.Table("NmsDeliveryPart"), Empties: true,
			Rules: plan.Rules{
				{
					plan.IsNot("iDeliveryId", 0),
					plan.Linked{
						Column: "iDeliveryId",
						To:     "NmsDelivery",
						Key:    "iDeliveryId",
						That:   plan.Rule{plan.Is("iState", 85, 95)},
					},
				},
				{plan.Past("tsValidity")},
			},
		},
	},
}
