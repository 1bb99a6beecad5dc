package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var subscriptions = rules.Task{
	Name:        "subscriptions",
	Title:       "Deleted subscriptions",
	Description: "Subscriptions to services (NmsSubscription) that are marked as deleted.",
	Steps:       []rules.Step{{On: rules.Table("NmsSubscription"), Rules: rules.Rules{{rules.IsNot("iDeleteStatus", 0)}}}},
}

var appSubscriptionFamily = rules.Family{
	Select: rules.Matching("mobile subscription tables", regexp.MustCompile(`^nmsappsubscription[a-z0-9]*$`),
		(*campaign.Table).HasAppSubscriptions),
	Matches:   (*campaign.Table).HasAppSubscriptions,
	Noun:      "a table of mobile subscriptions",
	Criterion: "it does not have the name of one",
	Column:    "tsLastModified",
}

// appSubscriptions deletes only obsolete rows. Adobe's pages say that the tables linked to appSubscription are
// deleted, but these also have active subscriptions.
var appSubscriptions = rules.Task{
	Name:  "app-subscriptions",
	Title: "Mobile subscriptions",
	Description: "Mobile subscriptions whose service or application is gone, and disabled ones not touched for the " +
		"length of their delay.",
	Steps: []rules.Step{{
		On: appSubscriptionFamily.Tables,
		Rules: rules.Rules{
			{rules.Orphan{Column: "iServiceId", Parent: "NmsService", Key: "iServiceId"}},
			{rules.Orphan{Column: "iMobileAppId", Parent: "NmsMobileApp", Key: "iMobileAppId"}},
			{rules.Is("iDisabled", 1), rules.Older(appSubscriptionFamily.Column, campaign.AppSubscriptionPurge)},
		},
	}},
}
