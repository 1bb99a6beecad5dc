package tasks

import "context"

var orphanWorkTables = Task{
	Name:        "orphan-work-tables",
	Title:       "Tables of lists that are gone",
	Description: "Tables of lists (grp…) whose list is gone, or is none that has a table: dropped.",
	Do: func(ctx context.Context, e *Env) (bool, error) {
		return e.dropWorkTables(ctx, workTables{prefix: "grp", bare: true, owner: "NmsGroup", key: "iGroupId", inUse: "o.iType > 0"})
	},
}
