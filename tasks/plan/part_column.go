package plan

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// comparison compares a column with numbers, or with NULL if there are none.
type comparison struct {
	noOption
	column, operator, text string
	values                 []int64
}

func IsKnown(column string) Part {
	return comparison{column: column, operator: "IS NOT NULL", text: "is known"}
}

func Is(column string, values ...int64) Part {
	return comparison{column: column, operator: operatorFor(values, "=", "IN"), text: "is", values: values}
}

func IsNot(column string, values ...int64) Part {
	return comparison{column: column, operator: operatorFor(values, "<>", "NOT IN"), text: "is not", values: values}
}

func Above(column string, value int64) Part {
	return comparison{column: column, operator: ">", text: "is above", values: []int64{value}}
}

func AtLeast(column string, value int64) Part {
	return comparison{column: column, operator: ">=", text: "is at least", values: []int64{value}}
}

func Below(column string, value int64) Part {
	return comparison{column: column, operator: "<", text: "is below", values: []int64{value}}
}

func operatorFor(values []int64, single, several string) string {
	if len(values) == 1 {
		return single
	}
	return several
}

func (p comparison) applies(c *compiler, r row) bool { return c.requireColumns(r, p.column) }

func (p comparison) joinValues(separator string) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(p.values)), separator), "[]")
}

func (p comparison) sql(_ *compiler, r row) (sqlexpr.Expr, bool) {
	list := p.joinValues(", ")
	if len(p.values) > 1 {
		list = "(" + list + ")"
	}
	return sqlexpr.SQL(strings.TrimSpace(fmt.Sprintf("%s.%s %s %s", r.alias, p.column, p.operator, list))), true
}

func (p comparison) describe(Env) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.column, p.text, p.joinValues(" or ")))
}

func (p comparison) columns() []string { return []string{p.column} }

type Op string

// These are the operators of a Filter. Only Null is true for NULL.
const (
	Equal          Op = "="
	NotEqual       Op = "<>"
	Less           Op = "<"
	LessOrEqual    Op = "<="
	Greater        Op = ">"
	GreaterOrEqual Op = ">="
	In             Op = "= ANY"
	NotIn          Op = "<> ALL"
	Null           Op = "IS NULL"
	NotNull        Op = "IS NOT NULL"
	StartsWith     Op = "starts with"
)

// Filter compares a column of a table that a policy names. PostgreSQL converts the values to the column's type.
type Filter struct {
	noOption
	Column string
	Op     Op
	Values []string
}

func (p Filter) applies(c *compiler, r row) bool { return c.requireColumns(r, p.Column) }

func (p Filter) sql(c *compiler, r row) (condition sqlexpr.Expr, ok bool) {
	column, ok := r.table.Column(p.Column)
	var values []sqlexpr.Expr
	for _, v := range p.Values {
		values = append(values, typed(v, column.Type))
	}
	if !ok || (len(values) == 0 && p.Op != Null && p.Op != NotNull) {
		return condition, false
	}
	name, equal := r.column(p.Column), column.Operator("=")
	switch {
	case p.Op == Null || p.Op == NotNull:
		return sqlexpr.Format("%s %s", name, p.Op), true
	case p.Op == StartsWith: // starts_with does not work with every collation
		return sqlexpr.Format(`starts_with(%s::text COLLATE "C", %s)`, name, sqlexpr.Arg(p.Values[0], "text")), true
	case equal == "":
		return condition, false
	case (p.Op == In || p.Op == NotIn) && column.Kind == "A": // elements of an array of arrays have the wrong type
		for _, v := range values {
			condition = sqlexpr.Or(condition, sqlexpr.Format("%s %s %s", name, equal, v))
		}
	case p.Op == In || p.Op == NotIn: // one parameter for all values: a statement can have at most 65,535
		condition = sqlexpr.Format("%s %s ANY (%s::%s[])", name, equal, sqlexpr.Arg(p.Values, "text[]"), column.Type)
	case p.Op == Equal || p.Op == NotEqual:
		condition = sqlexpr.Format("%s %s %s", name, equal, values[0])
	default:
		return sqlexpr.Format("%s %s %s", name, column.Operator(string(p.Op)), values[0]), true
	}
	if p.Op == NotEqual || p.Op == NotIn {
		return sqlexpr.Format("NOT (%s)", condition), true
	}
	return sqlexpr.Format("(%s)", condition), true
}

// typed returns the SQL of a value, converted to a type.
func typed(value, sqlType string) sqlexpr.Expr {
	return sqlexpr.Format("%s::%s", sqlexpr.Arg(value, "text"), sqlType)
}

func (p Filter) describe(Env) string {
	text := map[Op]string{
		Equal: "is", NotEqual: "is not", Less: "is below", LessOrEqual: "is at most", Greater: "is above",
		GreaterOrEqual: "is at least", In: "is", NotIn: "is not", Null: "is NULL", NotNull: "is known",
		StartsWith: "begins with",
	}[p.Op]
	var values []string
	for _, v := range p.Values {
		values = append(values, fmt.Sprintf("%q", v))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Column, text, strings.Join(values, " or ")))
}

func (p Filter) columns() []string { return []string{p.Column} }

// Differs is true if at least one column does not have its new value.
type Differs struct {
	noOption
	From []Assignment
}

func (p Differs) applies(c *compiler, r row) bool { return c.requireColumns(r, p.columns()...) }

// sql compares the columns with their new values as the columns would store them. It compares them as texts, since
// not all types can be compared.
func (p Differs) sql(c *compiler, r row) (sqlexpr.Expr, bool) {
	var differ []sqlexpr.Expr
	for _, a := range p.From {
		detail, ok := r.table.Column(a.Column)
		value, known := a.Value.sql(c, a.Column)
		if !ok || !known {
			return sqlexpr.Expr{}, false
		}
		differ = append(differ,
			sqlexpr.Format("%s::text IS DISTINCT FROM (%s)::%s::text", r.column(a.Column), value, detail.Full))
	}
	return sqlexpr.Format("(%s)", sqlexpr.Or(differ...)), true
}

func (p Differs) describe(Env) string { return "is not changed yet" }

func (p Differs) columns() (columns []string) {
	for _, a := range p.From {
		columns = append(columns, a.Column)
	}
	return columns
}
