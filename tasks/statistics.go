package tasks

import "github.com/cleanupd/cleanupd/tasks/plan"

var statistics = plan.Task{
	Name:  plan.StatisticsTask,
	Title: "Statistics and storage",
	Description: "Deletes nothing: vacuums and analyzes the tables after the cleanup, as option XtkCleanup_NoStats " +
		"says. The tasks behind it then do the same with what they empty.",
	Vacuums: true,
}
