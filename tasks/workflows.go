package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// pastHistory is true for rows that are older than the history of their workflow: iHistory days, at most what fits into
// 32 bits of seconds; 0 means forever. The interval is in hours because a day does not always have 24 hours in a zone
// with daylight saving time.
func pastHistory(date string) rules.Part {
	return rules.SQL{
		Text: "EXISTS (SELECT FROM {w} WHERE w.iWorkflowId = r.iWorkflowId AND w.iWorkflowId <> 0 AND w.iHistory > 0 " +
			"AND r." + date +
			" < {now} - least(w.iHistory, 24855) * interval '24 hours')",
		Due: "(SELECT " + rules.ClampDate("r."+date) + " + least(w.iHistory, 24855) * interval '24 hours' FROM {w} WHERE " +
			"w.iWorkflowId = r.iWorkflowId AND " +
			"w.iWorkflowId <> 0 AND w.iHistory > 0)",
		Reads: []rules.Source{
			{Alias: "w", Table: "XtkWorkflow", Columns: []string{"iWorkflowId", "iHistory"}},
			{Columns: []string{"iWorkflowId", date}},
		},
		Date:  date,
		Words: date + " older than the history of its workflow (XtkWorkflow.iHistory days)",
	}
}

// workflowInstances does not drop tables whose names have the id of an existing list, nor histories of stopped
// workflows: installations have lost data of lists, and histories of incremental queries, that way.
var workflowInstances = rules.Task{
	Name:  "workflow-instances",
	Title: "Workflow history and work tables",
	Description: "Logs, tasks and events of workflows older than their history; work tables of deliveries not in " +
		"progress, of workflows that are stopped or gone (wkf…), and of histories of workflows that are gone " +
		"(wkfhisto…): dropped.",
	Steps: []rules.Step{
		{On: rules.Table("XtkWorkflowLog"), Rules: rules.Rules{{pastHistory("tsLog")}}},
		{On: rules.Table("XtkWorkflowTask"), Rules: rules.Rules{{rules.IsNot("iStatus", 0), pastHistory("tsCompletion")}}},
		{
			On:    rules.Table("XtkWorkflowEvent"),
			Rules: rules.Rules{{rules.Above("iStatus", 2), pastHistory("tsProcessing")}},
		},
	},
	Drops: []rules.WorkTables{
		ofDeliveries,
		{
			Prefix: "wkf",
			Except: "wkfhisto",
			Owner:  "XtkWorkflow",
			Key:    "iWorkflowId",
			InUse:  rules.Rule{rules.IsNot("iState", 20)},
			Lists:  true,
		},
		{Prefix: "wkfhisto", Owner: "XtkWorkflow", Key: "iWorkflowId", Lists: true},
	},
}

var workflowLogins = rules.Task{
	Name:        "workflow-logins",
	Title:       "Workflow logins",
	Description: "Logins of workflows (XtkWorkflowLogin) whose workflow is gone.",
	Steps: []rules.Step{{
		On:    rules.Table("XtkWorkflowLogin"),
		Rules: rules.Rules{{rules.Orphan{Column: "iWorkflowId", Parent: "XtkWorkflow", Key: "iWorkflowId"}}},
	}},
}
