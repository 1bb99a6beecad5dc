package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var statistics = rules.Task{
	Name:  rules.StatisticsTask,
	Title: "Statistics and storage",
	Description: "Deletes nothing: vacuums and analyzes the tables after the cleanup, as option XtkCleanup_NoStats " +
		"says. The tasks behind it then do the same with what they empty.",
	Vacuums: true,
}
