package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// pastHistory is true for rows that are older than the history of their workflow. That has iHistory days, limited
// to what fits into 32 bits of seconds; 0 retains it forever. The interval is in hours because a day does not
// always have 24 hours in a zone with daylight saving time.
func pastHistory(date string) plan.Part {
	return plan.SQL{
		Text: "EXISTS (SELECT FROM {w} WHERE w.iWorkflowId = r.iWorkflowId AND w.iWorkflowId <> 0 AND w.iHistory > 0 " +
			"AND r." + date +
			" < {now} - least(w.iHistory, 24855) * interval '24 hours')",
		Due: "(SELECT " + plan.ClampDate("r."+date) + " + least(w.iHistory, 24855) * interval '24 hours' FROM {w} WHERE " +
			"w.iWorkflowId = r.iWorkflowId AND " +
			"w.iWorkflowId <> 0 AND w.iHistory > 0)",
		Reads: []plan.Source{
			{Alias: "w", Table: "XtkWorkflow", Columns: []string{"iWorkflowId", "iHistory"}},
			{Columns: []string{"iWorkflowId", date}},
		},
		Date:  date,
		Words: date + " older than the history of its workflow (XtkWorkflow.iHistory days)",
	}
}

// workflowInstances does not drop tables with the id of an existing list in their names, and histories of stopped
// workflows, because installations have lost data of lists and histories of incremental queries.
var workflowInstances = plan.Task{
	Name:  "workflow-instances",
	Title: "Workflow history and work tables",
	Description: "Logs, tasks and events of workflows older than their history; work tables of deliveries not in " +
		"progress, of workflows that are stopped or gone (wkf…), and of histories of workflows that are gone " +
		"(wkfhisto…): dropped.",
	Steps: []plan.Step{
		{On: plan.Table("XtkWorkflowLog"), Rules: plan.Rules{{pastHistory("tsLog")}}},
		{On: plan.Table("XtkWorkflowTask"), Rules: plan.Rules{{plan.IsNot("iStatus", 0), pastHistory("tsCompletion")}}},
		{
			On:    plan.Table("XtkWorkflowEvent"),
			Rules: plan.Rules{{plan.Above("iStatus", 2), pastHistory("tsProcessing")}},
		},
	},
	Drops: []plan.WorkTables{
		ofDeliveries,
		{
			Prefix: "wkf",
			Except: "wkfhisto",
			Owner:  "XtkWorkflow",
			Key:    "iWorkflowId",
			InUse:  plan.Rule{plan.IsNot("iState", 20)},
			Lists:  true,
		},
		{Prefix: "wkfhisto", Owner: "XtkWorkflow", Key: "iWorkflowId", Lists: true},
	},
}

var workflowLogins = plan.Task{
	Name:        "workflow-logins",
	Title:       "Workflow logins",
	Description: "Logins of workflows (XtkWorkflowLogin) whose workflow is gone.",
	Steps: []plan.Step{{
		On:    plan.Table("XtkWorkflowLogin"),
		Rules: plan.Rules{{plan.Orphan{Column: "iWorkflowId", Parent: "XtkWorkflow", Key: "iWorkflowId"}}},
	}},
}
