package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var reactions = plan.Task{
	Name:        "reactions",
	Title:       "Campaign reactions",
	Description: "Matches of response hypotheses (NmsRemaMatchRcp) whose hypothesis is gone.",
	Steps:       []plan.Step{{On: plan.Table("NmsRemaMatchRcp"), Rules: plan.Rules{{noHypothesis}}}},
}

var noHypothesis = plan.Orphan{Column: "iHypothesisId", Parent: "NmsRemaHypothesis", Key: "iRemaHypothesisId"}
