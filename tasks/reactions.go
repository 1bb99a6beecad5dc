package tasks

var reactions = Task{
	Name:        "reactions",
	Title:       "Campaign reactions",
	Description: "Matches of response hypotheses (NmsRemaMatchRcp) whose hypothesis is gone.",
	Steps: []Step{{
		On:    table("NmsRemaMatchRcp"),
		Rules: []Rule{{Orphan: &Link{Column: "iHypothesisId", Parent: "NmsRemaHypothesis", Key: "iRemaHypothesisId"}}},
	}},
}
