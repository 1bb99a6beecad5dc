package message

const runs = theme("The run")

var (
	RunResumed = runs.warning(
		"RUN_RESUMED",
		"{reason}; replica {replica} continues after the last committed batch (attempts without progress: {attempts} of at "+
			"most {limit})",
		"The replica that executed the run, or its connection to the database, failed. Nothing is lost or done twice.",
		"Usually none. If it recurs, fix the reported reason.",
	)
	RunReleased = runs.warning(
		"RUN_RELEASED",
		"replica {replica} released the run: {reason}",
		"The replica had to stop; it or another one will continue.",
		"Usually none. If it recurs, fix the reported reason.",
	)
	RunPaused = runs.info(
		"RUN_PAUSED",
		"paused by {caller}",
		"An operator paused the run, or no window of its schedule is open (schedule).",
		"`cleanupd runs resume` continues it; a pause by the schedule ends when a window opens.",
	)
	RunAwaitsWindow = runs.info(
		"RUN_AWAITS_WINDOW",
		"paused until the schedule's window opens at {time}",
		"No window of the schedule is open.",
		"`cleanupd runs resume` continues the run earlier. A run that you start yourself works meanwhile.",
	)
	RunOvertaken = runs.info(
		"RUN_OVERTAKEN",
		"continues in its window after run {run}, which {caller} started by hand",
		"A run was started by hand while this one waited for a window of the schedule.",
		"None needed.",
	)
	CommitsNotMeasured = runs.warning(
		"COMMITS_NOT_MEASURED",
		"cannot measure how long commits take; the pace GENTLE uses fixed pauses instead: {error}",
		"The pace GENTLE calls pg_logical_emit_message to measure a small commit.",
		"GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text) to the role.",
	)
	RunContinued = runs.info(
		"RUN_CONTINUED",
		"resumed by {caller}",
		"An operator ended the pause of the run, or a window of its schedule has opened (schedule).",
		"None needed.",
	)
	PaceChanged = runs.info(
		"PACE_CHANGED",
		"{caller} changed the pace to {pace}",
		"An operator changed the pace of the run, or a window of its schedule has opened (schedule).",
		"None needed. `cleanupd runs pace` changes it.",
	)
	StoredHidden = runs.warning(
		"STORED_HIDDEN",
		"the role cannot read schema cleanupd: stored policies, holds and guards are ignored",
		"A preview without a server reads what the service has stored in the database, if its role can.",
		"Connect as the role of the service, or GRANT USAGE ON SCHEMA cleanupd and SELECT ON ALL TABLES IN SCHEMA cleanupd.",
	)
	SchemaPublished = runs.warning(
		"SCHEMA_PUBLISHED",
		"the tables of the schema cleanupd are published by {publications}: a subscriber without them stops replicating",
		"A publication FOR ALL TABLES, or of the schema, includes the service's own tables.",
		"Create the tables at each subscriber (`cleanupd schema | psql SUBSCRIBER`), or publish only the application's "+
			"schema.",
	)
	ApplicationCleanupStarted = runs.warning(
		"APPLICATION_CLEANUP_STARTED",
		"the application's own cleanup workflow is also running; stop it",
		"The technical workflow Database cleanup of Adobe Campaign is started, so two services clean one database.",
		"Stop the workflow in the application.",
	)
	GuardWouldRefuse = runs.warning(
		"GUARD_WOULD_REFUSE",
		"the guard {guard} would refuse a run: {problem}",
		"The dry run shows numbers anyway, but a run would change nothing.",
		"See [the guards](guards.md): correct the cause, or set the guard.",
	)
	UndoWouldRefuse = runs.warning(
		"UNDO_WOULD_REFUSE",
		"a run with undo would be refused: {problem}",
		"The dry run shows numbers anyway. A run would change none of these rows, because the trash cannot keep them, or "+
			"has no room for them.",
		"Fix the reported problem. The size that the trash would need is an estimate.",
	)
	IdlenessUnknown = runs.warning(
		"IDLENESS_UNKNOWN",
		"could not tell from {table} whether the application is idle: {error}",
		"The guard idle compares the newest date of several tables with the clock, and could not read one of them.",
		"Fix the reported error.",
	)
	TimeZoneUnknown = runs.warning(
		"TIME_ZONE_UNKNOWN",
		"could not determine the zone of dates without a time zone: option {option} {problem}; rows that are obsolete in "+
			"only some zones are retained; set the option to an IANA name, such as Europe/Paris, or delete its row if the "+
			"dates are in the database's zone, {zone}",
		"Dates without a time zone are in the application's zone.",
		"Set the option to an IANA name, or delete its row if the dates are in the database's zone.",
	)
	SchemasNotCleaned = runs.warning(
		"SCHEMAS_NOT_CLEANED",
		"only schema {schema} is cleaned; Campaign's tables in {others} are not: to clean another schema, run a second "+
			"service with a role that has USAGE on it and lists it first in search_path",
		"Several schemas of the database have tables of Adobe Campaign.",
		"Run another service with a role for the other schema, if that is an installation of its own.",
	)
	OptionUnusable = runs.warning(
		"OPTION_UNUSABLE",
		"{table} is not cleaned: {error}",
		"An option of the application has a value that is not safe to use.",
		"Correct the option with `cleanupd options set` or in the application.",
	)
	StatisticsOptionUnusable = runs.warning(
		"STATISTICS_OPTION_UNUSABLE",
		"skipping VACUUM: {error}",
		"The option XtkCleanup_NoStats has an unknown value, or cannot be read.",
		"Set it to 0, 1 or 2.",
	)
	LastCleanupUnknown = runs.warning(
		"LAST_CLEANUP_UNKNOWN",
		"skipped {table}: cannot tell when the last cleanup ran: {problem}",
		"The table XtkOption stores the time of the last cleanup.",
		"Restore the table, or make all its rows visible to the role.",
	)
	TaskRemoved = runs.warning(
		"TASK_REMOVED",
		"{task} was deleted during the run; the rest of the task was skipped",
		"A policy, or a purge of process instances, was deleted after the run had been requested. Batches committed before "+
			"are counted.",
		"None if this was intended. `cleanupd audit` shows who deleted it.",
	)
	TaskDisabled = runs.warning(
		"TASK_DISABLED",
		"{task} was disabled during the run; the rest of the task was skipped",
		"A policy, or a purge of process instances, was disabled after the run had been requested. Batches committed "+
			"before are counted.",
		"None if this was intended. `cleanupd audit` shows who disabled it.",
	)
	PolicyChanged = runs.warning(
		"POLICY_CHANGED",
		"the rule of {task} was changed during the run; the rest of the task was skipped",
		"A policy was given another rule after the run had been requested. The run follows neither: the new rule has to be "+
			"previewed first. Batches committed before are counted.",
		"Preview the policy, and have the next run follow the preview. `cleanupd audit` shows who changed it.",
	)
)

