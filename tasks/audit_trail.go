package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var auditTrail = rules.Task{
	Name:        "audit-trail",
	Title:       "Audit trail",
	Description: "Entries of the audit trail (XtkAudit) older than their delay.",
	Steps: []rules.Step{{
		On:    rules.Table("XtkAudit"),
		Rules: rules.Rules{{rules.Older("tsChanged", campaign.AuditTrailPurge)}},
	}},
}
