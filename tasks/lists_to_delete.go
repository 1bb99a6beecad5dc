package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var listsToDelete = rules.Task{
	Name:  "lists-to-delete",
	Title: "Expired and deleted lists",
	Description: "Lists (NmsGroup) that have expired or are marked as deleted, with their members, what else is " +
		"linked to them, and their tables (grp…): dropped.",
	ParentRule: &rules.ParentRule{Parent: "NmsGroup", Key: "iGroupId", Rules: rules.Rules{
		{rules.IsNot("iDeleteStatus", 0)},
		{rules.Reached("tsExpirationDate")},
	}},
	Steps: []rules.Step{
		{On: rules.LinkedToLists, Link: "iGroupId"},
		{On: rules.Table("NmsGroup"), OfParents: true, Tables: &rules.OwnTables{Prefix: "grp", If: hasTable}},
	},
}
