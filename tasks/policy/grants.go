package policy

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// furtherGrants are for what a policy for the table $1 profits from: rights to the partitions that the owner makes
// later, and to the sequences of its columns, which forecasts watch.
const furtherGrants = `
SELECT format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %I GRANT %s ON TABLES TO %I',
  pg_get_userbyid(c.relowner), n.nspname, $2::text, $3::text)
FROM pg_partition_tree($1) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (SELECT relkind = 'p' FROM pg_class WHERE oid = $1)
UNION
SELECT format('GRANT SELECT ON SEQUENCE %I.%I TO %I', n.nspname, s.relname, $3::text)
FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' JOIN pg_namespace n ON n.oid = s.relnamespace
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1
  AND d.deptype IN ('a', 'i')
ORDER BY 1`

// AddGrants adds statements to others. A table that both name keeps one statement, with the rights of both.
func AddGrants(list, more []string) []string {
	for _, statement := range more {
		rights, object, _ := strings.Cut(statement, " ON ") // no right has a name with ON
		i := slices.IndexFunc(list, func(s string) bool {
			_, other, _ := strings.Cut(s, " ON ")
			return other == object
		})
		switch {
		case !strings.HasPrefix(statement, "GRANT "):
			if !slices.Contains(list, statement) {
				list = append(list, statement)
			}
		case i < 0:
			list = append(list, statement)
		default:
			had, _, _ := strings.Cut(list[i], " ON ")
			for right := range strings.SplitSeq(strings.TrimPrefix(rights, "GRANT "), ", ") {
				if !slices.Contains(strings.Split(strings.TrimPrefix(had, "GRANT "), ", "), right) {
					had += ", " + right
				}
			}
			list[i] = had + " ON " + object
		}
	}
	return list
}

// Grants returns statements that grant the role all that a policy needs which Validate has accepted, whether or not
// it is granted already, and what its counts, holds and forecasts need to be complete. It fails with
// failure.Violations if the policy cannot be for its table.
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
	rights := strings.Join(compiled.Task.Steps[0].Rights(), ", ")
	rows, _ := db.Query(ctx, furtherGrants, c.table.OID, rights, env.Catalog.Role)
	further, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return AddGrants(AddGrants(nil, compiled.Rights), further), err
}
