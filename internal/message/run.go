package message

const runs = theme("The run")

// These kinds are about a run and its environment.
var (
	RunResumed = runs.warning(
		"RUN_RESUMED",
		"{reason}; replica {replica} continues after the last committed batch (attempts without progress: {attempts} "+
			"of at most {limit})",
		"The replica that executed the run, or its connection to the database, failed. Nothing is lost or done "+
			"twice.",
		"Usually nothing. If it recurs, correct what the reason names.",
	)
	RunReleased = runs.warning(
		"RUN_RELEASED",
		"replica {replica} released the run: {reason}",
		"The replica could not go on, so that another one, or itself later, continues.",
		"Usually nothing. If it recurs, correct what the reason names.",
	)
	RunPaused = runs.info(
		"RUN_PAUSED",
		"paused by {caller}",
		"An operator paused the run, or no window of its schedule is open (schedule).",
		"`cleanupd runs resume` lets it continue; a pause by the schedule ends when a window opens.",
	)
	RunAwaitsWindow = runs.info(
		"RUN_AWAITS_WINDOW",
		"paused by the schedule until its window opens at {time}",
		"No window of the schedule is open.",
		"`cleanupd runs resume` lets the run continue before. A run that you start yourself works meanwhile.",
	)
	RunOvertaken = runs.info(
		"RUN_OVERTAKEN",
		"continues in its window, and after run {run}, which {caller} started by hand",
		"A run was started by hand while this one waited for a window of the schedule.",
		"Nothing.",
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
		"Nothing.",
	)
	PaceChanged = runs.info(
		"PACE_CHANGED",
		"the pace is {pace} from now on, set by {caller}",
		"An operator changed the pace of the run, or a window of its schedule has opened (schedule).",
		"Nothing. `cleanupd runs pace` changes it.",
	)
	StoredHidden = runs.warning(
		"STORED_HIDDEN",
		"the role may not read the schema cleanupd: stored policies, holds and guards do not take part",
		"A preview without a server reads what the service has stored in the database, if its role may.",
		"Connect as the role of the service, or GRANT USAGE ON SCHEMA cleanupd and SELECT ON ALL TABLES IN SCHEMA cleanupd.",
	)
	SchemaPublished = runs.warning(
		"SCHEMA_PUBLISHED",
		"the tables of the schema cleanupd are published by {publications}: a subscriber that lacks them stops",
		"A publication FOR ALL TABLES, or one of the schema, has the service's own tables.",
		"Create the tables at each subscriber (`cleanupd schema | psql SUBSCRIBER`), or publish the application's tables by "+
			"their schema.",
	)
	ApplicationCleanupStarted = runs.warning(
		"APPLICATION_CLEANUP_STARTED",
		"the application's own workflow cleanup is started, too: stop it, or two services clean one database",
		"The technical workflow Database cleanup of Adobe Campaign is started.",
		"Stop the workflow in the application.",
	)
	GuardWouldRefuse = runs.warning(
		"GUARD_WOULD_REFUSE",
		"the guard {guard} would refuse a run: {problem}",
		"A dry run shows numbers all the same, but a run would change nothing.",
		"See [the guards](guards.md): correct the cause, or set the guard.",
	)
	UndoWouldRefuse = runs.warning(
		"UNDO_WOULD_REFUSE",
		"with undo, a run would refuse this: {problem}",
		"A dry run with undo shows numbers all the same. A run would change nothing of it, because the trash cannot keep "+
			"what it deletes, or has no room for it.",
		"Do what the problem says. What the trash would need is an estimate.",
	)
	IdlenessUnknown = runs.warning(
		"IDLENESS_UNKNOWN",
		"it is not known from {table} whether the application is idle: {error}",
		"The guard idle compares the newest date of several tables with the clock, and could not read one of them.",
		"Correct what the error names.",
	)
	TimeZoneUnknown = runs.warning(
		"TIME_ZONE_UNKNOWN",
		"the zone of dates without a time zone is not known: option {option} {problem}; rows that are obsolete in "+
			"only some zones are retained; set the option to an IANA name, such as Europe/Paris, or delete its row "+
			"if the dates are in the database's zone, {zone}",
		"Dates without a time zone have a meaning only with the zone of the application.",
		"Set the option to an IANA name, or delete its row if the dates are in the database's zone.",
	)
	SchemasNotCleaned = runs.warning(
		"SCHEMAS_NOT_CLEANED",
		"schema {schema} is cleaned; tables of Campaign in {others} are not: to clean those, run a service whose "+
			"role may use that schema, and has it first in its search_path",
		"Several schemas of the database have tables of Adobe Campaign.",
		"Run another service with a role for the other schema, if that is an installation of its own.",
	)
	OptionUnusable = runs.warning(
		"OPTION_UNUSABLE",
		"{table} is not cleaned: {error}",
		"An option of the application has a value that is not safe to use.",
		"Correct the option: `cleanupd options set`, or in the application.",
	)
	StatisticsOptionUnusable = runs.warning(
		"STATISTICS_OPTION_UNUSABLE",
		"no table is vacuumed: {error}",
		"The option XtkCleanup_NoStats has a value that is not known, or cannot be read.",
		"Set it to 0, 1 or 2.",
	)
	LastCleanupUnknown = runs.warning(
		"LAST_CLEANUP_UNKNOWN",
		"it is not known when the last cleanup was, because {problem}; {table} is not cleaned",
		"The table XtkOption keeps when the last cleanup was.",
		"Restore the table, or let the role see all rows of it.",
	)
	TaskRemoved = runs.warning(
		"TASK_REMOVED",
		"{task} was removed during the run: the rest of it is skipped",
		"A policy, or a purge of process instances, was deleted after the run had been requested. Batches that were "+
			"committed before are counted.",
		"Nothing, or ask who removed it: `cleanupd audit` says who did.",
	)
	TaskDisabled = runs.warning(
		"TASK_DISABLED",
		"{task} was disabled during the run: the rest of it is skipped",
		"A policy, or a purge of process instances, was disabled after the run had been requested. Batches that were "+
			"committed before are counted.",
		"Nothing, or ask who disabled it: `cleanupd audit` says who did.",
	)
	PolicyChanged = runs.warning(
		"POLICY_CHANGED",
		"the rule of {task} was changed during the run: the rest of it is skipped",
		"A policy was given another rule after the run had been requested. The run continues by neither: the new rule "+
			"has to "+
			"be previewed first. Batches that were committed before are counted.",
		"Preview the policy, and let the next run follow that. `cleanupd audit` says who changed it.",
	)
)

