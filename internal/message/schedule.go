package message

const schedules = theme("The schedule")

var (
	ScheduleNotKept = schedules.warning(
		"SCHEDULE_NOT_KEPT",
		"scheduled runs do not start: no server runs with --schedule",
		"The schedule is stored in the database. Only servers started with `--schedule` start its runs.",
		"Start a server with `cleanupd serve --schedule`.",
	)
	ScheduleRefused = schedules.warning(
		"SCHEDULE_REFUSED",
		"the guard {guard} will refuse scheduled runs: {problem}",
		"What scheduled runs would delete in this database has never been reviewed.",
		"Start a run with `cleanupd run --preview`, or have the next run follow a saved plan.",
	)
)
