package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

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
