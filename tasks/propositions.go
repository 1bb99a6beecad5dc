package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// propositionTables exist when the module Interaction is installed. The pattern does not match backup copies
// (nmspropositionrcp_2024).
var propositionTables = matching("proposition tables", regexp.MustCompile(`^nmsproposition[a-z0-9]*$`), (*campaign.Table).HasPropositions)

var oldPropositions = []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.PropositionPurge}}

var propositions = Task{
	Name:        "propositions",
	Title:       "Offer propositions",
	Description: "Offer propositions older than their delay.",
	Steps: []Step{
		{On: propositionTables, Rules: oldPropositions},
		{On: propositionFamily.included, Rules: oldPropositions},
	},
}
