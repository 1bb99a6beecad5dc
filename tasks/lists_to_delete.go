package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var listsToDelete = plan.Task{
	Name:  "lists-to-delete",
	Title: "Expired and deleted lists",
	Description: "Lists (NmsGroup) that have expired or are marked as deleted, with their members, what else is " +
		"linked to them, and their tables (grp…): dropped.",
	ParentSet: &plan.ParentSet{Parent: "NmsGroup", Key: "iGroupId", Rules: plan.Rules{
		{plan.IsNot("iDeleteStatus", 0)},
		{plan.Reached("tsExpirationDate")},
	}},
	Steps: []plan.Step{
		{On: plan.LinkedToLists, Link: "iGroupId"},
		{On: plan.Table("NmsGroup"), OfParents: true, Tables: &plan.OwnTables{Prefix: "grp", If: hasTable}},
	},
}
