package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var subscriptions = plan.Task{
	Name:        "subscriptions",
	Title:       "Deleted subscriptions",
	Description: "Subscriptions to services (NmsSubscription) that are marked as deleted.",
	Steps:       []plan.Step{{On: plan.Table("NmsSubscription"), Rules: plan.Rules{{plan.IsNot("iDeleteStatus", 0)}}}},
}
