package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// deliveries stops the deliveries that are still active, deletes the rows that belong to them, and then deletes the
// deliveries. Stopping a delivery does not change tsLastModified, which may be the date that the rule compares. In
// tables that are not named here, a column iDeliveryId has another meaning.
var deliveries = rules.Task{
	Name:  "deliveries",
	Title: "Deleted deliveries",
	Description: "Deliveries marked as deleted or recycled for longer than their delay, with all that the published " +
		"rules name, on their mid-sourcing servers first. Seed members, relations to assets and simulations, " +
		"snapshots, validation logs and volumes stay.",
	ParentRule: &rules.ParentRule{Parent: "NmsDelivery", Key: "iDeliveryId", MidSourced: true, Rules: rules.Rules{
		{rules.IsNot("iDeleteStatus", 0), rules.Older("tsDelete", campaign.RecycledDeliveryPurge).Or("tsLastModified")},
	}},
	Steps: []rules.Step{
		{
			On: rules.Table("NmsDelivery"), OfParents: true,
			Rules:  rules.Rules{{rules.Is("iState", 51, 55, 61, 62, 71, 72, 75)}},
			Update: []rules.Assignment{{Column: "iState", Value: rules.Number(85)}},
		},
		{On: rules.Table("NmsCouponValue"), Message: "iMessageId", ByKey: "iMessageId"}, // before the logs
		{On: rules.Only(propositionTables, linkedByMessage), Message: "iBroadLogId", Limit: 20_000},
		{On: rules.Table("NmsDlvExclusion"), Link: "iDeliveryId"},
		{On: rules.DeliveryAndExclusionLogs, Link: "iDeliveryId", Limit: 20_000},
		{On: rules.Only(propositionTables, linkedByDelivery), Link: "iDeliveryId", Limit: 20_000},
		{On: rules.TrackingLogs, Link: "iDeliveryId", Limit: 20_000},
		{On: rules.Tables("NmsWebTrackingLog", "NmsTrackingStats"), Link: "iDeliveryId", Limit: 20_000},
		{On: rules.Table("NmsDeliveryPart"), Link: "iDeliveryId", Limit: 500_000, Empties: true},
		{On: mirrorPageTables, Link: "iDeliveryId", Limit: 20_000, Empties: true},
		{On: rules.Table("XtkJobLog"), Link: "iJobId", Limit: 20_000}, // a delivery is a job
		{
			On: rules.Tables("NmsAttachments", "NmsProviderMsgId", "NmsDeliveryStat",
				"NmsDeliveryLogStats", "NmsTrackingUrl"),
			Link: "iDeliveryId",
		},
		{On: rules.Table("NmsDelivery"), OfParents: true, Records: true},
	},
}

// linkedByMessage reports whether a message's log is the only link from rows of a table to their delivery, as in tables
// of propositions of version 6.
func linkedByMessage(t *campaign.Table) bool { return !t.Has("iDeliveryId") && t.Has("iBroadLogId") }

func linkedByDelivery(t *campaign.Table) bool { return !linkedByMessage(t) }

func ofDelivery(that rules.Part) rules.Linked {
	return rules.Linked{Column: "iDeliveryId", To: "NmsDelivery", Key: "iDeliveryId", That: rules.Rule{that}}
}

// Mass deliveries match if they have expired, or were stopped with many messages unprocessed. Mid-sourced deliveries
// match if they expired long ago, or before the last pull of logs from their active server.
var (
	massDelivery = rules.Rule{rules.Is("iDeleteStatus", 0), rules.Is("iIsModel", 0), rules.Is("iDeliveryMode", 1)}
	stopped      = rules.Rule{rules.Is("iState", 85), recent, unprocessed}
	midSourced   = rules.Rule{rules.Is("iDeliveryMode", 4), rules.Is("iState", 85, 95), recent}
	recent       = rules.Younger("tsLastModified", 15*campaign.Day)

	unprocessed = rules.SQL{
		Text:  "r.iToDeliver::bigint - r.iProcessed >= 10000",
		Reads: []rules.Source{{Columns: []string{"iToDeliver", "iProcessed"}}},
		Words: "10,000 messages or more (iToDeliver less iProcessed) are not processed",
	}
	expiredAtPull = rules.SQL{
		Text: "EXISTS (SELECT FROM {a} JOIN {o} ON o.sName = 'NmsMidSourcing_LastBroadLog_' || a.sName WHERE " +
			"a.iExtAccountId = r.iDeliveryProviderId AND a.iExtAccountId <> 0 AND a.iActive <> 0 AND r.tsValidity < " +
			"o.tsTimeStampValue)",
		Reads: []rules.Source{
			{Alias: "a", Table: "NmsExtAccount", Columns: []string{"iExtAccountId", "sName", "iActive"}},
			{Alias: "o", Table: "XtkOption", Columns: []string{"sName", "tsTimeStampValue"}},
			{Columns: []string{"iDeliveryProviderId", "tsValidity"}},
		},
		Words: "tsValidity before the last pull of logs from its active server (NmsMidSourcing_LastBroadLog_…)",
	}
)

var expiredDeliveries = rules.Task{
	Name:  "expired-deliveries",
	Title: "Expired deliveries",
	Description: "Deletes only parts of deliveries (NmsDeliveryPart); the pending logs of deliveries whose validity " +
		"is over are cancelled, and these deliveries end.",
	ParentRule: &rules.ParentRule{Parent: "NmsDelivery", Key: "iDeliveryId", Rules: rules.Rules{
		massDelivery.And(rules.AtLeast("iState", 51), rules.Below("iState", 85), rules.Past("tsValidity")),
		massDelivery.And(stopped...), midSourced.And(rules.Past("tsValidity").By(15 * campaign.Day)),
		midSourced.And(expiredAtPull),
	}},
	Steps: []rules.Step{
		{
			On: rules.DeliveryLogs, Link: "iDeliveryId", Limit: 10_000,
			Rules: rules.Rules{{rules.Is("iStatus", 6)}},
			Update: []rules.Assignment{
				{Column: "iStatus", Value: rules.Number(7)},
				{Column: "tsLastModified", Value: rules.Clock{}},
				{Column: "iMsgId", Value: rules.Message("Delivery cancelled")},
			},
		},
		{
			On: rules.Table("NmsDelivery"), OfParents: true,
			Rules: rules.Rules{{rules.IsNot("iState", 95)}}, // an ended delivery would match again in each run
			Update: []rules.Assignment{
				{Column: "iState", Value: rules.Number(95)},
				{Column: "tsLastModified", Value: rules.Clock{}},
				{Column: "tsBroadEnd", Value: rules.Clock{Unless: "tsValidity"}},
			},
		},
		{
			On: rules.Table("NmsDeliveryPart"), Empties: true,
			Rules: rules.Rules{
				{rules.IsNot("iDeliveryId", 0), ofDelivery(rules.Is("iState", 85, 95))},
				{rules.Past("tsValidity")},
			},
		},
	},
}
