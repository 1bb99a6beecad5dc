package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// The steps of deliveries stop those that are still active, delete all rows that belong to them, and then the
// deliveries themselves. Stopping a delivery does not change tsLastModified, which may be the date that the rule
// compares. In tables that are not named here, a column iDeliveryId has another meaning.
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
		{On: mirrorPageTables, Link: "iDeliveryId", Limit: 20_000, Empties: true},
		{On: plan.Table("XtkJobLog"), Link: "iJobId", Limit: 20_000}, // a delivery is a job
		{
			On: plan.Tables("NmsAttachments", "NmsProviderMsgId", "NmsDeliveryStat",
				"NmsDeliveryLogStats", "NmsTrackingUrl"),
			Link: "iDeliveryId",
		},
		{On: plan.Table("NmsDelivery"), OfParents: true, Records: true},
	},
}

// linkedByMessage reports whether a message's log is the only link from rows of a table to their delivery, as in tables
// of propositions of version 6.
func linkedByMessage(t *campaign.Table) bool { return !t.Has("iDeliveryId") && t.Has("iBroadLogId") }

func linkedByDelivery(t *campaign.Table) bool { return !linkedByMessage(t) }

func ofDelivery(that plan.Part) plan.Linked {
	return plan.Linked{Column: "iDeliveryId", To: "NmsDelivery", Key: "iDeliveryId", That: plan.Rule{that}}
}

// Mass deliveries have expired, or were stopped while many messages were not processed. Mid-sourced deliveries have
// expired long ago, or before the last pull of logs from their active server.
var (
	massDelivery = plan.Rule{plan.Is("iDeleteStatus", 0), plan.Is("iIsModel", 0), plan.Is("iDeliveryMode", 1)}
	stopped      = plan.Rule{plan.Is("iState", 85), recent, unprocessed}
	midSourced   = plan.Rule{plan.Is("iDeliveryMode", 4), plan.Is("iState", 85, 95), recent}
	recent       = plan.Younger("tsLastModified", 15*campaign.Day)

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
		massDelivery.And(stopped...), midSourced.And(plan.Past("tsValidity").By(15 * campaign.Day)),
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
				{plan.IsNot("iDeliveryId", 0), ofDelivery(plan.Is("iState", 85, 95))},
				{plan.Past("tsValidity")},
			},
		},
	},
}
