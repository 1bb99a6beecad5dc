package tasks

import "github.com/cleanupd/cleanupd/tasks/campaign"

var auditTrail = Task{
	Name:        "audit-trail",
	Title:       "Audit trail",
	Description: "Entries of the audit trail (XtkAudit) older than their delay.",
	Steps: []Step{{
		On:    table("XtkAudit"),
		Rules: []Rule{{Where: "tsChanged < @cutoff", Option: campaign.AuditTrailPurge}},
	}},
}
