package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// propositionTables selects tables that exist if the module Interaction is installed. The pattern does not match
// backup copies such as nmspropositionrcp_2024.
var propositionTables = rules.Matching("proposition tables", regexp.MustCompile(`^nmsproposition[a-z0-9]*$`),
	(*campaign.Table).HasPropositions)

var propositionFamily = rules.Family{
	Select:    propositionTables,
	Matches:   (*campaign.Table).HasPropositions,
	Noun:      "a table of propositions",
	Criterion: "it does not have the name of one",
	Column:    "tsLastModified",
}

var propositions = rules.Task{
	Name:        "propositions",
	Title:       "Offer propositions",
	Description: "Offer propositions older than their delay.",
	Steps: []rules.Step{{
		On:    propositionFamily.Tables,
		Rules: rules.Rules{{rules.Older(propositionFamily.Column, campaign.PropositionPurge)}},
	}},
}
