package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var workflowLogins = plan.Task{
	Name:        "workflow-logins",
	Title:       "Workflow logins",
	Description: "Logins of workflows (XtkWorkflowLogin) whose workflow is gone.",
	Steps: []plan.Step{{
		On:    plan.Table("XtkWorkflowLogin"),
		Rules: plan.Rules{{plan.Orphan{Column: "iWorkflowId", Parent: "XtkWorkflow", Key: "iWorkflowId"}}},
	}},
}
