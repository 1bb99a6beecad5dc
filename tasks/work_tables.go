package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var deliveryWorkTables = rules.Task{
	Name:        "work-tables",
	Title:       "Work tables of deliveries",
	Description: "Work tables (wkDlv_…) of deliveries that are not in progress: dropped.",
	Drops:       []rules.WorkTables{ofDeliveries},
}

var ofDeliveries = rules.WorkTables{
	Prefix: "wkdlv_", Owner: "NmsDelivery", Key: "iDeliveryId",
	InUse: rules.Rule{rules.Is("iDeleteStatus", 0), rules.IsNot("iState", 0, 85, 100)},
}

var orphanWorkTables = rules.Task{
	Name:        "orphan-work-tables",
	Title:       "Tables of lists that are gone",
	Description: "Tables of lists (grp…) whose list is gone, or is none that has a table: dropped.",
	Drops: []rules.WorkTables{
		{Prefix: "grp", Bare: true, Owner: "NmsGroup", Key: "iGroupId", InUse: rules.Rule{hasTable}},
	},
}

var hasTable = rules.Above("iType", 0)

var simulationTables = rules.Task{
	Name:        "simulation-tables",
	Title:       "Work tables of simulations",
	Description: "Work tables (wkSimu_…) of simulations that are gone: dropped.",
	Drops:       []rules.WorkTables{{Prefix: "wksimu_", Owner: "NmsSimulation", Key: "iSimulationId"}},
}
