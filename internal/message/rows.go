package message

const rows = theme("Rows that are retained, or not counted")

// These kinds are about obsolete rows that a run does not delete.
var (
	RowFailed = rows.warning(
		"ROW_FAILED",
		"{table}: row {row} failed and is retained: {error}",
		"A trigger, a constraint or a view of the application raised the error when the row was to be deleted or "+
			"updated. The first 20 such rows of each table are logged.",
		"Correct the trigger, or the rows that refer to this one. Each run tries again.",
	)
	RowsReferenced = rows.warning(
		"ROWS_REFERENCED",
		"{table}: {rows} further obsolete {rows|row is|rows are} kept by foreign keys of {children}, and {rows|its|their} "+
			"deletion would fail",
		"A dry run found rows that match a policy, and to which rows of other tables refer by keys without ON DELETE. A run "+
			"tries them, and counts them as failed.",
		"Let the policy leave them out (`unreferenced: true`), or set a policy for the tables with the keys: it runs before.",
	)
	RowsFailed = rows.warning(
		"ROWS_FAILED",
		"{table}: {rows} obsolete {rows|row|rows} failed with an error and {rows|is|are} retained",
		"A trigger, a constraint or a view of the application raised errors; see `ROW_FAILED`.",
		"Correct the trigger, or the rows that refer to these. Each run tries again.",
	)
	TooManyRowsFailed = rows.warning(
		"TOO_MANY_ROWS_FAILED",
		"{table}: more than {rows} rows failed, so the rest of the table was skipped",
		"So many rows failed that they are probably not the cause. The task fails at its end.",
		"Correct what the errors of the rows name (`ROW_FAILED`), such as a trigger, and start another run.",
	)
	RowsCascaded = rows.info(
		"ROWS_CASCADED",
		"{table}: with its rows, foreign keys deleted {deleted} {deleted|row|rows} of {child}, and changed {updated}",
		"Foreign keys of the table {child} have ON DELETE CASCADE, SET NULL or SET DEFAULT.",
		"Nothing, if that is what the keys are for. A hold on {child} keeps its rows, with those that they refer to.",
	)
	RowsRestored = rows.info(
		"ROWS_RESTORED",
		"{table}: {rows} {rows|row|rows} came back from the trash",
		"A restore moved them into the table.",
		"Nothing.",
	)
	RowsNotRestored = rows.warning(
		"ROWS_NOT_RESTORED",
		"{table}: {existing} {existing|row stays|rows stay} in the trash because {existing|a row|rows} with the same key "+
			"{existing|exists|exist} again, and {failed} because the table refuses {failed|it|them}: {reasons}",
		"The application has inserted rows with the same keys since, or has changed the table.",
		"Delete the new rows or mend the table, and restore once more; or restore into a new schema (--into).",
	)
	RelationNotRestored = rows.warning(
		"RELATION_NOT_RESTORED",
		"{table} stays in the trash: {error}",
		"Its name is taken, or what belongs to it has changed.",
		"Rename what has the name, and restore once more; or restore into a new schema (--into).",
	)
	NoUndo = rows.info(
		"NO_UNDO",
		"{table}: what happens to its rows cannot be undone: {problem}",
		"The run keeps what it deletes, but not rows that it updates or replaces, or that are on other servers.",
		"Nothing, if that is acceptable. Otherwise disable the task, or restore from a backup.",
	)
	UndoNeedsOwner = rows.warning(
		"UNDO_NEEDS_OWNER",
		"{tables}: rows can come back only into another schema: the role is not a member of their owner {owner}; {statement}",
		"A restore inserts rows as the owner of their table, whose triggers and defaults it runs.",
		"Execute the statement, or be content with `cleanupd trash restore --into`.",
	)
	RowsLocked = rows.warning(
		"ROWS_LOCKED",
		"{table}: {rows} obsolete {rows|row was|rows were} locked by other sessions and {rows|is|are} left for the "+
			"next run",
		"Transactions of other sessions have changed or locked the rows.",
		"Usually nothing. If it recurs, find the session that keeps its transaction open.",
	)
	RowsSuppressed = rows.warning(
		"ROWS_SUPPRESSED",
		"{table}: {rows} obsolete {rows|row is|rows are} retained, because a trigger or rule of the table suppresses "+
			"{rows|its|their} deletion or update, or undoes it",
		"The table has a trigger that returns NULL, updates or inserts the row instead, or changes its new values, or a "+
			"rule DO INSTEAD. The rule of the task still matches the rows, and each run tries again.",
		"Remove the trigger or rule, if the rows may be deleted or changed. If the trigger marks rows as deleted, leave "+
			"these out by a filter of the policy.",
	)
	RowsDependent = rows.warning(
		"ROWS_DEPENDENT",
		"{table}: {rows} obsolete {rows|row is|rows are} retained, because other rows refer to {rows|it|them} by foreign "+
			"keys and must stay",
		"A foreign key leads from the table back to itself, directly or through other tables. The rule does not match "+
			"all rows that would go with the retained ones, or that refuse their deletion.",
		"Nothing: they go when the rows that refer to them are obsolete, too.",
	)
	RowsBypassTrigger = rows.warning(
		"ROWS_BYPASS_TRIGGER",
		"{table}: obsolete rows are retained, because a rule or a trigger FOR EACH STATEMENT of {parents} would not "+
			"see their deletion: create it on the partitions or children, or disable it",
		"Rows are deleted from partitions, which fires only the statement triggers and rules of the partition.",
		"Create the trigger or rule on the partitions or children, too, or disable it.",
	)
	ParentsRetained = rows.warning(
		"PARENTS_RETAINED",
		"{rows} {rows|row|rows} of {table} {rows|is|are} retained, because {problem}",
		"Another table, which the task does not clean, has or may have rows that depend on these. They would be "+
			"orphans.",
		"See the message about the other table.",
	)
	DependentsRetained = rows.warning(
		"DEPENDENTS_RETAINED",
		"{rows} {rows|row|rows} of {table} {rows|is|are} retained, because dependent rows in {dependents} are; the "+
			"next run deletes both",
		"Rows that depend on these failed, or were locked or suppressed; another message has the reason.",
		"See the message about the dependent rows.",
	)
	ListRetained = rows.warning(
		"LIST_RETAINED",
		"list {list} is retained, with its table if it has one: {error}",
		"The list, or its table, could not be deleted.",
		"Correct what the error names. Each run tries again.",
	)
	EverythingOnHold = rows.warning(
		"EVERYTHING_ON_HOLD",
		"everything is on hold: {rows} {rows|row|rows} of {table} {rows|is|are} retained, with all that belongs to "+
			"{rows|it|them}",
		"A legal hold on everything is in force.",
		"Nothing. Release the hold when it is no longer needed.",
	)
	HoldTooDeep = rows.warning(
		"HOLD_TOO_DEEP",
		"rows of {table} are retained while there are holds, if foreign keys lead from them to {last}: what "+
			"the keys change beyond that is not followed",
		"Foreign keys delete or change rows with a deleted row. Chains that are long or circular are not followed.",
		"Nothing: the rows are deleted after the holds are released.",
	)
	HoldHidden = rows.warning(
		"HOLD_HIDDEN",
		"rows of {table} are retained while there are holds: foreign keys connect them with rows of {child}, which may "+
			"be on hold and cannot be seen: {statement}",
		"The role cannot read all rows of a table that foreign keys reach, so a row on hold might be deleted.",
		"Let an administrator of the database run the statement in the message.",
	)
	HoldUnusable = rows.warning(
		"HOLD_UNUSABLE",
		"rows of {table} are retained while there is a hold of {held}: {problem}",
		"The table or a column of a hold was dropped or given another type after the hold was created, or another table "+
			"has its name. All rows that may be on hold by it are retained.",
		"Let an admin release the hold, and create it again for the table as it is now.",
	)
	HoldOfNoTable = rows.warning(
		"HOLD_OF_NO_TABLE",
		"a hold is of the table {held}, which no longer exists: it retains nothing",
		"The table of a hold was dropped after the hold was created.",
		"If the data was to be kept, restore it from a backup. Let an admin release the hold.",
	)
	OtherServerRowsUncounted = rows.warning(
		"OTHER_SERVER_ROWS_UNCOUNTED",
		"it is not known whether the last {rows} {rows|row|rows} of a previous replica were changed on another "+
			"server, so they are not counted: {problem}",
		"A replica failed between a change on another server and its count.",
		"Nothing: rows that remain are deleted by this run. The counts may be too low.",
	)
	RemoteDeliveriesRetained = rows.warning(
		"REMOTE_DELIVERIES_RETAINED",
		"no database is configured for the mid-sourcing account {account}: {deliveries} "+
			"{deliveries|delivery|deliveries} of it {deliveries|is|are} deleted only here, and recorded as "+
			"retained there",
		"The deliveries are also on a mid-sourcing server, which the service does not know.",
		"Configure the database of the account, or keep its deliveries: see [mid-sourcing](../how-to/mid-sourcing.md).",
	)
	JobLogNotWritten = rows.warning(
		"JOB_LOG_NOT_WRITTEN",
		"{table}: entries of the job log could not be written: {error}",
		"Rows were changed without the entry in XtkJobLog that the application would write.",
		"Correct what the error names, such as a right.",
	)
	FormsWorkflowUnknown = rows.warning(
		"FORMS_WORKFLOW_UNKNOWN",
		"the database knows no workflow of {workflows}",
		"The purge names a workflow that the Forms database does not have. Nothing is deleted for it.",
		"Correct the name of the workflow in the purge.",
	)
	FormsTableShared = rows.warning(
		"FORMS_TABLE_SHARED",
		"{table} is also the table of other workflows: its process instances of {workflows} cannot be distinguished, "+
			"and are retained",
		"Several workflows store their process instances in one table.",
		"Name all workflows of the table in the purge, if the same retention applies to them.",
	)
	FormsTableAmbiguous = rows.warning(
		"FORMS_TABLE_AMBIGUOUS",
		"several tables have the name {table}, in upper and lower case: its process instances of {workflows} are retained",
		"The Forms database names the table of a workflow in another case than the tables that exist.",
		"Write the name in omd_object_type as the table of the workflow is spelled, or drop the other table.",
	)
)

