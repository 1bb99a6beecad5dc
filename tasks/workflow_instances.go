package tasks

import (
	"context"
	"fmt"
)

// The history of a workflow is kept for iHistory days, 0 means forever, and at most for what fits in 32-bit seconds. The
// interval is in hours, since a day in a zone with daylight saving does not always have 24 hours.
const olderThanHistory = "%[1]s < @now - least(w.iHistory, 24855) * interval '24 hours'"

// past is the rule that a row is older than the history of its workflow; more is a further condition on it.
func past(date, more string) Rule {
	return Rule{Where: more + "EXISTS (SELECT FROM {XtkWorkflow} w WHERE w.iWorkflowId = r.iWorkflowId AND w.iWorkflowId <> 0 AND w.iHistory > 0 AND " +
		fmt.Sprintf(olderThanHistory, "r."+date) + ")"}
}

// There are two exceptions, without which installations have lost the data of lists and the histories of incremental queries:
// names with the id of a list, and histories of workflows that are stopped.
var workflowInstances = Task{
	Name:        "workflow-instances",
	Title:       "Workflow history and work tables",
	Description: "Logs, tasks and events of workflows older than their history; work tables of deliveries not in progress, of workflows that are stopped or gone (wkf…), and of histories of workflows that are gone (wkfhisto…): dropped.",
	Steps: []Step{
		{On: table("XtkWorkflowLog"), Rules: []Rule{past("tsLog", "")}},
		{On: table("XtkWorkflowTask"), Rules: []Rule{past("tsCompletion", "r.iStatus <> 0 AND ")}},
		{On: table("XtkWorkflowEvent"), Rules: []Rule{past("tsProcessing", "r.iStatus > 2 AND ")}},
	},
	Needs: []Need{{"NmsDelivery", []string{"SELECT"}}, {"XtkWorkflow", []string{"SELECT"}}, {"NmsGroup", []string{"SELECT"}}},
	Do: func(ctx context.Context, e *Env) (bool, error) {
		return e.dropWorkTables(ctx, ofDeliveries,
			workTables{prefix: "wkf", but: "wkfhisto", owner: "XtkWorkflow", key: "iWorkflowId", inUse: "o.iState <> 20", lists: true},
			workTables{prefix: "wkfhisto", owner: "XtkWorkflow", key: "iWorkflowId", inUse: "true", lists: true})
	},
}
