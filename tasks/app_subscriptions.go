package tasks

import (
	"regexp"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

var appSubscriptionTables = matching("mobile subscription tables", regexp.MustCompile(`^nmsappsubscription[a-z0-9]*$`), (*campaign.Table).HasAppSubscriptions)

var obsoleteAppSubscriptions = []Rule{
	{Orphan: &Link{Column: "iServiceId", Parent: "NmsService", Key: "iServiceId"}},
	{Orphan: &Link{Column: "iMobileAppId", Parent: "NmsMobileApp", Key: "iMobileAppId"}},
	{Where: "iDisabled = 1 AND tsLastModified < @cutoff", Option: campaign.AppSubscriptionPurge},
}

// Adobe's pages say that the tables linked to appSubscription are deleted; they hold live subscriptions, too, so only
// their obsolete rows are.
var appSubscriptions = Task{
	Name:        "app-subscriptions",
	Title:       "Mobile subscriptions",
	Description: "Mobile subscriptions whose service or application is gone, and disabled ones not touched for the length of their delay.",
	Steps: []Step{
		{On: appSubscriptionTables, Rules: obsoleteAppSubscriptions},
		{On: appSubscriptionFamily.included, Rules: obsoleteAppSubscriptions},
	},
}
