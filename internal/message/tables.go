package message

const tables = theme("Tables that a task skips, or cleans only in part")

// These kinds are about tables of the application and of its customers.
var (
	TableLocked = tables.warning(
		"TABLE_LOCKED",
		"{table}: another session has locked the whole table, so the rest of it was skipped",
		"A statement such as ALTER TABLE, VACUUM FULL or LOCK TABLE kept the table locked through every attempt.",
		"Usually nothing: the next run continues. If it recurs, find the job that locks the table at that hour.",
	)
	TableDropped = tables.warning(
		"TABLE_DROPPED",
		"{table} was dropped during the run: skipped",
		"The application, or somebody, dropped the table after the run had read the catalog.",
		"Nothing, if that was intended.",
	)
	PartitionDropped = tables.info(
		"PARTITION_DROPPED",
		"{table}: all rows of the partition were obsolete: dropped",
		"A partition of a table that is cleaned by age alone ended before the cutoff.",
		"Nothing.",
	)
	PartitionDetached = tables.info(
		"PARTITION_DETACHED",
		"{table}: all rows of the partition were obsolete: detached, with its rows",
		"A partition of a table whose policy detaches partitions ended before the cutoff. It is a table of its own now, in "+
			"the same schema and under the same name.",
		"Archive the table, and drop it when it is no longer needed. ALTER TABLE … ATTACH PARTITION undoes it.",
	)
	PartitionNotDetached = tables.warning(
		"PARTITION_NOT_DETACHED",
		"{table}: the partition ends before the cutoff, and is not detached: {problem}",
		"A lock on the table, a foreign key, a hold, or a right that the role lacks kept the partition from being detached.",
		"See the problem. After a lock, nothing: the next run tries again.",
	)
	PartitionsToDetach = tables.info(
		"PARTITIONS_TO_DETACH",
		"{table}: {partitions} {partitions|partition has|partitions have} only obsolete rows, and would be detached: {names}",
		"A dry run found partitions of a table whose policy detaches partitions which end before the cutoff.",
		"Nothing.",
	)
	PartitionsToDrop = tables.info(
		"PARTITIONS_TO_DROP",
		"{table}: {partitions} {partitions|partition has|partitions have} only obsolete rows, and would be dropped whole: "+
			"{names}",
		"A dry run found partitions of a table that is cleaned by age alone which end before the cutoff.",
		"Nothing. If the partitions are to be kept as tables of their own, let the policy detach them; if their rows are to "+
			"be deleted one by one, for example because a standby or another program expects the partitions, let it delete "+
			"them.",
	)
	RunLacksRights = tables.warning(
		"RUN_LACKS_RIGHTS",
		"a run would fail here, since the role lacks rights that a dry run does not need; let an owner of the tables run: "+
			"{grants}",
		"A dry run reads, and takes SELECT alone.",
		"Run the GRANT before the run.",
	)
	PartitionWithoutRights = tables.info(
		"PARTITION_WITHOUT_RIGHTS",
		"{table}: the role lacks rights, and no row there can be obsolete, since {reason}: skipped; later: {grant}",
		"A partition was added without a GRANT. Rights to a table do not include its partitions.",
		"Run the GRANT before the partition has obsolete rows: the task fails then. ALTER DEFAULT PRIVILEGES grants rights "+
			"to partitions that are added later.",
	)
	CascadeHidden = tables.warning(
		"CASCADE_HIDDEN",
		"{table}: foreign keys delete or change rows of {child} with its rows, and the role {role} cannot read all rows of "+
			"{child}: what goes is counted, but no preview or guard foresees it",
		"The role lacks SELECT on the table with the foreign key, or row security may hide rows of it.",
		"Let the owner GRANT SELECT on the table to the role, or make the role BYPASSRLS.",
	)
	CircleHidden = tables.warning(
		"CIRCLE_HIDDEN",
		"{table}: foreign keys lead from it back to itself through {child}, of which the role {role} cannot read all rows, "+
			"so that rows which must stay could go with others: skipped",
		"The role lacks SELECT on the table with the foreign key, or row security may hide rows of it.",
		"Let the owner GRANT SELECT on the table to the role, or make the role BYPASSRLS.",
	)
	TableDetached = tables.warning(
		"TABLE_DETACHED",
		"{table} was detached from {parent} during the run: its rows are left alone",
		"Somebody detached the partition, or is detaching it (DETACH PARTITION CONCURRENTLY), or ended its inheritance, "+
			"after the run had read the catalog. Rows of other tables that its obsolete rows belong to are retained.",
		"Nothing, if that was intended. Let maintenance of partitions and the cleanup run at different hours.",
	)
	TablesChanged = tables.warning(
		"TABLES_CHANGED",
		"{tables} changed while {task} worked: nothing of the batch was kept, and the rest of the task begins again",
		"A table that the task cleans, or by which it judges rows, was renamed, replaced, rewritten or truncated, or got "+
			"another owner, foreign key, partition or row security. What was known of it no longer holds.",
		"Nothing, if that was intended. Let changes of the schema and the cleanup run at different hours.",
	)
	TableAttached = tables.warning(
		"TABLE_ATTACHED",
		"{table} became a partition of {parent} during the run: it is cleaned from the next run on",
		"Somebody attached, created or renamed the partition after the run had read the catalog. Rows of other tables "+
			"that its rows belong to are retained.",
		"Nothing: the next run cleans both. Let maintenance of partitions and the cleanup run at different hours.",
	)
	NotATable = tables.warning(
		"NOT_A_TABLE",
		"{table} is {kind}, not a table: skipped",
		"A view, or a partition of another table, has the name of a table of the application. Its rows are not "+
			"cleaned, and deliveries and lists that it may have rows of are retained.",
		"Restore the application's table, or clean the tables behind the view yourself.",
	)
	IDNotInteger = tables.warning(
		"ID_NOT_INTEGER",
		"{table}: its id {column} is not an integer, so the zero record, which must be retained, is not known: "+
			"skipped; to have the table cleaned: {statement}",
		"The column that the application documents as the id has been created with another type.",
		"Let the owner run the statement in the message, in a maintenance window: it rewrites the table.",
	)
	PartitionsExposed = tables.warning(
		"PARTITIONS_EXPOSED",
		"row security may hide rows of {table} that its partitions or children show: skipped; make the role {role} "+
			"the owner of the table, or grant it BYPASSRLS",
		"The table has a policy, its partitions have none: a sweep of the partitions would bypass the policy.",
		"Make the role the owner of the table, or `ALTER ROLE … BYPASSRLS`.",
	)
	PairedNotATable = tables.warning(
		"PAIRED_NOT_A_TABLE",
		"{table}: its rows are deleted together with rows of {paired}, which is {kind}, not a table: skipped",
		"Two tables share their ids, and a view or a partition has the name of one of them.",
		"Restore the application's table.",
	)
	RowsHidden = tables.warning(
		"ROWS_HIDDEN",
		"row security may hide rows of {table}: rows that the role {role} does not see, and rows that are judged by "+
			"them, are retained; make it the owner of the table, or grant it BYPASSRLS",
		"A policy of row security applies to the role. Only rows that it shows are cleaned, and only if no hidden row "+
			"of another table could be a reason to keep them.",
		"Make the role the owner of the table, or `ALTER ROLE … BYPASSRLS`.",
	)
	TableLooksAlike = tables.info(
		"TABLE_LOOKS_ALIKE",
		"table {table} looks like {kind}, but {criterion}: this task leaves it alone; a policy can delete its old rows: "+
			"cleanupd run --older-than {table}.{column}=AGE",
		"The table has the columns of a log or of a similar table, but nothing says that its rows may be deleted.",
		"If its old rows may be deleted, and no policy does so yet, run the command in the message with an age such as "+
			"`180d`: it stores a policy, previews it, and asks.",
	)
	OrphansUnknown = tables.warning(
		"ORPHANS_UNKNOWN",
		"no row counts as an orphan of {table}, because {problem}: skipped",
		"Rows are orphans if a row that they refer to is missing. Where that cannot be seen, none is deleted.",
		"Restore the table or the column, or let the role see all rows of the table.",
	)
	ParentTableWritten = tables.warning(
		"PARENT_TABLE_WRITTEN",
		"a transaction has been writing to {table} for longer than the policy waits: no row is an orphan of it in this run",
		"Parents that are not committed yet would seem to be missing. A policy waits 10 seconds for the transactions that "+
			"have written to the parent table when its task begins.",
		"Wait for the transaction (pg_stat_activity), such as a load of the table; the next run does the rest.",
	)
	ParentTableEmpty = tables.warning(
		"PARENT_TABLE_EMPTY",
		"table {table} is empty: skipped, since every row that refers to it would be an orphan",
		"An empty table may be one whose rows are lost, for example by a failed restore.",
		"Nothing, if the table is empty in this installation. Otherwise restore it.",
	)
	DeliveriesMissing = tables.warning(
		"DELIVERIES_MISSING",
		"table NmsDelivery is missing, whose owner identifies the application's tables: skipped",
		"Work tables are dropped only if they belong to the role that owns NmsDelivery.",
		"Check that the service is connected to the right database and schema.",
	)
	ListsHidden = tables.warning(
		"LISTS_HIDDEN",
		"row security may hide rows of {table}: tables with _grp and an id in their names are retained",
		"The tables may belong to lists that the role does not see.",
		"Make the role the owner of the table, or `ALTER ROLE … BYPASSRLS`.",
	)
	MappingsMissing = tables.warning(
		"MAPPINGS_MISSING",
		"table NmsDeliveryMapping is missing, so no mapping names a log table",
		"Delivery mappings name the delivery, exclusion and tracking logs. Without them, only NmsBroadLogMid is "+
			"cleaned.",
		"Nothing on a server without mappings, such as one for mid-sourcing. Otherwise restore the table.",
	)
	MappingColumnMissing = tables.warning(
		"MAPPING_COLUMN_MISSING",
		"column {column} of NmsDeliveryMapping is missing, so no mapping names such a log table",
		"The version of the application does not have the column, or somebody dropped it.",
		"Nothing, if the version does not have it. Otherwise restore the column.",
	)
	MappingUnusable = tables.warning(
		"MAPPING_UNUSABLE",
		"{column} of a delivery mapping is {schema}, which {problem}: skipped",
		"A mapping names a log that is not in this database.",
		"Correct or delete the mapping in the application, if it is not in use.",
	)
	NotALog = tables.warning(
		"NOT_A_LOG",
		"table {table} ({column} {schema} of a delivery mapping) does not look like such a log, which has a unique "+
			"key {key} and the columns {columns}: skipped",
		"A mapping names a table without the columns or the key of a log.",
		"Correct the mapping, or add what the table lacks.",
	)
	OtherServerFailed = tables.warning(
		"OTHER_SERVER_FAILED",
		"{table} is {location} and could not be cleaned: {error}; obsolete rows retained: {rows}",
		"Another server rejected the statements. The task fails at its end.",
		"Correct what the error names, on the server that has the rows.",
	)
	OtherServerClean = tables.warning(
		"OTHER_SERVER_CLEAN",
		"{table} is {location}; it raised an error, but no obsolete row is left there: {error}",
		"Another server rejected a statement, but other statements, or another run, have deleted the rows.",
		"Nothing, unless it recurs.",
	)
	UnloggedNotCounted = tables.warning(
		"UNLOGGED_NOT_COUNTED",
		"{table} is unlogged: its rows are not counted, since the standby has none of them; a dry run without "+
			"--preview-database-url counts them",
		"The dry run reads a standby, and PostgreSQL does not replicate unlogged tables.",
		"Nothing: runs clean the table. To count its rows, serve without `--preview-database-url`.",
	)
	UnindexedForeignKey = tables.warning(
		"UNINDEXED_FOREIGN_KEY",
		"{table}: a foreign key without an index refers to it, so each deleted row costs a scan of the other table: "+
			"create an index on {key}",
		"PostgreSQL looks for rows that refer to a deleted row. Without an index it reads the whole table for each.",
		"`CREATE INDEX CONCURRENTLY` on the table and the columns in the message.",
	)
)

