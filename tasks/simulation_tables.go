package tasks

import "context"

var simulationTables = Task{
	Name:        "simulation-tables",
	Title:       "Work tables of simulations",
	Description: "Work tables (wkSimu_…) of simulations that are gone: dropped.",
	Do: func(ctx context.Context, e *Env) (bool, error) {
		return e.dropWorkTables(ctx, workTables{prefix: "wksimu_", owner: "NmsSimulation", key: "iSimulationId", inUse: "true"})
	},
}
