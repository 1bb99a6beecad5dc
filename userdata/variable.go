package userdata

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Variable names a variable of a workflow; an empty name means all of them.
type Variable struct{ Application, Workflow, Name string }

func (v Variable) String() string {
	name := v.Name
	if name == "" {
		name = "all variables"
	}
	return fmt.Sprintf("%s of workflow %s/%s", name, v.Application, v.Workflow)
}

// ErrNoVariable says that the database has no such workflow or variable.
var ErrNoVariable = errors.New("the database knows no such")

// column is a column of a workflow's table.
type column struct {
	Table string // quoted, with its schema
	Name  string // as stored
	Type  string
}

// workflowTables are the tables of workflows, as in the catalog: no name from data is used as it is. An id is compared in the
// type of its column, but without its length, so that a cast does not truncate it, and in bigint if that type is narrower.
const workflowTables = `
SELECT DISTINCT c.oid, c.relname::text, format('%I.%I', n.nspname, c.relname) AS name,
  CASE WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype) THEN 'int8' ELSE (SELECT format('%I.%I', tn.nspname, t.typname) FROM pg_type t JOIN pg_namespace tn ON tn.oid = t.typnamespace WHERE t.oid = a.atttypid) END AS id_type
FROM omd_object_type o JOIN pg_class c ON c.relname = o.database_table JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'process_instance_id' AND NOT a.attisdropped
WHERE o.database_table ~ '^tb_[0-9]+$' AND c.relkind IN ('r', 'p') AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('tb_process_instance'))`

// columnsOf are the variables of a workflow.
const columnsOf = `
SELECT t.name, a.attname::text, format_type(a.atttypid, NULL)
FROM (` + workflowTables + ` AND o.name = $1) AS t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'process_instance_id'
ORDER BY t.name, a.attnum`

// Types that are searched, as numbers and as text.
var (
	numbers = []string{"smallint", "integer", "bigint", "numeric", "real", "double precision"}
	texts   = []string{"text", "character varying", "character", "xml", "json", "jsonb", "uuid", "name"}
)

// floats are numbers that are exact only as text: a cast to numeric rounds them to 6 and 15 digits.
var floats = []string{"real", "double precision"}

// number is a user id that is a number, and not longer than PostgreSQL can cast.
var number = regexp.MustCompile(`^-?[0-9]{1,1000}(\.[0-9]{1,1000})?$`)

// instanceID is the id of a row's process instance; NULL if the column holds none.
const instanceID = `CASE WHEN process_instance_id::text ~ '^[0-9]{1,19}(\.0*)?$' THEN
  CASE WHEN process_instance_id::text::numeric <= 9223372036854775807 THEN process_instance_id::text::numeric::bigint END END`

// search looks for a user id in a workflow's variables, and returns which it could not search.
func (f *finding) search(ctx context.Context, tx pgx.Tx, v Variable, user string) (skipped []string, err error) {
	name := "pt_" + v.Application + "/" + v.Workflow
	columns, err := collect(ctx, tx, pgx.RowToStructByPos[column], columnsOf, name)
	if err != nil {
		return nil, fmt.Errorf("find the variables: %w", err)
	}
	if len(columns) == 0 {
		var known bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM omd_object_type WHERE name = $1)", name).Scan(&known); err != nil {
			return nil, err
		}
		if !known {
			return nil, fmt.Errorf("%w workflow: %s/%s", ErrNoVariable, v.Application, v.Workflow)
		}
		return []string{fmt.Sprintf("%s: the table that it names is none of a workflow", v)}, nil
	}
	if v.Name != "" {
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.Name != v.Name })
		if len(columns) == 0 {
			return nil, fmt.Errorf("%w variable: %s", ErrNoVariable, v)
		}
	}
	for _, c := range columns {
		one := Variable{v.Application, v.Workflow, c.Name}
		quoted := pgx.Identifier{c.Name}.Sanitize()
		switch {
		case slices.Contains(numbers, c.Type) && !number.MatchString(user):
			continue // the user id is not a number
		case slices.Contains(numbers, c.Type):
			value := quoted
			if slices.Contains(floats, c.Type) {
				value += "::text"
			}
			err = f.hits(ctx, tx, one, fmt.Sprintf("SELECT DISTINCT %s, $1::text FROM %s WHERE %s::numeric = $1::text::numeric", instanceID, c.Table, value), user)
		case slices.Contains(texts, c.Type):
			err = f.hits(ctx, tx, one, fmt.Sprintf("SELECT %[3]s, %[2]s::text FROM %[1]s WHERE strpos(%[2]s::text, $1) > 0", c.Table, quoted, instanceID), user)
		default:
			skipped = append(skipped, fmt.Sprintf("%s: a column of type %s can not be searched", one, c.Type))
		}
		if err != nil {
			return nil, fmt.Errorf("search %s: %w", one, err)
		}
	}
	return skipped, nil
}

// hits adds the process instances of a query, with the most certain match of each.
func (f *finding) hits(ctx context.Context, tx pgx.Tx, v Variable, sql, user string) error {
	rows, err := tx.Query(ctx, sql, user)
	if err != nil {
		return err
	}
	best := map[int64]Match{}
	var (
		instance *int64
		text     string
	)
	if _, err := pgx.ForEachRow(rows, []any{&instance, &text}, func() error {
		if instance == nil || *instance <= 0 {
			return nil
		}
		if how, known := match(text, user), best[*instance]; known == "" || known == Part || how == Whole {
			best[*instance] = how
		}
		return nil
	}); err != nil {
		return err
	}
	for id, how := range best {
		f.add(id, Reason{Kind: InVariable, Variable: v, Match: how})
	}
	return nil
}
