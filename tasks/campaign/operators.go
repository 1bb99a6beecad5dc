package campaign

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Equality compares a key with a column that refers to it. Its Operator includes the schema, because PostgreSQL
// would look up "=" on the search path. Key and Column are casts to the types that the operator compares, for
// columns of other types: text = char(8) is not the operator of a foreign key between such columns. If collations
// differ, both casts have the key's collation. Type is the key's type, with its collation, if a foreign key refers to
// it.
type Equality struct{ Operator, Type, Key, Column string }

// Of returns the condition that a column refers to a key.
func (e Equality) Of(key, column string) string {
	return fmt.Sprintf("%s%s %s %s%s", key, e.Key, e.Operator, column, e.Column)
}

// Among returns the condition that a column refers to a key of some row of a relation.
func (e Equality) Among(column, key string, relation sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("%s%s %s ANY (SELECT DISTINCT p.%s%s FROM %s AS p)", column, e.Column, e.Operator, key, e.Key,
		relation)
}

// operatorClass is a query for the default B-tree operator class of a type t that is not a domain. It finds the class
// that PostgreSQL uses.
const operatorClass = `
  SELECT o.opcfamily, o.opcintype, i.typtype FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod AND m.amname =
	'btree'
    JOIN pg_type i ON i.oid = o.opcintype
  WHERE o.opcdefault AND (o.opcintype = t.oid OR EXISTS (SELECT FROM pg_cast x WHERE x.castsource = t.oid
      AND x.casttarget = o.opcintype AND x.castmethod = 'b' AND x.castcontext = 'i')
    OR o.opcintype = CASE WHEN t.typcategory = 'A' THEN 'anyarray'::regtype WHEN t.typtype = 'e' THEN 'anyenum'::regtype
      WHEN t.typtype = 'r' THEN 'anyrange'::regtype WHEN t.typtype = 'm' THEN 'anymultirange'::regtype
      WHEN t.typtype = 'c' THEN 'record'::regtype END)
  ORDER BY o.opcintype <> t.oid, NOT i.typispreferred LIMIT 1`

// Operator returns the SQL of an operator (<, <=, =, >= or >) in the order of the column's type. It is empty if the
// type has no order.
func (c Column) Operator(comparison string) string {
	i := slices.Index([]string{"<", "<=", "=", ">=", ">"}, comparison)
	if i >= len(c.operators) {
		return ""
	}
	return c.operators[i]
}

// Equality returns how a key of the table is compared with a column of another table that refers to it: as a
// foreign key between them does, or else by the order of their types. ok is false if these have no common order.
// Keys of tables whose columns were not read are integers.
func (t *Table) Equality(key string, child *Table, column string) (e Equality, ok bool) {
	is := func(sql, column string) bool { return sql == column || sql == pgx.Identifier{column}.Sanitize() }
	for _, k := range slices.Concat(t.Cascades, t.Refusals) {
		for i := range k.Keys {
			if k.Table == child && is(k.Keys[i], t.Stored(key)) && is(k.Columns[i], child.Stored(column)) {
				return k.Equal[i], true
			}
		}
	}
	of, named := t.Column(key)
	link, linkNamed := child.Column(column)
	if !named || !linkNamed {
		return Equality{Operator: "="}, true
	}
	return Equality{Operator: of.Operator("=")}, of.comparable != "" && of.comparable == link.comparable
}
