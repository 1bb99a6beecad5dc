package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var simulationTables = plan.Task{
	Name:        "simulation-tables",
	Title:       "Work tables of simulations",
	Description: "Work tables (wkSimu_…) of simulations that are gone: dropped.",
	Drops:       []plan.WorkTables{{Prefix: "wksimu_", Owner: "NmsSimulation", Key: "iSimulationId"}},
}