const load = theme("Batches and the server's load")

// These kinds are about batches and the load of the server.
var (
	BatchHalved = load.warning(
		"BATCH_HALVED",
		"{table}: a batch took too long; the next ones have at most {rows} {rows|row|rows}",
		"A batch ran into the statement timeout, for example because of a slow trigger or a missing index.",
		"If it recurs, see `UNINDEXED_FOREIGN_KEY`, and the triggers of the table.",
	)
	BatchRetried = load.warning(
		"BATCH_RETRIED",
		"{object}: {error}; it will be tried at most {attempts} times",
		"A deadlock, a serialization failure or a lock that was not free in time. The batch was rolled back.",
		"Nothing, unless the task fails in the end.",
	)
	BatchesWait = load.warning(
		"BATCHES_WAIT",
		"batches have waited for {duration}: {cause}; {remedy}",
		"The load of the server exceeds a limit, so that the run makes no progress.",
		"Remove the load, or set the limit as the message says.",
	)
	StandbyDelayed = load.warning(
		"STANDBY_DELAYED",
		"the standby {standby} lags by {lag} because of recovery_min_apply_delay: batches do not wait for that delay "+
			"(--lag-ignore {standby} would ignore it from the start)",
		"The standby applies changes late on purpose.",
		"Serve with `--lag-ignore` and the name of the standby.",
	)
	StandbyStuck = load.warning(
		"STANDBY_STUCK",
		"the standby {standby} lags by {lag}, since it replays nothing: batches do not wait for it until it does",
		"The standby has received the WAL. Its replay is paused, waits for a query there, or is delayed on purpose "+
			"(recovery_min_apply_delay) while little happens.",
		"If nobody paused it (`SELECT pg_is_wal_replay_paused()`), look for a long query on the standby.",
	)
	ReplicaLagHidden = load.warning(
		"REPLICA_LAG_HIDDEN",
		"this role may not see the lag of replicas: batches do not wait for it (GRANT pg_monitor would let it)",
		"The server has standbys, and the role lacks the right to see their lag.",
		"`GRANT pg_monitor TO` the role, or serve with `--max-replica-lag=0`.",
	)
	WALRetained = load.warning(
		"WAL_RETAINED",
		"{cause}: the server keeps {size} of WAL for it, and more while rows are deleted; {remedy}",
		"A replication slot without a reader, or an archiver that fails or has no command, keeps the server from removing "+
			"WAL. The disk may fill.",
		"Find out why the slot's reader, which the message describes, does not read, or repair the archiver.",
	)
)

const vacuum = theme("VACUUM and the size of tables")

// These kinds are about VACUUM and the sizes of tables.
var (
	VacuumLocked = vacuum.warning(
		"VACUUM_LOCKED",
		"{table} is locked by another session and was not vacuumed",
		"VACUUM and ANALYZE do not wait for locks.",
		"Nothing: autovacuum, or the next run, does it.",
	)
	VacuumFailed = vacuum.warning(
		"VACUUM_FAILED",
		"{table}: VACUUM or ANALYZE failed: {error}",
		"The server reported an error, such as one of an index on an expression.",
		"Correct what the error names.",
	)
	VacuumUnavailable = vacuum.warning(
		"VACUUM_UNAVAILABLE",
		"no connection is free for VACUUM, which is left to autovacuum: {error}",
		"The server, or a pooler in front of it, grants no more connections.",
		"Raise `max_connections`, or the limit of the role or of the pooler.",
	)
	TableMostlyFree = vacuum.warning(
		"TABLE_MOSTLY_FREE",
		"{table} is {size}, of which {free} are free: new rows will use them; to give them back to the disk, run "+
			"pg_repack, or VACUUM FULL in a quiet hour (nobody can read the table meanwhile)",
		"The run deleted most rows of a large table. PostgreSQL keeps the space for new rows.",
		"Nothing, unless the disk needs the space: then pg_repack or VACUUM FULL.",
	)
	SizesUnknown = vacuum.warning(
		"SIZES_UNKNOWN",
		"the sizes of the tables could not be determined: {error}",
		"The result of the task has no sizes for its tables, for example because one of them was locked.",
		"Usually nothing.",
	)
)
