package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// propositionTables are there when the module Interaction is installed. The pattern ends where a backup copy
// (nmspropositionrcp_2024) would begin to differ.
var propositionTables = matching("proposition tables", regexp.MustCompile(`^nmsproposition[a-z0-9]*$`), "iPropositionId")

var propositions = Task{
	Name:        "propositions",
	Title:       "Offer propositions",
	Description: "Offer propositions older than their delay.",
	Steps: []Step{{
		On:    propositionTables,
		Rules: []Rule{{Where: "tsLastModified < @cutoff", Option: campaign.PropositionPurge}},
	}},
}
