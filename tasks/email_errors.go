package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var emailErrors = rules.Task{
	Name:        "email-errors",
	Title:       "E-mail errors",
	Description: "Last error replies (NmsEmailError) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []rules.Step{{On: rules.Table("NmsEmailError"), Rules: rules.Rules{{noStats}}}},
}

// noStats is true for rows whose mail exchanger has no statistics. An empty table of statistics is trusted once the
// task email-error-stats has rolled it up.
var noStats = rules.Orphan{Column: "iMXIP", Parent: "NmsEmailErrorStat", Key: "iMXIP", EmptyAfter: "email-error-stats"}

var emailErrorStats = rules.Task{
	Name:  "email-error-stats",
	Title: "E-mail error statistics",
	Description: "Statistics of e-mail errors (NmsEmailErrorStat) since the last time: replaced by one row a mail " +
		"exchanger and sender, and none where there were fewer than 20 errors.",
	RollUp: &rules.RollUp{
		Table: "NmsEmailErrorStat",
		By:    []string{"iMXIP", "iPublicId"},
		Date:  "tsDate",
		Sums: []string{
			"iTotalErrors", "iTotalConnections", "iMessageErrors", "iAbortedConnections", "iFailedConnections",
			"iRefusedConnections", "iTimeoutConnections",
		},
		Total: "iTotalErrors",
		Least: 20,
		Since: campaign.LastErrorStatCoalesce,
	},
}

var mxDomains = rules.Task{
	Name:        "mx-domains",
	Title:       "Mail exchangers' domains",
	Description: "Domains (NmsMxDomain) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []rules.Step{{On: rules.Table("NmsMxDomain"), Rules: rules.Rules{{noStats}}}},
}
