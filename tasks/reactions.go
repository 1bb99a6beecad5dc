package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var reactions = rules.Task{
	Name:        "reactions",
	Title:       "Campaign reactions",
	Description: "Matches of response hypotheses (NmsRemaMatchRcp) whose hypothesis is gone.",
	Steps:       []rules.Step{{On: rules.Table("NmsRemaMatchRcp"), Rules: rules.Rules{{noHypothesis}}}},
}

var noHypothesis = rules.Orphan{Column: "iHypothesisId", Parent: "NmsRemaHypothesis", Key: "iRemaHypothesisId"}
