package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var auditTrail = plan.Task{
	Name:        "audit-trail",
	Title:       "Audit trail",
	Description: "Entries of the audit trail (XtkAudit) older than their delay.",
	Steps: []plan.Step{{
		On:    plan.Table("XtkAudit"),
		Rules: plan.Rules{{plan.Older("tsChanged", campaign.AuditTrailPurge)}},
	}},
}
