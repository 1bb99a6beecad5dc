package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type checker struct {
	Policy
	tx    pgx.Tx
	env   rules.Env
	table *campaign.Table
	wrong failure.Violations
	// similar returns a hint with tables that a name may mean; nil if there is no database to ask.
	similar func(name string) (hint string)
}

func hints(ctx context.Context, db campaign.Querier) func(name string) string {
	return func(name string) string {
		hint, err := campaign.SimilarTables(ctx, db, name)
		if err != nil {
			return ""
		}
		return hint
	}
}

// Check checks a policy that Validate has accepted against a database. It fails with failure.Violations, or with
// rules.MissingRights. It does not evaluate the rule for any row.
func (p Policy) Check(ctx context.Context, tx pgx.Tx, env rules.Env) error {
	c := &checker{Policy: p, tx: tx, env: env, similar: hints(ctx, tx)}
	if !c.checkTable() {
		return c.wrong.Err()
	}
	c.checkColumns()
	if err := c.checkPartitions(ctx); err != nil {
		return err
	}
	var compiled *rules.Plan
	if c.wrong == nil { // evaluating values and parts would fail without the rights
		var err error
		if compiled, err = rules.Compile(p.Task(), env); err != nil {
			return err
		}
		whole, err := c.missingSelect(ctx, compiled.Jobs)
		if err != nil {
			return err
		}
		if missing := rules.AddGrants(compiled.Rights, whole...); len(missing) > 0 {
			c.env.AllRights, c.env.OnlyMissing = true, true // so that the owner of the tables need grant only once
			useful, err := rules.Compile(c.Task(), c.env)
			if err != nil {
				return err
			}
			return rules.MissingRights(rules.AddGrants(missing, useful.Rights...))
		}
	}
	if err := errors.Join(c.checkValues(ctx), c.checkAssigned(ctx)); err != nil {
		return err
	}
	if c.wrong != nil {
		return c.wrong.Err()
	}
	return c.checkParts(ctx, compiled)
}

