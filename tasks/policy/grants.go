package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// sequences returns GRANT statements for the sequences of the table's columns, which forecasts read.
func (c *checker) sequences(ctx context.Context, db campaign.Querier) ([]string, error) {
	rows, _ := db.Query(ctx, `SELECT n.nspname, s.relname
		FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
			JOIN pg_namespace n ON n.oid = s.relnamespace
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1
			AND d.deptype IN ('a', 'i')
		ORDER BY 1, 2`, c.table.OID)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		name := make(pgx.Identifier, 2)
		err := row.Scan(&name[0], &name[1])
		return fmt.Sprintf("GRANT SELECT ON SEQUENCE %s TO %s", name.Sanitize(), c.role()), err
	})
}

// future returns statements that grant the rights to partitions that the owner creates later, unless they are set.
func (c *checker) future(ctx context.Context, db campaign.Querier, rights []string) ([]string, error) {
	rows, _ := db.Query(ctx, `SELECT DISTINCT pg_get_userbyid(c.relowner), n.nspname
		FROM pg_partition_tree($1) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE (SELECT relkind = 'p' FROM pg_class WHERE oid = $1) AND EXISTS (
			SELECT unnest($2::text[]) EXCEPT SELECT a.privilege_type
			FROM pg_default_acl d CROSS JOIN aclexplode(d.defaclacl) a
			WHERE d.defaclrole = c.relowner AND d.defaclnamespace IN (0, c.relnamespace) AND d.defaclobjtype = 'r'
				AND (a.grantee = 0 OR pg_has_role(a.grantee, 'USAGE')))
		ORDER BY 1, 2`, c.table.OID, rights)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		owner, schema := make(pgx.Identifier, 1), make(pgx.Identifier, 1)
		err := row.Scan(&owner[0], &schema[0])
		return fmt.Sprintf("ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA %s GRANT %s ON TABLES TO %s", owner.Sanitize(),
			schema.Sanitize(), strings.Join(rights, ", "), c.role()), err
	})
}

func (c *checker) role() string { return pgx.Identifier{c.env.Catalog.Role}.Sanitize() }

// memberships selects the owners in which removing partitions of the table $1 takes membership: to detach any ($4), the
// table's; to drop those that end before a cutoff of the column $2, the partitions'.
const memberships = `
SELECT DISTINCT format('GRANT %I TO %I', pg_get_userbyid(c.relowner), $3::text)
FROM pg_partition_tree($1) tree JOIN pg_class c ON c.oid = tree.relid
WHERE pg_get_userbyid(c.relowner) <> $3 AND CASE WHEN $4 THEN c.oid = $1 ELSE tree.isleaf AND EXISTS (
  SELECT FROM pg_partitioned_table t JOIN pg_attribute a ON a.attrelid = t.partrelid AND a.attname = $2
  WHERE t.partrelid = tree.parentrelid AND ` + campaign.PartitionedByDate + `) END
ORDER BY 1`

// whyMember is the comment on memberships without which rows are deleted one by one.
const whyMember = "optional: lets the role drop partitions of %s, which only their owner may; without it, their rows " +
	"are deleted. It gives the role all rights of the owner"

// memberships returns GRANT statements for the memberships that removing partitions takes. Those that runs can do
// without are comments.
func (c *checker) memberships(ctx context.Context, db campaign.Querier, jobs []rules.Job) ([]string, error) {
	detaches := c.Partitions == purge.DetachPartitions
	removes := func(j rules.Job) bool { return j.Older != nil && j.Partition }
	if !detaches && (c.Partitions == purge.DeleteRows || !slices.ContainsFunc(jobs, removes)) {
		return nil, nil
	}
	rows, _ := db.Query(ctx, memberships, c.table.OID, c.table.Stored(c.OlderThan.Column), c.env.Catalog.Role, detaches)
	grants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if !detaches {
		for i, g := range grants {
			grants[i] = fmt.Sprintf("-- %s; -- "+whyMember, g, c.table.Quoted())
		}
	}
	return grants, err
}

// toUndo returns, as comments, GRANT statements for the memberships that undo needs to restore rows to their own
// tables. Without them, it can restore rows only into another schema.
func (c *checker) toUndo(ctx context.Context, db campaign.Querier, jobs []rules.Job) (grants []string, err error) {
	if c.Undo == nil || *c.Undo == 0 {
		return nil, nil
	}
	var tables []string
	for _, j := range jobs {
		tables = append(tables, j.Table.Quoted())
		for _, i := range j.Below() {
			tables = append(tables, j.Cascade.Tables[i])
		}
	}
	strangers, err := trash.Strangers(ctx, db, tables)
	for _, s := range strangers {
		grants = append(grants, fmt.Sprintf("-- %s; -- optional: undo inserts rows into %s as their owner; without it, "+
			"rows can be restored only into another schema, which needs GRANT CREATE ON DATABASE%s",
			s.Grant(), strings.Join(s.Tables, ", "), s.OnlyForRestores()))
	}
	return grants, err
}

// triggers returns comments on triggers that need rights of the role, of which the catalog does not say which.
func (c *checker) triggers(ctx context.Context, db campaign.Querier) ([]string, error) {
	triggers, err := campaign.TriggersAsRole(ctx, db, c.table.OID, c.Assign != nil)
	for i, t := range triggers {
		triggers[i] = fmt.Sprintf("-- the trigger %s runs with the rights of %s: grant what it needs as well", t, c.role())
	}
	return triggers, err
}

// Grants returns the statements that grant the role everything a policy needs, including what it already has, and what
// complete counts, holds, forecasts and undo need. Memberships that the role can do without, and what triggers need,
// are comments. Validate must have accepted the policy. Grants fails with failure.Violations if the policy is not
// allowed for its table.
func (p Policy) Grants(ctx context.Context, db campaign.Querier, env rules.Env) ([]string, error) {
	c := &checker{Policy: p, env: env, similar: hints(ctx, db)}
	if !c.checkTable() {
		return nil, c.wrong.Err()
	}
	if c.checkColumns(); c.wrong != nil {
		return nil, c.wrong.Err()
	}
	env.AllRights = true
	compiled, err := rules.Compile(p.Task(), env)
	if err != nil {
		return nil, err
	}
	if len(compiled.Jobs)+len(compiled.Partitionless) == 0 {
		c.wrong.Addf("policy.table", "%s cannot be cleaned, whatever is granted: %s", c.table.Quoted(), notes(compiled))
		return nil, c.wrong.Err()
	}
	sequences, err := c.sequences(ctx, db)
	if err != nil {
		return nil, err
	}
	future, err := c.future(ctx, db, compiled.Task.Steps[0].Rights())
	if err != nil {
		return nil, err
	}
	members, err := c.memberships(ctx, db, compiled.Jobs)
	if err != nil {
		return nil, err
	}
	back, err := c.toUndo(ctx, db, compiled.Jobs)
	if err != nil {
		return nil, err
	}
	triggers, err := c.triggers(ctx, db)
	return rules.AddGrants(compiled.Rights, slices.Concat(sequences, future, members, back, triggers)...), err
}
