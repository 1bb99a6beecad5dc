package message

const policies = theme("Policies")

// These kinds are about policies.
var (
	PolicyTableProtected = policies.warning(
		"POLICY_TABLE_PROTECTED",
		"{table} cannot be the table of a policy, since {problem}: skipped",
		"The name of the policy's table has come to stand for another table since the policy was set.",
		"Write the table of the policy with its schema.",
	)
	PolicyTableCovered = policies.warning(
		"POLICY_TABLE_COVERED",
		"rows of {table} are also deleted or updated by {tasks}: both rules apply",
		"Another task or policy deletes or updates rows of the table, too. Neither rule replaces the other.",
		"Nothing, if both rules are wanted.",
	)
	PolicyCascades = policies.warning(
		"POLICY_CASCADES",
		"foreign keys delete or change rows of {tables} with rows of {table}",
		"A foreign key to the table, or to one that depends on it, has ON DELETE CASCADE, SET NULL or SET DEFAULT. Such "+
			"rows are previewed, judged by guards and counted (`rows_cascaded`). Where keys lead back to the table itself, "+
			"a row stays if deleting it would also delete rows that the rule does not match.",
		"Nothing, if that is what the keys are for. A hold on a dependent table keeps its rows, with those that they "+
			"refer to.",
	)
	PolicyRefused = policies.warning(
		"POLICY_REFUSED",
		"rows of {tables} keep rows of {table} that they refer to, by foreign keys without ON DELETE",
		"A foreign key to the table has ON DELETE NO ACTION or RESTRICT. Rows that are referred to fail and are retained.",
		"Set a policy for the tables with the keys, too: runs delete their rows first. Or give the keys ON DELETE.",
	)
	PolicyRowsRefused = policies.warning(
		"POLICY_ROWS_REFUSED",
		"{rows} {rows|row|rows} of {table} that {rows|matches|match} now {rows|is|are} kept by rows of {tables} that refer "+
			"to {rows|it|them}, by foreign keys without ON DELETE",
		"A foreign key to the table has ON DELETE NO ACTION or RESTRICT. Rows that are referred to fail and are retained.",
		"Let the policy leave them out (`unreferenced: true`), or set a policy for the tables with the keys, too: runs "+
			"delete their rows first. Or give the keys ON DELETE.",
	)
	PolicyKeyUnindexed = policies.warning(
		"POLICY_KEY_UNINDEXED",
		"foreign keys to {table}, or to tables whose rows go with its rows, have no index, so that each deleted row costs "+
			"a scan of another table: {statements}",
		"PostgreSQL looks for the rows that refer to a deleted row. Without an index it reads the whole table each time.",
		"Create the indexes, best with CONCURRENTLY, before the first run.",
	)
	SeveralOwners = policies.warning(
		"SEVERAL_OWNERS",
		"code of {owner}, who owns {table}, runs with the service's rights, also those to tables of {others}",
		"Triggers, index expressions, checks and row security of a table, of its partitions, and of tables whose rows "+
			"foreign keys delete with its rows, are code of their owner. Runs that delete or update rows call it as the "+
			"service's role, which may read or change tables of other owners, and the service's own.",
		"Trust the owner, or move the table to a database with a server of its own, or revoke the rights to tables of "+
			"others. `GRANT` the owner `TO` the service's role: batches of policies then run as the owner, unless the code "+
			"resets the role.",
	)
	PolicyUnindexed = policies.warning(
		"POLICY_UNINDEXED",
		"no index of {table} serves keepNewest, so that each batch reads the whole table: {statement}",
		"The rows of a group are found in the order of `orderBy` by an index that begins with the columns in `per`, "+
			"followed by `orderBy`.",
		"Create the index, if the table is large.",
	)
	PolicyUnproven = policies.warning(
		"POLICY_UNPROVEN",
		"the rule has never run: until a run has followed a saved plan with it, the guard {guard} refuses it: {command}",
		"The policy is new, its rule has changed, another table or column has the name of one that it uses, or no run by a "+
			"saved plan has deleted or updated a row.",
		"Preview a run and approve it with `cleanupd run --preview`, or let a run follow a dry run with `run --plan`.",
	)
	PolicyNothingProven = policies.warning(
		"POLICY_NOTHING_PROVEN",
		"no row was deleted or updated, which proves nothing: the guard {guard} goes on refusing the policy in runs without "+
			"a saved plan",
		"A rule that matches no row yet may match all of them later.",
		"Preview the policy again when it has rows to delete or update, and let a run follow that.",
	)
	PolicyUnusable = policies.warning(
		"POLICY_UNUSABLE",
		"the policy cannot run as it is: {problem}",
		"A table or column has been dropped, renamed, moved or changed, or a right revoked, since the policy was set.",
		"Set the policy again with the new names, give the right back, or delete the policy if the table is gone for good.",
	)
)