// checkPartitions checks that partitions of the table can be detached by the date.
func (c *checker) checkPartitions(ctx context.Context) error {
	if c.Partitions != purge.DetachPartitions {
		return nil
	}
	var (
		byDate, owns bool
		grant        string
	)
	err := c.tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_partitioned_table t
			JOIN pg_attribute a ON a.attrelid = t.partrelid AND a.attname = $2
			WHERE t.partrelid = c.oid AND `+campaign.PartitionedByDate+`),
		pg_has_role(c.relowner, 'USAGE'), format('GRANT %I TO %I', pg_get_userbyid(c.relowner), current_user)
		FROM pg_class c WHERE c.oid = $1`,
		c.table.OID, c.table.Stored(c.OlderThan.Column)).Scan(&byDate, &owns, &grant)
	switch {
	case err != nil:
	case !byDate:
		c.wrong.Addf("policy.partitions", "cannot be DETACH: %s is not partitioned by range of %s alone, as a date, "+
			"timestamp or timestamptz in their usual order", c.table.Quoted(), c.OlderThan.Column)
	case !owns:
		c.wrong.Addf("policy.partitions", "cannot be DETACH: only the owner of %s may detach its partitions; a superuser "+
			"can make the role a member, with all that the owner may do: %s", c.table.Quoted(), grant)
	}
	return err
}

// checkTable reports whether a policy is allowed for the table. If not, it adds a violation.
func (c *checker) checkTable() bool {
	if c.table = c.find("policy.table", c.TableName()); c.table == nil {
		return false
	}
	why := protected(c.env.Catalog, c.table, c.Assign == nil)
	if why != "" {
		c.wrong.Addf("policy.table", "%s cannot be the table of a policy: %s", c.table.Quoted(), why)
	}
	return why == ""
}

// missingSelect returns the GRANT statements for tables of which the role may read only some columns: a sweep reads the
// places of rows (ctid), which takes the right to the whole table.
func (c *checker) missingSelect(ctx context.Context, jobs []rules.Job) (grants []string, err error) {
	var oids []uint32
	var names []string
	add := func(oid uint32, quoted string) { oids, names = append(oids, oid), append(names, quoted) }
	add(c.table.OID, c.table.Quoted())
	for _, leaf := range c.table.Leaves {
		if slices.ContainsFunc(jobs, func(j rules.Job) bool { return j.Relation == leaf.Quoted() }) {
			add(leaf.OID, leaf.Quoted())
		}
	}
	for _, j := range jobs {
		for _, t := range j.Affected {
			if t == c.table {
				continue
			}
			add(t.OID, t.Quoted())
			for _, leaf := range t.Leaves {
				add(leaf.OID, leaf.Quoted())
			}
		}
	}
	rows, _ := c.tx.Query(
		ctx,
		`SELECT DISTINCT 'GRANT SELECT ON ' || name || ' TO ' || $3 FROM unnest($1::oid[], $2::text[]) AS r (oid, name)
			WHERE NOT has_table_privilege(oid, 'SELECT') AND has_any_column_privilege(oid, 'SELECT')`,
		oids, names, c.role(),
	)
	if grants, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || c.OrphanOf == nil {
		return grants, err
	}
	parent := c.env.Catalog.Table(c.parentName())
	if key, _ := parent.Column(c.OrphanOf.ParentColumn); parent.CanSelect && !key.CanSelect {
		grants = append(grants, fmt.Sprintf("GRANT SELECT ON %s TO %s", parent.Quoted(), c.role()))
	}
	return grants, nil
}

// find returns a table by its name. If there is none, it adds a violation and returns nil.
func (c *checker) find(field, name string) *campaign.Table {
	t := c.env.Catalog.Table(name)
	switch other := c.env.Catalog.InPlaceOf(name); {
	case t != nil:
		return t
	case other != nil:
		c.wrong.Addf(field, "%s is %s, not a table", other.Quoted(), other.Kind)
	default:
		if name == c.TableName() { // the name as the user wrote it
			name = c.Table
		}
		hint := ""
		if c.similar != nil {
			hint = c.similar(name)
		}
		c.wrong.Addf(field, "there is no table %.64q, or the role cannot use its schema%s", name, hint)
	}
	return nil
}

func (c *checker) column(field string, t *campaign.Table, name string) (column campaign.Column, ok bool) {
	if column, ok = t.Column(name); !ok {
		var names []string
		for _, d := range t.Details() {
			names = append(names, d.Name)
		}
		c.wrong.Addf(field, "%s has no column %.64q%s; its columns are %s", t.Quoted(), name, flags.Similar(name, names),
			brief(names))
	}
	return column, ok
}

func brief(names []string) string {
	const most = 50
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// usable fails with failure.Violations if the policy can no longer be applied to a table, because something in the
// catalog has changed since the policy was set.
func (p Policy) usable(env rules.Env, t *campaign.Table) error {
	c := &checker{Policy: p, env: env, table: t}
	c.checkColumns()
	return c.wrong.Err()
}

func (c *checker) checkColumns() {
	c.checkDates()
	c.checkOrphan()
	for i, f := range c.Filters {
		field := fmt.Sprintf("policy.filters[%d].column", i)
		column, ok := c.column(field, c.table, f.Column)
		switch op := ops[f.Op]; {
		case !ok, op == rules.Null, op == rules.NotNull:
		case op != rules.StartsWith:
			c.checkOrder(field, column)
		case !column.Bytewise: // the beginning of a text is compared byte by byte
			c.wrong.Addf(
				field, "%s is %s: STARTS_WITH is only for text, varchar, char and name, not with a nondeterministic "+
					"collation, since texts may be equal to others there that they do not begin with", column.Name, column.Full,
			)
		}
		if len(f.Values) > 0 {
			c.checkZone(fmt.Sprintf("policy.filters[%d].values", i), column)
		}
	}
	if c.Unreferenced && len(c.table.KeysTo()) == 0 {
		c.wrong.Addf("policy.unreferenced", "would be true of every row: no foreign key of another table refers to %s; "+
			"without one, it is unknown which rows refer to a row", c.table.Quoted())
	}
	c.checkAssign()
}

func (c *checker) checkDates() {
	if a := c.OlderThan; a != nil {
		const field = "policy.older_than.column"
		column, ok := c.column(field, c.table, a.Column)
		switch isDay := column.Type == "pg_catalog.date"; {
		case ok && !column.IsDate:
			c.wrong.Addf(field, "%s is not a date, timestamp or timestamptz, but %s", column.Name, column.Full)
		case isDay && a.Hours != nil:
			c.wrong.Addf("policy.older_than.hours", "cannot be compared with %s, which is a date without a time: give days",
				column.Name)
		case isDay && *a.Days == 0:
			c.wrong.Addf("policy.older_than.days", "must be at least 1 for %s: it is a date without a time, and with 0 the "+
				"rows of the current day would match as well", column.Name)
		}
	}
	k := c.KeepNewest
	if k == nil {
		return
	}
	for i, name := range k.Per {
		field := fmt.Sprintf("policy.keep_newest.per[%d]", i)
		if column, ok := c.column(field, c.table, name); ok {
			c.checkOrder(field, column)
		}
	}
	if k.OrderBy == "" && c.OlderThan != nil {
		return // the rows are ordered by that column
	}
	const field = "policy.keep_newest.order_by"
	if column, ok := c.column(field, c.table, k.OrderBy); ok && !column.IsDate && column.Kind != "N" {
		c.wrong.Addf(field, "%s is not a date or a number, but %s", column.Name, column.Full)
	} else if ok {
		c.checkOrder(field, column)
	}
}

func (c *checker) checkOrder(field string, column campaign.Column) {
	if column.Operator("=") == "" {
		c.wrong.Addf(field,
			"%s is %s, a type without a default B-tree operator class, so its values cannot be compared",
			column.Name, column.Full)
	}
}

func (c *checker) checkOrphan() {
	o := c.OrphanOf
	if o == nil {
		return
	}
	link, ok := c.column("policy.orphan_of.column", c.table, o.Column)
	parent := c.find("policy.orphan_of.parent_table", c.parentName())
	if parent == nil {
		return
	}
	key, found := c.column("policy.orphan_of.parent_column", parent, o.ParentColumn)
	if _, comparable := parent.Equality(o.ParentColumn, c.table, o.Column); ok && found && !comparable {
		c.wrong.Addf(
			"policy.orphan_of.parent_column", "%s is %s and %s is %s: no B-tree operator family compares them, and no "+
				"foreign key says how; give both one type, or add the foreign key",
			key.Name, key.Full, link.Name, link.Full,
		)
	}
	isForeign := func(l campaign.Leaf) bool { return l.Location == campaign.Foreign }
	if slices.ContainsFunc(parent.Leaves, isForeign) {
		c.wrong.Addf("policy.orphan_of.parent_table",
			"%s, or a part of it, is a foreign table: the other server may hide rows, so a missing row proves nothing",
			parent.Quoted())
	}
	if parent.RowSecurity {
		c.wrong.Addf(
			"policy.orphan_of.parent_table",
			"row security may hide rows of %s, so a missing row proves nothing: make "+
				"the role %s the owner of the table, or grant it BYPASSRLS",
			parent.Quoted(),
			c.env.Catalog.Role,
		)
	}
}

// checkValues checks that values of filters can be converted to the types of their columns.
func (c *checker) checkValues(ctx context.Context) error {
	for i, f := range c.Filters {
		column, ok := c.table.Column(f.Column)
		if !ok || ops[f.Op] == rules.StartsWith {
			continue
		}
		for j, v := range f.Values {
			field := fmt.Sprintf("policy.filters[%d].values[%d]", i, j)
			if meant, err := c.checkMeaning(ctx, field, column, v); err != nil {
				return err
			} else if !meant {
				continue
			}
			read := sqlexpr.Format("SELECT %s::%s IS NULL", sqlexpr.Arg(v, "text"), column.Type)
			if err := c.try(ctx, field, read); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) checkAssign() {
	assigned := map[string]bool{}
	for i, a := range c.Assign {
		field := fmt.Sprintf("policy.assign[%d]", i)
		column, ok := c.column(field+".column", c.table, a.Column)
		if !ok {
			continue
		}
		if why := c.unassignable(column, a); why != "" {
			c.wrong.Addf(field+".column", "%s cannot be assigned: %s", column.Name, why)
		}
		if assigned[column.Name] {
			c.wrong.Addf(field+".column", "%s is assigned twice", column.Name)
		}
		assigned[column.Name] = true
		switch {
		case a.ValueFromKey != "":
			c.checkFromKey(field+".value_from_key", column)
		case a.Value != nil:
			c.checkZone(field+".value", column)
		case column.NotNull:
			c.wrong.Addf(field+".value", "is missing: %s cannot be NULL", column.Name)
		}
	}
	if c.KeepNewest != nil && c.Assign != nil {
		c.checkTriggers(slices.Collect(maps.Keys(assigned)))
	}
}

// checkFromKey checks that a column can store a text made from the key.
func (c *checker) checkFromKey(field string, column campaign.Column) {
	if _, ok := c.table.SingleKey(); !ok {
		c.wrong.Addf(field, "needs a primary key of %s that is one integer or UUID", c.table.Quoted())
	}
	if column.Kind != "S" {
		c.wrong.Addf(field, "is a text, and %s is %s", column.Name, column.Full)
	}
}

// widest are the longest texts of keys, by type.
var widest = map[string]string{
	"pg_catalog.int2": "-32768",
	"pg_catalog.int4": "-2147483648",
	"pg_catalog.int8": "-9223372036854775808",
	"pg_catalog.uuid": "00000000-0000-0000-0000-000000000000",
}

// widestValue returns the longest value that is made from a key.
func (c *checker) widestValue(a Assign) string {
	key, _ := c.table.SingleKey()
	hash := strings.Repeat("0", 32)
	return strings.NewReplacer("{key}", widest[key.Type], "{hash}", hash).Replace(a.ValueFromKey)
}

// checkTriggers checks that no trigger may change which rows are the newest when columns are assigned: the next run
// would then overwrite rows that this one retains.
func (c *checker) checkTriggers(assigned []string) {
	for _, t := range c.table.UpdateTriggers {
		if t.FiredBy(assigned) {
			c.wrong.Addf(
				"policy.assign",
				"the trigger %.64q of %s may change which rows are the newest, whenever rows are overwritten: keepNewest "+
					"cannot be combined with assign",
				t.Name,
				c.table.Quoted(),
			)
			return
		}
	}
}

func (c *checker) checkAssigned(ctx context.Context) error {
	for i, a := range c.Assign {
		column, ok := c.table.Column(a.Column)
		field := fmt.Sprintf("policy.assign[%d].value", i)
		switch {
		case !ok || (a.ValueFromKey == "" && a.Value == nil && column.NotNull):
			continue
		case a.ValueFromKey != "":
			if _, has := c.table.SingleKey(); has && column.Kind == "S" {
				widest := c.widestValue(a)
				long := fmt.Sprintf(": it may have up to %d characters", utf8.RuneCountInString(widest))
				if err := c.checkFits(ctx, field+"_from_key", column, widest, long); err != nil {
					return err
				}
			}
			continue
		case a.Value == nil: // a domain may not allow NULL
			if err := c.try(ctx, field, sqlexpr.Format("SELECT NULL::%s", column.Full)); err != nil {
				return err
			}
			continue
		}
		if meant, err := c.checkMeaning(ctx, field, column, *a.Value); err != nil {
			return err
		} else if !meant {
			continue
		}
		if err := c.checkFits(ctx, field, column, *a.Value, ""); err != nil {
			return err
		}
	}
	if c.wrong != nil {
		return nil
	}
	return c.checkConstraints(ctx)
}

// constraintsOf selects the CHECK constraints and foreign keys of the table $1 that are only about the columns $2, with
// their conditions for a row named assigned. It leaves out foreign keys whose parents the role does not see.
const constraintsOf = `SELECT quote_ident(conname), pg_get_constraintdef(oid), CASE contype
  WHEN 'c' THEN pg_get_expr(conbin, conrelid)
  ELSE (SELECT format('%s OR EXISTS (SELECT FROM %s AS parent WHERE %s)',
      string_agg(format('assigned.%I IS NULL', a.attname), ' OR '), confrelid::regclass,
      string_agg(format('parent.%I = assigned.%I', p.attname, a.attname), ' AND '))
    FROM unnest(conkey, confkey) AS u (own, of) JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = u.own
      JOIN pg_attribute p ON p.attrelid = confrelid AND p.attnum = u.of) END