const workTables = theme("Work tables")

// These kinds are about work tables.
var (
	WorkTableNotDropped = workTables.warning(
		"WORK_TABLE_NOT_DROPPED",
		"{table} could not be dropped: {error}",
		"Another session has locked the table, an object such as a view depends on it, or a right is missing.",
		"If it recurs, drop the objects that depend on it, or grant the right.",
	)
	WorkTablesOfOthers = workTables.warning(
		"WORK_TABLES_OF_OTHERS",
		"not dropped: {tables} unused {tables|relation|relations} named like a work table, such as {example}: "+
			"{tables|it belongs|they belong} to {owner}, and NmsDelivery to {application}; {statement} lets the next "+
			"run drop {tables|it|them}",
		"Somebody created the tables as another role, for example by a restore.",
		"Give them to the owner of NmsDelivery with the statement in the message, or drop them by hand.",
	)
	WorkTablesOfSuperuser = workTables.warning(
		"WORK_TABLES_OF_SUPERUSER",
		"not dropped: {tables} unused {tables|relation|relations} named like a work table, such as {example}: "+
			"{tables|it belongs|they belong} to the superuser postgres, as NmsDelivery does; give the application's "+
			"tables to a role of its own: ALTER TABLE … OWNER TO",
		"The application's tables belong to the superuser, so they cannot be told from tables that are not its own.",
		"Give the application's tables to a role of its own: `ALTER TABLE … OWNER TO`.",
	)
	WorkTablesElsewhere = workTables.info(
		"WORK_TABLES_ELSEWHERE",
		"not dropped: {tables} {tables|relation|relations} named like a work table, such as {example}: {tables|it "+
			"is|they are} in the schema {schema}, and NmsDelivery is in {application}",
		"Only the schema of the application is cleaned.",
		"Drop the unneeded ones by hand.",
	)
	WorkTablesOfOtherKind = workTables.info(
		"WORK_TABLES_OF_OTHER_KIND",
		"not dropped: {tables} {tables|relation|relations} named like a work table, such as {example}: {kind}",
		"The application creates ordinary tables and views only.",
		"Drop the unneeded ones by hand.",
	)
	WorkTablesUnreadable = workTables.warning(
		"WORK_TABLES_UNREADABLE",
		"{tables} {tables|table|tables} may have rows on hold and could not be read: retained; the first is {table}: "+
			"{error}",
		"While recipients are on hold, a work table is dropped only if it has no row of them.",
		"Grant the role SELECT on the tables, or release the hold.",
	)
)
