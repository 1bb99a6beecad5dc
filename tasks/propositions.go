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

var propositionFamily = plan.Family{
	Select:    propositionTables,
	Matches:   (*campaign.Table).HasPropositions,
	Noun:      "a table of propositions",
	Criterion: "it does not have the name of one",
	Column:    "tsLastModified",
}

var propositions = plan.Task{
	Name:        "propositions",
	Title:       "Offer propositions",
	Description: "Offer propositions older than their delay.",
	Steps: []plan.Step{{
		On:    propositionFamily.Tables,
		Rules: plan.Rules{{plan.Older(propositionFamily.Column, campaign.PropositionPurge)}},
	}},
}
