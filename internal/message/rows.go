package message

const rows = theme("Rows that are retained, or not counted")

var (
	RowFailed = rows.warning(
		"ROW_FAILED",
		"{table}: row {row} failed and is retained: {error}",
		"A trigger, a constraint or a view of the application raised the error when the row was to be deleted or updated. "+
			"The first 20 such rows of each table are logged.",
		"Fix the trigger, or the rows that refer to this one. Each run tries again.",
	)
	RowsReferenced = rows.warning(
		"ROWS_REFERENCED",
		"{table}: {rows} obsolete {rows|row is|rows are} retained because rows of {children} refer to {rows|it|them}",
		"The rows match a policy, but rows of other tables refer to them by foreign keys without an ON DELETE action, so "+
			"the database would refuse to delete them.",
		"Exclude them from the policy (`unreferenced: true`), or set a policy for the tables with the keys: it runs first.",
	)
	RowsFailed = rows.warning(
		"ROWS_FAILED",
		"{table}: {rows} obsolete {rows|row|rows} failed with an error and {rows|is|are} retained",
		"A trigger, a constraint or a view of the application raised errors; see `ROW_FAILED`.",
		"Fix the trigger, or the rows that refer to these. Each run tries again.",
	)
	TooManyRowsFailed = rows.warning(
		"TOO_MANY_ROWS_FAILED",
		"{table}: more than {rows} rows failed, so the rest of the table was skipped",
		"So many rows failed that they are probably not the cause. The task fails at its end.",
		"Fix the reported errors (`ROW_FAILED`), such as a trigger's, and start another run.",
	)
	RowsCascaded = rows.info(
		"ROWS_CASCADED",
		"{table}: foreign keys also deleted {deleted} and updated {updated} rows of {child}",
		"Foreign keys of the table {child} are ON DELETE CASCADE, SET NULL or SET DEFAULT.",
		"None if the keys are meant to do so. A hold on {child} retains its rows and the rows they refer to.",
	)
	RowsRestored = rows.info(
		"ROWS_RESTORED",
		"{table}: {rows} {rows|row|rows} restored from the trash",
		"A restore moved them into the table.",
		"None needed.",
	)
	RowsExist = rows.warning(
		"ROWS_EXIST",
		"{table}: {rows} {rows|row was|rows were} not restored because the key exists again",
		"The rows remain in the trash. The application has since inserted rows with the same keys.",
		"Delete the new rows, and restore again; or restore into a new schema (--into).",
	)
	RowsLeftInTrash = rows.warning(
		"ROWS_LEFT_IN_TRASH",
		"{table}: {rows} {rows|row is|rows are} still in the trash and {rows|refers|refer} to rows of {restored} that were "+
			"to be restored",
		"Rows were restored by their keys. The same run deleted rows that refer to them, such as the lines of an invoice.",
		"If they belong to the restored rows, restore them, too, with --table {table}.",
	)
	RowsNotRestored = rows.warning(
		"ROWS_NOT_RESTORED",
		"{table}: {rows} {rows|row was|rows were} not restored: {reasons}",
		"The rows remain in the trash. The table has been changed since or refers to rows that are gone, or rights are "+
			"missing.",
		"Mend the table or grant the rights, and restore again; or restore into a new schema (--into).",
	)
	RelationNotRestored = rows.warning(
		"RELATION_NOT_RESTORED",
		"{table} remains in the trash: {error}",
		"Its name is taken, or objects that belong to it have changed.",
		"Rename the conflicting object, and restore again; or restore into a new schema (--into).",
	)
	NoUndo = rows.info(
		"NO_UNDO",
		"{table}: changes cannot be undone: {problem}",
		"The trash keeps what the run deletes, but not rows that it updates or replaces, or that are on other servers.",
		"None if that is acceptable. Otherwise disable the task, or restore from a backup.",
	)
	UndoNeedsOwner = rows.warning(
		"UNDO_NEEDS_OWNER",
		"rows of {tables} can be restored only into another schema: the role is not a member of their owner {owner}; "+
			"{statement}",
		"A restore inserts rows as the owner of their table, whose triggers and defaults it runs.",
		"Execute the statement, or restore with `cleanupd trash restore --into`.",
	)
	UndoNeedsGrant = rows.warning(
		"UNDO_NEEDS_GRANT",
		"rows of {tables} cannot be restored: the role is not a member of their owner {owner} ({statement}), and may not "+
			"create a schema for them ({into_statement})",
		"A restore inserts rows as the owner of their table, or into a schema that the role creates.",
		"Execute one of the statements; the second lets `cleanupd trash restore --into` restore the rows.",
	)
	RowsLocked = rows.warning(
		"ROWS_LOCKED",
		"{table}: {rows} obsolete {rows|row was|rows were} locked by other sessions and {rows|is|are} left for the next run",
		"Transactions of other sessions have changed or locked the rows.",
		"Usually none. If it recurs, find the session that keeps its transaction open.",
	)
	RowsSuppressed = rows.warning(
		"ROWS_SUPPRESSED",
		"{table}: {rows} obsolete {rows|row is|rows are} retained because a trigger or rule of the table suppresses or "+
			"undoes {rows|its|their} deletion or update",
		"The table has a trigger that returns NULL, updates or inserts the row instead, or changes its new values, or a "+
			"rule DO INSTEAD. The rule of the task still matches the rows, and each run tries again.",
		"Remove the trigger or rule if the rows may be deleted or changed. If the trigger marks rows as deleted, exclude "+
			"marked rows with a filter of the policy.",
	)
	RowsDependent = rows.warning(
		"ROWS_DEPENDENT",
		"{table}: {rows} obsolete {rows|row is|rows are} retained because rows that must be retained refer to "+
			"{rows|it|them} by foreign keys",
		"A foreign key leads from the table back to itself, directly or through other tables. The rule does not match all "+
			"rows that would be deleted with the retained rows, or that prevent their deletion.",
		"None: they are deleted once the rows that refer to them are obsolete as well.",
	)
	RowsBypassTrigger = rows.warning(
		"ROWS_BYPASS_TRIGGER",
		"{table}: obsolete rows are retained because deleting them would bypass a rule or a trigger FOR EACH STATEMENT of "+
			"{parents}: create it on the partitions or children, or disable it",
		"Rows are deleted from partitions, which fires only the statement triggers and rules of the partition.",
		"Create the trigger or rule on the partitions or children as well, or disable it.",
	)
	ParentsRetained = rows.warning(
		"PARENTS_RETAINED",
		"{rows} {rows|row|rows} of {table} {rows|is|are} retained because {problem}",
		"Another table, which the task does not clean, has or may have rows that depend on these. Deleting these would "+
			"orphan them.",
		"See the message about the other table.",
	)
	DependentsRetained = rows.warning(
		"DEPENDENTS_RETAINED",
		"{rows} {rows|row|rows} of {table} {rows|is|are} retained because dependent rows in {dependents} are; the next run "+
			"tries both again",
		"Rows that depend on these failed, or were locked or suppressed; another message gives the reason.",
		"See the message about the dependent rows.",
	)
	ListRetained = rows.warning(
		"LIST_RETAINED",
		"list {list} is retained, with its table if it has one: {error}",
		"The list, or its table, could not be deleted.",
		"Fix the reported error. Each run tries again.",
	)
	EverythingOnHold = rows.warning(
		"EVERYTHING_ON_HOLD",
		"everything is on hold: {rows} {rows|row|rows} of {table} {rows|is|are} retained, with all that belongs to "+
			"{rows|it|them}",
		"A legal hold on everything is in force.",
		"Release the hold when it is no longer needed.",
	)
	HoldTooDeep = rows.warning(
		"HOLD_TOO_DEEP",
		"while there are holds, rows of {table} are retained if the chain of rows that refer to them is too long to follow, "+
			"through {last}",
		"Foreign keys delete or change rows with a deleted row. At most 100 keys are followed from a table, and none to a "+
			"table for the third time.",
		"None: the rows are deleted after the holds are released.",
	)
	HoldHidden = rows.warning(
		"HOLD_HIDDEN",
		"while there are holds, all rows of {table} are retained: foreign keys connect them to rows of {child} that the "+
			"role cannot read and that may be on hold: {statement}",
		"The role cannot read all rows of a table that foreign keys reach, so a row on hold might be deleted.",
		"Have a database administrator run the statement in the message.",
	)
	HoldUnusable = rows.warning(
		"HOLD_UNUSABLE",
		"rows of {table} are retained while there is a hold on {held}: {problem}",
		"Since the hold was created, its table or one of its columns was dropped or given another type, or another table "+
			"has taken its name. All rows that may be on hold are retained.",
		"Have an admin release the hold, and create it again for the table as it is now.",
	)
	HoldOfNoRows = rows.warning(
		"HOLD_OF_NO_ROWS",
		"no row of {table} has these values now; the hold keeps rows that get them later",
		"A hold of rows was created, and no row of its table has the values.",
		"None if such rows are yet to come. Otherwise release the hold, and create it with other values.",
	)
	HoldLost = rows.warning(
		"HOLD_LOST",
		"everything that tasks and policies would delete row by row is retained, since the table of the hold on rows of "+
			"{held} no longer exists",
		"The table was dropped after the hold was created. Any row might have belonged to its rows.",
		"If the table was to be kept, restore it from a backup. Otherwise have an admin release the hold.",
	)
	HoldOfNoTable = rows.warning(
		"HOLD_OF_NO_TABLE",
		"the hold on {held} has no effect: the table no longer exists",
		"The table of a hold was dropped after the hold was created.",
		"If the data was to be retained, restore it from a backup. Have an admin release the hold.",
	)
	OtherServerRowsUncounted = rows.warning(
		"OTHER_SERVER_ROWS_UNCOUNTED",
		"could not tell whether a previous replica changed the last {rows} {rows|row|rows} on another server; not counted: "+
			"{problem}",
		"A replica failed between a change on another server and its count.",
		"None: this run deletes rows that remain. The counts may be too low.",
	)
	RemoteDeliveriesRetained = rows.warning(
		"REMOTE_DELIVERIES_RETAINED",
		"no database is configured for the mid-sourcing account {account}: {deliveries} {deliveries|delivery is|deliveries "+
			"are} deleted only here, and recorded as retained there",
		"The deliveries are also on a mid-sourcing server whose database is not configured.",
		"Configure the database of the account, or keep its deliveries: see [mid-sourcing](../how-to/mid-sourcing.md).",
	)
	JobLogNotWritten = rows.warning(
		"JOB_LOG_NOT_WRITTEN",
		"{table}: entries of the job log could not be written: {error}",
		"Rows were changed without the entry in XtkJobLog that the application would write.",
		"Fix the reported error, such as a missing right.",
	)
	FormsWorkflowUnknown = rows.warning(
		"FORMS_WORKFLOW_UNKNOWN",
		"no such workflow in the Forms database: {workflows}",
		"The purge names a workflow that is not in the Forms database. Nothing is deleted for it.",
		"Correct the name of the workflow in the purge.",
	)
	FormsTableShared = rows.warning(
		"FORMS_TABLE_SHARED",
		"{table} is also the table of other workflows: its process instances of {workflows} cannot be distinguished and "+
			"are retained",
		"Several workflows store their process instances in one table.",
		"Name all workflows of the table in the purge, if the same retention applies to them.",
	)
	FormsTableAmbiguous = rows.warning(
		"FORMS_TABLE_AMBIGUOUS",
		"several tables are named {table}, in upper and lower case: its process instances of {workflows} are retained",
		"The Forms database spells the workflow's table in another case than the existing tables.",
		"In omd_object_type, spell the name like the workflow's table, or drop the other table.",
	)
)

