package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var sessions = plan.Task{
	Name:        "sessions",
	Title:       "Expired sessions",
	Description: "Sessions (XtkSessionInfo) that have expired.",
	Steps: []plan.Step{
		{On: plan.Table("XtkSessionInfo"), Rules: plan.Rules{{plan.Past("tsExpiration")}}, Empties: true},
	},
}
