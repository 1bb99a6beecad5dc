package message

const tables = theme("Tables that a task skips, or cleans only in part")

var (
	TableLocked = tables.warning(
		"TABLE_LOCKED",
		"{table}: locks of other sessions could not be skipped, so the rest of the table was skipped",
		"A statement such as ALTER TABLE, VACUUM FULL or LOCK TABLE kept the table locked through every attempt. Or several "+
			"sessions had locked one row, and the role may not lock rows itself.",
		"Usually none: the next run continues. If it recurs, find what locks the table at that hour, or `GRANT UPDATE` of "+
			"a column of the table, without which PostgreSQL does not let the role skip locked rows.",
	)
	TableDropped = tables.warning(
		"TABLE_DROPPED",
		"skipped {table}: it was dropped during the run",
		"The table was dropped after the run had read the catalog.",
		"None if this was intended.",
	)
	PartitionDropped = tables.info(
		"PARTITION_DROPPED",
		"dropped partition {table}: all its rows were obsolete",
		"A partition of a table that is cleaned by age alone ended before the cutoff.",
		"None needed.",
	)
	PartitionNotDropped = tables.warning(
		"PARTITION_NOT_DROPPED",
		"partition {table} ends before the cutoff but was not dropped, and its rows are deleted instead: {problem}",
		"Another session used the partition or its table, so that the lock for the drop was not granted in time.",
		"None: the next run drops the empty partition.",
	)
	PartitionDetached = tables.info(
		"PARTITION_DETACHED",
		"detached partition {table} with its rows: all were obsolete",
		"A partition of a table whose policy detaches partitions ended before the cutoff. It is now a separate table with "+
			"the same schema and name.",
		"Archive the table, and drop it when it is no longer needed. ALTER TABLE … ATTACH PARTITION undoes this.",
	)
	PartitionNotDetached = tables.warning(
		"PARTITION_NOT_DETACHED",
		"partition {table} ends before the cutoff but is not detached: {problem}",
		"A lock on the table, a foreign key, a hold, or a missing right prevents it.",
		"Fix the reported problem. After a lock, none: the next run tries again.",
	)
	DefaultPartitionStays = tables.warning(
		"DEFAULT_PARTITION_STAYS",
		"{rows} {rows|row|rows} of the default partition {table} {rows|is|are} older than the cutoff, and "+
			"{rows|stays|stay}: it is never detached",
		"The policy detaches partitions that end before the cutoff. The default partition has no end.",
		"Make partitions for the dates of these rows and move the rows there, or delete them by a policy of the default "+
			"partition, whose table is its name.",
	)
	PartitionsToDetach = tables.info(
		"PARTITIONS_TO_DETACH",
		"{table}: {partitions} {partitions|partition has|partitions have} only obsolete rows and would be detached: {names}",
		"A dry run found partitions that end before the cutoff in a table whose policy detaches partitions.",
		"None needed.",
	)
	PartitionsToDrop = tables.info(
		"PARTITIONS_TO_DROP",
		"{table}: {partitions} {partitions|partition has|partitions have} only obsolete rows and would be dropped whole: "+
			"{names}",
		"A dry run found partitions that end before the cutoff in a table that is cleaned by age alone.",
		"None needed. To keep the partitions as separate tables, have the policy detach them. If a standby or another "+
			"program expects the partitions, have it delete their rows one by one.",
	)
	RunLacksRights = tables.warning(
		"RUN_LACKS_RIGHTS",
		"the role lacks rights that a run needs; have the tables' owner execute: {grants}",
		"A dry run needs only SELECT.",
		"Execute the GRANT before the run.",
	)
	PartitionWithoutRights = tables.info(
		"PARTITION_WITHOUT_RIGHTS",
		"skipped {table}: the role lacks rights; no rows are obsolete yet ({reason}); before they are: {grant}",
		"A partition was added without a GRANT. Rights on a table do not include its partitions.",
		"Execute the GRANT before the partition has obsolete rows; otherwise the task fails then. ALTER DEFAULT PRIVILEGES "+
			"grants rights on partitions that are added later.",
	)
	CascadeHidden = tables.warning(
		"CASCADE_HIDDEN",
		"{table}: foreign keys also delete or change rows of {child}, which the role {role} cannot read completely: "+
			"cascaded rows are counted, but missing from previews and guards",
		"The role lacks SELECT on the table with the foreign key, or row security may hide rows of it.",
		"Have the owner GRANT SELECT on the table to the role, or make the role BYPASSRLS.",
	)
	CircleHidden = tables.warning(
		"CIRCLE_HIDDEN",
		"skipped {table}: foreign keys lead back to it through {child}, which the role {role} cannot read completely, so "+
			"deleting rows could delete others that must be retained",
		"The role lacks SELECT on the table with the foreign key, or row security may hide rows of it.",
		"Have the owner GRANT SELECT on the table to the role, or make the role BYPASSRLS.",
	)
	TableDetached = tables.warning(
		"TABLE_DETACHED",
		"skipped {table}: it was detached from {parent} during the run",
		"After the run had read the catalog, the partition was detached, is being detached (DETACH PARTITION "+
			"CONCURRENTLY), or stopped inheriting. Rows of other tables that its obsolete rows belong to are retained.",
		"None if this was intended. Schedule partition maintenance and the cleanup at different hours.",
	)
	TablesChanged = tables.warning(
		"TABLES_CHANGED",
		"{tables} changed while {task} worked: the batch was rolled back, and the rest of the task starts again",
		"A table that the task cleans, or that decides which rows are obsolete, was renamed, replaced, rewritten or "+
			"truncated, or got another owner, foreign key, partition or row security. What the task had read of it was out of "+
			"date.",
		"None if this was intended. Schedule changes of the schema and the cleanup at different hours.",
	)
	TableAttached = tables.warning(
		"TABLE_ATTACHED",
		"{table} became a partition of {parent} during the run; the next run cleans it",
		"The partition was attached, created or renamed after the run had read the catalog. Rows of other tables that its "+
			"rows belong to are retained.",
		"None: the next run cleans both. Schedule partition maintenance and the cleanup at different hours.",
	)
	NotATable = tables.warning(
		"NOT_A_TABLE",
		"skipped because {table} is {kind}, not a table",
		"A view, or a partition of another table, has the name of a table of the application. Its rows are not cleaned, "+
			"and deliveries and lists that it may have rows of are retained.",
		"Restore the application's table, or clean the tables behind the view yourself.",
	)
	IDNotInteger = tables.warning(
		"ID_NOT_INTEGER",
		"skipped {table}: cannot identify the zero record, as the id {column} is not an integer; to have the table "+
			"cleaned: {statement}",
		"The column that the application documents as the id has another type. The zero record must be retained.",
		"Have the owner run the statement in the message in a maintenance window: it rewrites the table.",
	)
	PartitionsExposed = tables.warning(
		"PARTITIONS_EXPOSED",
		"skipped because row security may hide rows of {table} that its partitions or children show; make the role {role} "+
			"the owner of the table, or grant it BYPASSRLS",
		"The table has a row security policy, its partitions have none: cleaning the partitions would bypass it.",
		"Make the role the owner of the table, or `ALTER ROLE … BYPASSRLS`.",
	)
	PairedNotATable = tables.warning(
		"PAIRED_NOT_A_TABLE",
		"skipped {table}: its rows are deleted together with rows of {paired}, which is {kind}, not a table",
		"Two tables share their ids, and a view or a partition has the name of one of them.",
		"Restore the application's table.",
	)
	RowsHidden = tables.warning(
		"ROWS_HIDDEN",
		"row security may hide rows of {table} from the role {role}: hidden rows, and rows whose deletion depends on them, "+
			"are retained; make the role the owner of the table, or grant it BYPASSRLS",
		"A row security policy applies to the role. Only visible rows are cleaned, and only if no hidden row of another "+
			"table could be a reason to retain them.",
		"Make the role the owner of the table, or `ALTER ROLE … BYPASSRLS`.",
	)
	TableLooksAlike = tables.info(
		"TABLE_LOOKS_ALIKE",
		"skipped {table}: it looks like {kind}, but {criterion}; to delete its old rows: cleanupd run --older-than "+
			"{table}.{column}=AGE",
		"The table has the columns of a log or of a similar table, but nothing shows that its rows may be deleted.",
		"If its old rows may be deleted and no policy does so yet, run the command in the message with an age such as "+
			"`180d`: it stores a policy, previews it, and asks.",
	)
	OrphansUnknown = tables.warning(
		"ORPHANS_UNKNOWN",
		"orphans of {table} are not deleted, because {problem}",
		"Rows are orphans if a row that they refer to is missing. Where that cannot be determined, none is deleted.",
		"Restore the table or the column, or make all rows of the table visible to the role.",
	)
	ParentTableWritten = tables.warning(
		"PARENT_TABLE_WRITTEN",
		"orphans of {table} are not deleted in this run: a transaction has been writing to it for longer than the policy "+
			"waits",
		"Parents that are not committed yet would seem to be missing. When its task begins, a policy waits 10 seconds for "+
			"transactions that have written to the parent table.",
		"Wait for the transaction (pg_stat_activity), such as a load of the table; the next run deletes the orphans.",
	)
	ParentTableEmpty = tables.warning(
		"PARENT_TABLE_EMPTY",
		"skipped because table {table} is empty: every row that refers to it would be an orphan",
		"The table may have lost its rows, for example in a failed restore.",
		"None if the table is empty in this installation. Otherwise restore it.",
	)
	DeliveriesMissing = tables.warning(
		"DELIVERIES_MISSING",
		"skipped because table NmsDelivery is missing: its owner identifies the application's tables",
		"Work tables are dropped only if they belong to the role that owns NmsDelivery.",
		"Check that the service is connected to the right database and schema.",
	)
	ListsHidden = tables.warning(
		"LISTS_HIDDEN",
		"row security may hide rows of {table}: tables with _grp and an id in their names are retained",
		"The tables may belong to lists that are hidden from the role.",
		"Make the role the owner of the table, or `ALTER ROLE … BYPASSRLS`.",
	)
	MappingsMissing = tables.warning(
		"MAPPINGS_MISSING",
		"table NmsDeliveryMapping is missing, so no mapping names a log table",
		"Delivery mappings name the delivery, exclusion and tracking logs. Without them, only NmsBroadLogMid is cleaned.",
		"None on a server without mappings, such as a mid-sourcing server. Otherwise restore the table.",
	)
	MappingColumnMissing = tables.warning(
		"MAPPING_COLUMN_MISSING",
		"column {column} of NmsDeliveryMapping is missing, so no mapping names such a log table",
		"This version of the application does not have the column, or it was dropped.",
		"None if the version does not have it. Otherwise restore the column.",
	)
	MappingUnusable = tables.warning(
		"MAPPING_UNUSABLE",
		"skipped {schema} ({column} of a delivery mapping), which {problem}",
		"A mapping names a log that is not in this database.",
		"Correct the mapping in the application, or delete it if it is not in use.",
	)
	NotALog = tables.warning(
		"NOT_A_LOG",
		"skipped {table}, named by {column} {schema} of a delivery mapping: it is not a log, which needs the unique key "+
			"{key} and the columns {columns}",
		"A mapping names a table without the columns or the key of a log.",
		"Correct the mapping, or add the missing key or columns to the table.",
	)
	OtherServerFailed = tables.warning(
		"OTHER_SERVER_FAILED",
		"{table} ({location}) could not be cleaned: {error}; obsolete rows retained: {rows}",
		"Another server rejected the statements. The task fails at its end.",
		"Fix the reported error on the server that has the rows.",
	)
	OtherServerClean = tables.warning(
		"OTHER_SERVER_CLEAN",
		"a statement on {table} ({location}) failed, but no obsolete rows are left: {error}",
		"Another server rejected a statement. The rows have been deleted since, by another statement or another run.",
		"None unless it recurs.",
	)
	UnloggedNotCounted = tables.warning(
		"UNLOGGED_NOT_COUNTED",
		"{table} is unlogged: its rows are not on the standby and not counted; a dry run without --preview-database-url "+
			"counts them",
		"The dry run reads a standby, and PostgreSQL does not replicate unlogged tables.",
		"None: runs clean the table. To count its rows, serve without `--preview-database-url`.",
	)
	UnindexedForeignKey = tables.warning(
		"UNINDEXED_FOREIGN_KEY",
		"{table}: every deleted row costs a full scan, because the foreign key {key} has no index: create one",
		"PostgreSQL looks for rows that refer to a deleted row. Without an index it reads the whole table for each.",
		"`CREATE INDEX CONCURRENTLY` on the table and the columns in the message.",
	)
)

