package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var oldTrackingLogs = plan.Rules{{plan.Older("tsLog", campaign.TrackingLogPurge)}}

// NmsWebTrackingLog has no date and shares its id with a tracking log: its row is deleted with that log or not at all.
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
		// without these: their ids may be others', as in archives
		{On: trackingLogFamily.Included, Rules: oldTrackingLogs},
		{
			On:    plan.Table("NmsTrackingStats"),
			Rules: plan.Rules{{plan.Older("tsStart", campaign.TrackingStatPurge)}},
		},
	},
}