const results = theme("Details of a task's result")

var (
	ResultFailed = results.warning(
		"RESULT_ROWS_FAILED", "{rows} obsolete {rows|row|rows} failed with an error",
		"The task succeeded, except for rows for which a trigger, a constraint or a view raised an error.",
		"See `ROW_FAILED` in the log.",
	)
	ResultLocked = results.warning(
		"RESULT_ROWS_LOCKED", "{rows} obsolete {rows|row was|rows were} locked by other sessions",
		"Other sessions had locked the rows.",
		"Usually none: the next run tries again.",
	)
	ResultSuppressed = results.warning(
		"RESULT_ROWS_SUPPRESSED", "{rows} obsolete {rows|row is|rows are} suppressed by a trigger or rule",
		"A trigger or rule of the table suppressed or undid the deletion or update without an error.",
		"See `ROWS_SUPPRESSED` in the log.",
	)
	ResultDependent = results.warning(
		"RESULT_ROWS_DEPENDENT", "{rows} obsolete {rows|row is|rows are} dependent on rows that refer to {rows|it|them}",
		"The rows, such as deliveries, are retained because rows that refer to them are, such as delivery logs.",
		"See `ROWS_REFERENCED`, `ROWS_DEPENDENT`, `DEPENDENTS_RETAINED` and `PARENTS_RETAINED` in the log.",
	)
	ResultOnHold = results.info(
		"RESULT_ROWS_ON_HOLD", "{rows} obsolete {rows|row is|rows are} on hold",
		"A legal hold retains the rows.",
		"Release the hold when it is no longer needed.",
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
		"The task relies on the result of an earlier task, so it was not run.",
		"Fix the cause of that task's failure, and start another run.",
	)
)