const workTables = theme("Work tables")

var (
	WorkTableNotDropped = workTables.warning(
		"WORK_TABLE_NOT_DROPPED",
		"{table} could not be dropped: {error}",
		"Another session has locked the table, an object such as a view depends on it, or a right is missing.",
		"If it recurs, drop the objects that depend on it, or grant the right.",
	)
	WorkTablesOfOthers = workTables.warning(
		"WORK_TABLES_OF_OTHERS",
		"not dropped: {tables} unused {tables|relation|relations} named like a work table, such as {example}: {tables|it "+
			"belongs|they belong} to {owner}, and NmsDelivery to {application}; {statement} lets the next run drop "+
			"{tables|it|them}",
		"Another role created the tables, for example in a restore.",
		"Give them to the owner of NmsDelivery with the statement in the message, or drop them by hand.",
	)
	WorkTablesOfSuperuser = workTables.warning(
		"WORK_TABLES_OF_SUPERUSER",
		"not dropped: {tables} unused {tables|relation|relations} named like a work table, such as {example}: {tables|it "+
			"belongs|they belong} to the superuser postgres, as NmsDelivery does; give the application's tables to a role of "+
			"its own: ALTER TABLE … OWNER TO",
		"The application's tables belong to the superuser, so they cannot be distinguished from other tables.",
		"Give the application's tables to a role of its own: `ALTER TABLE … OWNER TO`.",
	)
	WorkTablesElsewhere = workTables.info(
		"WORK_TABLES_ELSEWHERE",
		"not dropped: {tables} {tables|relation|relations} named like a work table, such as {example}: {tables|it is|they "+
			"are} in the schema {schema}, and NmsDelivery is in {application}",
		"Only the schema of the application is cleaned.",
		"Drop unneeded relations by hand.",
	)
	WorkTablesOfOtherKind = workTables.info(
		"WORK_TABLES_OF_OTHER_KIND",
		"not dropped: {tables} {tables|relation|relations} named like a work table, such as {example}: {kind}",
		"The application creates only ordinary tables and views.",
		"Drop unneeded relations by hand.",
	)
	WorkTablesUnreadable = workTables.warning(
		"WORK_TABLES_UNREADABLE",
		"retained {tables} {tables|table|tables} that could not be read and may have rows on hold; the first is {table}: "+
			"{error}",
		"While recipients are on hold, a work table is dropped only if it has none of their rows.",
		"Grant the role SELECT on the tables, or release the hold.",
	)
)
