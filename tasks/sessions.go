package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var sessions = rules.Task{
	Name:        "sessions",
	Title:       "Expired sessions",
	Description: "Sessions (XtkSessionInfo) that have expired.",
	Steps: []rules.Step{
		{On: rules.Table("XtkSessionInfo"), Rules: rules.Rules{{rules.Past("tsExpiration")}}, Empties: true},
	},
}
