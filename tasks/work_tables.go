package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/plan"
)

var deliveryWorkTables = plan.Task{
	Name:        "work-tables",
	Title:       "Work tables of deliveries",
	Description: "Work tables (wkDlv_…) of deliveries that are not in progress: dropped.",
	Drops:       []plan.WorkTables{ofDeliveries},
}

var ofDeliveries = plan.WorkTables{
	Prefix: "wkdlv_", Owner: "NmsDelivery", Key: "iDeliveryId",
	InUse: plan.Rule{plan.Is("iDeleteStatus", 0), plan.IsNot("iState", 0, 85, 100)},
}

var orphanWorkTables = plan.Task{
	Name:        "orphan-work-tables",
	Title:       "Tables of lists that are gone",
	Description: "Tables of lists (grp…) whose list is gone, or is none that has a table: dropped.",
	Drops: []plan.WorkTables{
		{Prefix: "grp", Bare: true, Owner: "NmsGroup", Key: "iGroupId", InUse: plan.Rule{hasTable}},
	},
}

var hasTable = plan.Above("iType", 0)

var simulationTables = plan.Task{
	Name:        "simulation-tables",
	Title:       "Work tables of simulations",
	Description: "Work tables (wkSimu_…) of simulations that are gone: dropped.",
	Drops:       []plan.WorkTables{{Prefix: "wksimu_", Owner: "NmsSimulation", Key: "iSimulationId"}},
}