const results = theme("Details of a task's result")

// These kinds are details of a task's result.
var (
	ResultFailed = results.warning(
		"RESULT_ROWS_FAILED", "{rows} obsolete {rows|row|rows} failed with an error",
		"The task succeeded, except for rows for which a trigger, a constraint or a view raised an error.",
		"See `ROW_FAILED` in the log.",
	)
	ResultLocked = results.warning(
		"RESULT_ROWS_LOCKED", "{rows} obsolete {rows|row was|rows were} locked by others",
		"Other sessions had locked the rows.",
		"Usually nothing: the next run tries again.",
	)
	ResultSuppressed = results.warning(
		"RESULT_ROWS_SUPPRESSED", "{rows} obsolete {rows|row is|rows are} suppressed by a trigger or rule",
		"A trigger or rule of the table suppressed or undid the deletion or update without an error.",
		"See `ROWS_SUPPRESSED` in the log.",
	)
	ResultDependent = results.warning(
		"RESULT_ROWS_DEPENDENT", "{rows} obsolete {rows|row depends|rows depend} on retained rows",
		"The rows, such as deliveries, are retained because rows that belong to them are.",
		"See `DEPENDENTS_RETAINED` and `PARENTS_RETAINED` in the log.",
	)
	ResultOnHold = results.info(
		"RESULT_ROWS_ON_HOLD", "{rows} obsolete {rows|row is|rows are} on hold",
		"A legal hold retains the rows.",
		"Nothing. Release the hold when it is no longer needed.",
	)
	ResultTables = results.warning(
		"RESULT_TABLES_UNFINISHED", "{tables} {tables|table|tables} could not be finished",
		"The tables were locked, skipped, on another server that failed, or had too many failing rows.",
		"See the messages about the tables in the log.",
	)
	ResultVacuum = results.warning(
		"RESULT_VACUUM_FAILED", "VACUUM or ANALYZE failed on {tables} {tables|table|tables}",
		"The tables were locked by other sessions, or the server reported an error.",
		"See `VACUUM_LOCKED` and `VACUUM_FAILED` in the log.",
	)
	DependencyFailed = results.warning(
		"DEPENDENCY_FAILED", "it depends on the task {task}, which did not succeed",
		"The task was not run, because it relies on the result of an earlier one.",
		"Correct the cause of the failure of the earlier task, and start another run.",
	)
)
