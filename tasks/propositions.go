package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// propositionTables selects tables that exist if the module Interaction is installed. The pattern does not match
// backup copies such as nmspropositionrcp_2024.
var propositionTables = plan.Matching("proposition tables", regexp.MustCompile(`^nmsproposition[a-z0-9]*$`),
	(*campaign.Table).HasPropositions)

var oldPropositions = plan.Rules{{plan.Older("tsLastModified", campaign.PropositionPurge)}}

var propositions = plan.Task{
	Name:        "propositions",
	Title:       "Offer propositions",
	Description: "Offer propositions older than their delay.",
	Steps: []plan.Step{
		{On: propositionTables, Rules: oldPropositions},
		{On: propositionFamily.Included, Rules: oldPropositions},
	},
}
