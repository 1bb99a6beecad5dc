package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

// NmsWebTrackingLog has no date and shares its id with a tracking log: its row is deleted with that log or not at all.
var trackingLogs = Task{
	Name:        "tracking-logs",
	Title:       "Tracking logs",
	Description: "Tracking logs older than their delay, with the web tracking logs that belong to them, and tracking statistics (NmsTrackingStats) older than theirs.",
	Steps: []Step{
		{
			On:    trackingLogTables,
			Rules: []Rule{{Where: "tsLog < @cutoff", Option: campaign.TrackingLogPurge}},
			Twin:  &Twin{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
		},
		{
			On:    table("NmsTrackingStats"),
			Rules: []Rule{{Where: "tsStart < @cutoff", Option: campaign.TrackingStatPurge}},
		},
	},
}
