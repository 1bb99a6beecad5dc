package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var emailErrors = plan.Task{
	Name:        "email-errors",
	Title:       "E-mail errors",
	Description: "Last error replies (NmsEmailError) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []plan.Step{{On: plan.Table("NmsEmailError"), Rules: plan.Rules{{noStats}}}},
}

// noStats is true of rows whose mail exchanger has no statistics. An empty table of statistics is trusted once the task
// email-error-stats has rolled it up.
var noStats = plan.Orphan{Column: "iMXIP", Parent: "NmsEmailErrorStat", Key: "iMXIP", EmptyAfter: "email-error-stats"}
