package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var subscriptions = plan.Task{
	Name:        "subscriptions",
	Title:       "Deleted subscriptions",
	Description: "Subscriptions to services (NmsSubscription) that are marked as deleted.",
	Steps:       []plan.Step{{On: plan.Table("NmsSubscription"), Rules: plan.Rules{{plan.IsNot("iDeleteStatus", 0)}}}},
}

var appSubscriptionFamily = plan.Family{
	Select: plan.Matching("mobile subscription tables", regexp.MustCompile(`^nmsappsubscription[a-z0-9]*$`),
		(*campaign.Table).HasAppSubscriptions),
	Matches:   (*campaign.Table).HasAppSubscriptions,
	Noun:      "a table of mobile subscriptions",
	Criterion: "it does not have the name of one",
	Column:    "tsLastModified",
}

// appSubscriptions deletes only obsolete rows. Adobe's pages say that the tables linked to appSubscription are
// deleted, but these also have active subscriptions.
var appSubscriptions = plan.Task{
	Name:  "app-subscriptions",
	Title: "Mobile subscriptions",
	Description: "Mobile subscriptions whose service or application is gone, and disabled ones not touched for the " +
		"length of their delay.",
	Steps: []plan.Step{{
		On: appSubscriptionFamily.Tables,
		Rules: plan.Rules{
			{plan.Orphan{Column: "iServiceId", Parent: "NmsService", Key: "iServiceId"}},
			{plan.Orphan{Column: "iMobileAppId", Parent: "NmsMobileApp", Key: "iMobileAppId"}},
			{plan.Is("iDisabled", 1), plan.Older(appSubscriptionFamily.Column, campaign.AppSubscriptionPurge)},
		},
	}},
}
