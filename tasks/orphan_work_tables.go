package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var orphanWorkTables = plan.Task{
	Name:        "orphan-work-tables",
	Title:       "Tables of lists that are gone",
	Description: "Tables of lists (grp…) whose list is gone, or is none that has a table: dropped.",
	Drops: []plan.WorkTables{
		{Prefix: "grp", Bare: true, Owner: "NmsGroup", Key: "iGroupId", InUse: plan.Rule{hasTable}},
	},
}

// hasTable is true of lists that have a table.
var hasTable = plan.Above("iType", 0)
