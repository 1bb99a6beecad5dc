package message

const policies = theme("Policies")

var (
	PolicyTableProtected = policies.warning(
		"POLICY_TABLE_PROTECTED",
		"skipped policy: {table} is not allowed: {problem}",
		"Since the policy was set, the name of its table has come to mean another table.",
		"Name the policy's table with its schema.",
	)
	PolicyTableCovered = policies.warning(
		"POLICY_TABLE_COVERED",
		"rows of {table} are also deleted or updated by {tasks}: both rules apply",
		"Another task or policy also deletes or updates rows of this table. Neither rule replaces the other.",
		"None if both rules are wanted.",
	)
	PolicyCascades = policies.warning(
		"POLICY_CASCADES",
		"deleting rows of {table} makes foreign keys delete or change rows of {tables}",
		"A foreign key to the table, or to a table it cascades to, is ON DELETE CASCADE, SET NULL or SET DEFAULT. "+
			"Previews, guards and counts (`rows_cascaded`) include such rows. Where keys lead back to the table itself, a row "+
			"is retained if deleting it would also delete rows that the rule does not match.",
		"None if the keys are meant to do so. A hold on a dependent table retains its rows and the rows they refer to.",
	)
	PolicyDropsNothing = policies.warning(
		"POLICY_DROPS_NOTHING",
		"partitions: DROP has no effect: only with olderThan alone can all rows of a partition of {table} be obsolete by "+
			"its bounds",
		"A partition is dropped whole only if its bounds prove that all of its rows are obsolete. Other conditions than an "+
			"age may not match some of them.",
		"None if rows are to be deleted one by one. Otherwise leave out the other conditions.",
	)
	PolicyRefused = policies.warning(
		"POLICY_REFUSED",
		"rows of {table} are retained while {tables} refer to them (no ON DELETE action)",
		"A foreign key to the table is ON DELETE NO ACTION or RESTRICT. Rows that are referred to fail and are retained.",
		"Set a policy for the tables with the keys as well: runs delete their rows first. Or give the keys an ON DELETE "+
			"action.",
	)
	PolicyRowsRefused = policies.warning(
		"POLICY_ROWS_REFUSED",
		"{rows} {rows|row|rows} of {table} that now {rows|matches|match} {rows|is|are} retained while {tables} refer to "+
			"{rows|it|them} (no ON DELETE action)",
		"A foreign key to the table is ON DELETE NO ACTION or RESTRICT. Rows that are referred to fail and are retained.",
		"Exclude them from the policy (`unreferenced: true`), or set a policy for the tables with the keys as well: runs "+
			"delete their rows first. Or give the keys an ON DELETE action.",
	)
	PolicyKeyUnindexed = policies.warning(
		"POLICY_KEY_UNINDEXED",
		"foreign keys to {table}, or to tables it cascades to, have no index, so each deleted row costs a full scan: "+
			"{statements}",
		"PostgreSQL looks for the rows that refer to a deleted row. Without an index it reads the whole table each time.",
		"Create the indexes before the first run, best with CONCURRENTLY.",
	)
	SeveralOwners = policies.warning(
		"SEVERAL_OWNERS",
		"triggers and other code owned by {owner} on {table} run with the service's rights, including its rights on tables "+
			"of {others}",
		"Triggers, index expressions, checks and row security of a table, of its partitions and of tables it cascades to "+
			"are code of their owner. Runs that delete or update rows call it as the service's role, which can read or change "+
			"tables of other owners and the service's own.",
		"Trust the owner, move the table to a database on a server of its own, or revoke the rights on tables of others. "+
			"After `GRANT` of the owner `TO` the service's role, batches of policies run as the owner, unless the code resets "+
			"the role.",
	)
	PolicyTriggers = policies.warning(
		"POLICY_TRIGGERS",
		"triggers run with the rights of the service's role, which needs what their functions need: {triggers}",
		"A trigger that deleting or updating rows fires runs as the role that does it, unless its function is SECURITY "+
			"DEFINER. If it lacks a right, the row fails and is retained.",
		"Grant the service's role what the functions do to other tables, or make them SECURITY DEFINER.",
	)
	PolicyOfEveryRow = policies.warning(
		"POLICY_OF_EVERY_ROW",
		"the age is 0, so the rule matches every row of {table} whose {column} is in the past, unless another condition "+
			"keeps it",
		"`olderThan` has 0 days or hours, and the name of its column does not say when a row expires.",
		"None if the column says when a row expires. Otherwise give an age.",
	)
	PolicyUnindexed = policies.warning(
		"POLICY_UNINDEXED",
		"no index on {table} supports keepNewest; each batch reads the whole table: {statement}",
		"An index that begins with the columns in `per`, followed by `orderBy`, finds the rows of a group in order.",
		"Create the index if the table is large.",
	)
	PolicyUnproven = policies.warning(
		"POLICY_UNPROVEN",
		"no run has followed a saved plan with this rule yet, so the guard {guard} refuses it; to preview and approve: "+
			"{command}",
		"The policy is new, its rule has changed, another table or column has taken a name that it uses, or no run that "+
			"followed a saved plan has deleted or updated a row.",
		"Preview a run and approve it with `cleanupd run --preview`, or have a run follow a dry run with `run --plan`.",
	)
	PolicyNothingProven = policies.warning(
		"POLICY_NOTHING_PROVEN",
		"no row was deleted or updated, which proves nothing: the guard {guard} still refuses the policy in runs without a "+
			"saved plan",
		"A rule that matches no row yet may match all of them later.",
		"Preview the policy again when it has rows to delete or update, and have a run follow that preview.",
	)
	PolicyUnusable = policies.warning(
		"POLICY_UNUSABLE",
		"the policy cannot run: {problem}",
		"Since the policy was set, a table or column was dropped, renamed, moved or changed, or a right was revoked.",
		"Set the policy again with the new names, grant the right again, or delete the policy if the table is gone for "+
			"good.",
	)
)