FROM pg_constraint k
WHERE conrelid = $1 AND conkey <@ $2 AND ` + sqlexpr.Enforced + ` AND (contype = 'c' OR contype = 'f'
  AND has_table_privilege(confrelid, 'SELECT') AND NOT row_security_active(confrelid)
  AND has_schema_privilege((SELECT relnamespace FROM pg_class WHERE oid = confrelid), 'USAGE'))
ORDER BY conname`

// checkConstraints checks that the constraints of the table that are only about assigned columns allow the values.
// Others depend on the row.
func (c *checker) checkConstraints(ctx context.Context) error {
	var numbers []int16
	var values []sqlexpr.Expr
	for _, a := range c.Assign {
		column, ok := c.table.Column(a.Column)
		if !ok || a.ValueFromKey != "" {
			continue
		}
		numbers = append(numbers, column.Number)
		value := sqlexpr.SQL("NULL")
		if a.Value != nil {
			value = sqlexpr.Arg(*a.Value, "text")
		}
		values = append(values, sqlexpr.Format("%s::%s AS %s", value, column.Full, pgx.Identifier{column.Name}.Sanitize()))
	}
	rows, _ := c.tx.Query(ctx, constraintsOf, c.table.OID, numbers)
	type constraint struct{ Name, Definition, Condition string }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[constraint])
	if err != nil {
		return err
	}
	for _, check := range list {
		var allowed *bool
		query := sqlexpr.Format("SELECT (%s) FROM (SELECT %s) AS assigned", check.Condition, sqlexpr.Join(", ", values...))
		if err := c.try(ctx, "policy.assign", query, &allowed); err != nil {
			return err
		}
		if allowed != nil && !*allowed {
			c.wrong.Addf("policy.assign", "the constraint %s does not allow it: %s", check.Name, check.Definition)
		}
	}
	return nil
}

// unassignable returns why a column cannot be assigned; empty if it can.
func (c *checker) unassignable(column campaign.Column, a Assign) string {
	isColumn := func(name string) bool {
		stored := c.table.Stored(name)
		return stored == column.Name || slices.Contains(column.Generates, stored)
	}
	switch {
	case column.Referenced:
		return "a foreign key refers to it, so rows of other tables would change with it, or prevent the change"
	case column.Unique && a.ValueFromKey != "" && !column.Primary: // each row gets a different value
	case column.Unique && (a.Value != nil || column.NullCollides):
		return "a primary key, unique index or exclusion constraint depends on it"
	case column.Generated:
		return "its values are generated"
	case c.OlderThan != nil && isColumn(c.OlderThan.Column):
		return "it is the date of olderThan, or that is generated from it"
	case c.KeepNewest != nil && isColumn(c.orderBy()):
		return "keepNewest orders by it, or by a column that is generated from it: each batch would change which rows are " +
			"the newest"
	case c.KeepNewest != nil && slices.ContainsFunc(c.KeepNewest.Per, isColumn):
		return "a column in per of keepNewest is it, or is generated from it: each batch would change the groups of the " +
			"next one"
	}
	return ""
}

// checkZone checks that values of a column do not depend on a time zone that is not known.
func (c *checker) checkZone(field string, column campaign.Column) {
	if c.env.Catalog.Zone.Unknown && column.Type == "pg_catalog.timestamptz" {
		c.wrong.Addf(field,
			"values of %s are read in the application's time zone, which is not known: correct the option %s",
			column.Name, campaign.ZoneOption)
	}
}

// checkFits checks that a column can store a value without changing it. Otherwise it adds a violation that ends with
// why.
func (c *checker) checkFits(ctx context.Context, field string, column campaign.Column, value, why string) error {
	before := len(c.wrong)
	compare := "SELECT (%[1]s::%[2]s)::text IS NOT DISTINCT FROM (%[1]s::%[3]s)::text"
	if column.Kind == "N" { // 1 and 1.00 are the same number
		compare = "SELECT %[1]s::%[2]s IS NOT DISTINCT FROM %[1]s::%[3]s"
	}
	same := false
	err := c.try(ctx, field, sqlexpr.Format(compare, sqlexpr.Arg(value, "text"), column.Type, column.Full), &same)
	if err == nil && len(c.wrong) == before && !same {
		c.wrong.Addf(field, "does not fit into %s, which is %s%s", column.Name, column.Full, why)
	}
	return err
}

// checkParts checks that PostgreSQL can evaluate each part of the compiled rule, for example that it can compare the
// types.
func (c *checker) checkParts(ctx context.Context, compiled *rules.Plan) error {
	for _, part := range c.parts() {
		clauses := compiled.Clauses(rules.Rules{{part.Part}}, c.table, c.env)
		if len(clauses) == 0 {
			c.wrong.Addf("policy."+part.field, "cannot be evaluated: %s", notes(compiled))
			continue
		}
		query := sqlexpr.Format("SELECT FROM %s AS r WHERE %s LIMIT 0", c.table.Quoted(), clauses[0][0].Condition)
		if err := c.try(ctx, "policy."+part.field, query); err != nil {
			return err
		}
	}
	return c.wrong.Err()
}

func notes(p *rules.Plan) string {
	var texts []string
	for _, n := range p.Notes {
		texts = append(texts, n.Text)
	}
	return strings.Join(texts, "; ")
}

// try runs a query in a savepoint, and reads its row if dest is given. A rejected query, for example with a value that
// its type does not allow, becomes a violation; a lost connection or an overloaded server is an error.
func (c *checker) try(ctx context.Context, field string, query sqlexpr.Expr, dest ...any) error {
	sql, args := query.Build()
	err := pgx.BeginFunc(ctx, c.tx, func(tx pgx.Tx) error {
		if dest != nil {
			return tx.QueryRow(ctx, sql, args...).Scan(dest...)
		}
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
	refused := (*pgconn.PgError)(nil)
	if !errors.As(err, &refused) || sqlstate.Lost(err) || pgerrcode.IsOperatorIntervention(refused.Code) ||
		pgerrcode.IsInsufficientResources(refused.Code) {
		return err
	}
	c.wrong.Addf(field, "PostgreSQL rejects it: %s", sqlstate.Explain(err))
	return nil
}

// MissingIndex returns the statement that creates an index for finding the newest rows of a group; empty if no
// index is missing.
func (p Policy) MissingIndex(t *campaign.Table) string {
	k := p.KeepNewest
	if k == nil || len(k.Per) == 0 || t.Location != "" {
		return ""
	}
	var columns, names []string
	for _, column := range append(slices.Clone(k.Per), p.orderBy()) {
		if column = t.Stored(column); !slices.Contains(columns, column) {
			columns, names = append(columns, column), append(names, pgx.Identifier{column}.Sanitize())
		}
	}
	if t.HasIndex(columns[:len(columns)-1], t.Stored(p.orderBy())) {
		return ""
	}
	return fmt.Sprintf("CREATE INDEX ON %s (%s)", t.Quoted(), strings.Join(names, ", "))
}