const load = theme("Batches and the server's load")

var (
	BatchHalved = load.warning(
		"BATCH_HALVED",
		"{table}: batch hit the statement timeout; batch size reduced to {rows} {rows|row|rows}",
		"The batch was slow, for example because of a trigger or a missing index.",
		"If it recurs, see `UNINDEXED_FOREIGN_KEY` and the triggers of the table.",
	)
	BatchRetried = load.warning(
		"BATCH_RETRIED",
		"{object}: {error}; retrying, at most {attempts} attempts",
		"A deadlock, a serialization failure or a lock that was not free in time. The batch was rolled back.",
		"None unless the task fails in the end.",
	)
	BatchesWait = load.warning(
		"BATCHES_WAIT",
		"batches have waited for {duration}: {cause}; {remedy}",
		"The server's load exceeds a limit, so the run makes no progress.",
		"Reduce the load, or set the limit as in the message.",
	)
	StandbyDelayed = load.warning(
		"STANDBY_DELAYED",
		"the standby {standby} lags by {lag} because of recovery_min_apply_delay: batches do not wait for that delay "+
			"(--lag-ignore {standby} would ignore it from the start)",
		"The standby is configured to apply changes late.",
		"Serve with `--lag-ignore` and the name of the standby.",
	)
	StandbyStuck = load.warning(
		"STANDBY_STUCK",
		"the standby {standby} lags by {lag} and replays nothing: batches do not wait for it until it replays again",
		"The standby has received the WAL. Its replay is paused, waits for a query there, or is delayed on purpose "+
			"(recovery_min_apply_delay) while little happens.",
		"If replay is not paused (`SELECT pg_is_wal_replay_paused()`), look for a long query on the standby.",
	)
	ReplicaLagHidden = load.warning(
		"REPLICA_LAG_HIDDEN",
		"the role cannot see standby lag, so batches do not wait for it; to make them wait: GRANT pg_monitor",
		"The server has standbys, and the role lacks the right to see their lag.",
		"`GRANT pg_monitor TO` the role, or serve with `--max-replica-lag=0`.",
	)
	WALRetained = load.warning(
		"WAL_RETAINED",
		"{cause}: the server cannot remove {size} of WAL, and deleting rows adds more; {remedy}",
		"A replication slot without a reader, or an archiver that fails or has no command, prevents the server from "+
			"removing WAL. The disk may fill.",
		"Find out why the slot's reader, described in the message, does not read, or repair the archiver.",
	)
)

const vacuum = theme("VACUUM and the size of tables")

var (
	VacuumLocked = vacuum.warning(
		"VACUUM_LOCKED",
		"{table} is locked by another session and was not vacuumed",
		"VACUUM and ANALYZE do not wait for locks.",
		"None: autovacuum or the next run vacuums it.",
	)
	VacuumFailed = vacuum.warning(
		"VACUUM_FAILED",
		"{table}: VACUUM or ANALYZE failed: {error}",
		"The server reported an error, such as one in an index expression.",
		"Fix the reported error.",
	)
	VacuumUnavailable = vacuum.warning(
		"VACUUM_UNAVAILABLE",
		"no connection is free for VACUUM; autovacuum has to do it: {error}",
		"The server, or a pooler in front of it, grants no more connections.",
		"Raise `max_connections`, or the limit of the role or of the pooler.",
	)
	TableMostlyFree = vacuum.warning(
		"TABLE_MOSTLY_FREE",
		"{free} of the {size} of {table} are free for new rows; to return them to the disk, run pg_repack, or VACUUM FULL "+
			"in a quiet hour (it blocks all access to the table)",
		"The run deleted most rows of a large table. PostgreSQL keeps the space for new rows.",
		"None unless the disk needs the space: then pg_repack or VACUUM FULL.",
	)
	SizesUnknown = vacuum.warning(
		"SIZES_UNKNOWN",
		"the sizes of the tables could not be determined: {error}",
		"The result of the task has no table sizes, for example because a table was locked.",
		"Usually none.",
	)
)
