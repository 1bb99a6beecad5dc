package message

const schedules = theme("The schedule")

// These kinds are about the schedule.
var (
	ScheduleNotKept = schedules.warning(
		"SCHEDULE_NOT_KEPT",
		"no run starts by the schedule, since no server runs with --schedule",
		"The schedule is stored in the database. Only servers that were started with `--schedule` start its runs.",
		"Start a server with `cleanupd serve --schedule`.",
	)
	ScheduleRefused = schedules.warning(
		"SCHEDULE_REFUSED",
		"the guard {guard} will refuse scheduled runs: {problem}",
		"Nobody has seen what scheduled runs would delete in this database.",
		"Start a run with `cleanupd run --preview`, or let the next run follow a saved plan.",
	)
)
