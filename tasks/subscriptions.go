package tasks

var subscriptions = Task{
	Name:        "subscriptions",
	Title:       "Deleted subscriptions",
	Description: "Subscriptions to services (NmsSubscription) that are marked as deleted.",
	Steps:       []Step{{On: table("NmsSubscription"), Rules: []Rule{{Where: "iDeleteStatus <> 0"}}}},
}
