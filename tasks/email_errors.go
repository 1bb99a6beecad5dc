package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var emailErrors = plan.Task{
	Name:        "email-errors",
	Title:       "E-mail errors",
	Description: "Last error replies (NmsEmailError) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []plan.Step{{On: plan.Table("NmsEmailError"), Rules: plan.Rules{{exchanger}}}},
}

// exchanger is the link to a mail exchanger's statistics. An empty table of them is trusted once the task
// email-error-stats has coalesced them.
var exchanger = plan.Orphan{Column: "iMXIP", Parent: "NmsEmailErrorStat", Key: "iMXIP", EmptyAfter: "email-error-stats"}
