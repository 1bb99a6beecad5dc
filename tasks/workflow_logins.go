package tasks

var workflowLogins = Task{
	Name:        "workflow-logins",
	Title:       "Workflow logins",
	Description: "Logins of workflows (XtkWorkflowLogin) whose workflow is gone.",
	Steps: []Step{{
		On:    table("XtkWorkflowLogin"),
		Rules: []Rule{{Orphan: &Link{Column: "iWorkflowId", Parent: "XtkWorkflow", Key: "iWorkflowId"}}},
	}},
}
