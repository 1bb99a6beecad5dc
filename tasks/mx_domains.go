package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var mxDomains = plan.Task{
	Name:        "mx-domains",
	Title:       "Mail exchangers' domains",
	Description: "Domains (NmsMxDomain) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []plan.Step{{On: plan.Table("NmsMxDomain"), Rules: plan.Rules{{noStats}}}},
}
