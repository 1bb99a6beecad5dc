package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

var oldTrackingLogs = []Rule{{Where: "tsLog < @cutoff", Option: campaign.TrackingLogPurge}}

// NmsWebTrackingLog has no date and shares its id with a tracking log: its row is deleted with that log or not at all.
var trackingLogs = Task{
	Name:        "tracking-logs",
	Title:       "Tracking logs",
	Description: "Tracking logs older than their delay, with the web tracking logs that belong to them, and tracking statistics (NmsTrackingStats) older than theirs.",
	Steps: []Step{
		{
			On:    trackingLogTables,
			Rules: oldTrackingLogs,
			Twin:  &Twin{Table: "NmsWebTrackingLog", Key: "iWebTrackingLogId", ID: "iTrackingLogId"},
		},
		{On: trackingLogFamily.included, Rules: oldTrackingLogs}, // without a twin: their ids may be others', as in archives
		{
			On:    table("NmsTrackingStats"),
			Rules: []Rule{{Where: "tsStart < @cutoff", Option: campaign.TrackingStatPurge}},
		},
	},
}
