package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Rules match a row if at least one of them does, or if there are none. A rule is noted and ignored if it needs a
// column, a parent table or a usable option that is missing.
type Rules []Rule

// A Rule matches if all its parts are true.
type Rule []Part

func (rule Rule) And(more ...Part) Rule { return slices.Concat(rule, more) }

// Part is a part of a rule. Unless documented otherwise, a part is not true if a column that it reads is NULL.
type Part interface {
	// applies reports whether the database has what the part needs, and notes the first table or column that is
	// missing.
	applies(c *compiler, r row) bool
	// sql is the condition that the part is true. If the part cannot be evaluated, it adds a note and ok is false.
	sql(c *compiler, r row) (condition sqlexpr.Expr, ok bool)
	describe(env Env) string
	// option is the option that the part reads, or the zero value.
	option() campaign.Option
	// columns are the columns of the row that the part reads. Some may be missing in the table.
	columns() []string
	// trueFrom is the SQL of the time from which the part is true for the row. It is empty if the part does not change
	// with time alone.
	trueFrom(c *compiler, r row) sqlexpr.Expr
}

type row struct {
	alias string
	table *campaign.Table
}

func (r row) column(name string) string { return r.alias + "." + r.table.Spell(name) }

func (rs Rules) orphans() (orphans []Orphan, every bool) {
	every = len(rs) > 0
	for _, r := range rs {
		before := len(orphans)
		for _, p := range r {
			if o, ok := p.(Orphan); ok {
				orphans = append(orphans, o)
			}
		}
		every = every && len(orphans) > before
	}
	return orphans, every
}

// date returns the SQL of the date that the rules compare with a cutoff, and its columns; both are empty if there
// is none.
func (rs Rules) date(r row) (sql string, columns []string) {
	for _, rule := range rs {
		for _, p := range rule {
			switch p := p.(type) {
			case Age:
				columns = []string{p.Column, p.Else}
			case SQL:
				columns = []string{p.Date}
			default:
				continue
			}
			columns = slices.DeleteFunc(columns,
				func(column string) bool { return column == "" || !r.table.Has(column) })
			if len(columns) > 0 {
				return coalesce(r, columns...), columns
			}
		}
	}
	return "", nil
}

func (rs Rules) options() (options []campaign.Option) {
	for _, r := range rs {
		for _, p := range r {
			options = append(options, p.option())
		}
	}
	return options
}

func (rs Rules) describe(env Env) string {
	var sides []string
	for _, r := range rs {
		var parts []string
		for _, p := range r {
			parts = append(parts, p.describe(env))
		}
		sides = append(sides, strings.Join(parts, " and "))
	}
	return strings.Join(sides, "; or ")
}

type (
	// noOption is embedded in parts that read no option and do not change with time alone, timeless in parts that may read
	// an option.
	noOption struct{ timeless }
	timeless struct{}
)

func (noOption) option() campaign.Option { return campaign.Option{} }

func (timeless) trueFrom(*compiler, row) (never sqlexpr.Expr) { return never }

// Source is a table that plain SQL reads, with its alias and the columns that the SQL names. If Table is empty, it
// is the row itself.
type Source struct {
	Alias, Table string
	Columns      []string
}

// SQL is a condition that no other part can express.
type SQL struct {
	noOption
	// Due is the SQL, written like Text, of the time from which the condition is true. It is empty if the condition
	// does not change with time alone.
	Due string
	// Text is SQL in which {alias} is the alias of a table in a FROM, and {now} the reference time. It must not become
	// true because a row of such a table is missing, since row security may hide that row; use Orphan instead.
	Text string
	// Reads are the tables and columns that the SQL names, including columns of the row itself.
	Reads []Source
	Words string
	// Date is the column of the row that is compared with a cutoff, if any.
	Date string
}

func (p SQL) applies(c *compiler, r row) bool {
	for _, s := range p.Reads {
		source := r
		if s.Table != "" {
			source.table = c.env.Catalog.Table(s.Table)
			if source.table == nil {
				c.plan.notef("table %s, on which rows of %s depend, is missing: skipped", s.Table, c.table.Name)
				return false
			}
			c.recordRead(source.table)
		}
		if !c.requireColumns(source, s.Columns...) {
			return false
		}
	}
	return true
}

func (p SQL) sql(c *compiler, _ row) (sqlexpr.Expr, bool) { return p.expand(c, p.Text), true }

// expand replaces the placeholders for tables and for the reference time.
func (p SQL) expand(c *compiler, text string) sqlexpr.Expr {
	for _, s := range p.Reads {
		if s.Table != "" {
			text = strings.ReplaceAll(text, "{"+s.Alias+"}", c.env.Catalog.Table(s.Table).Quoted()+" AS "+s.Alias)
		}
	}
	if !strings.Contains(text, "{now}") {
		return sqlexpr.SQL(text)
	}
	now, _, _ := (Age{}).cutoff(c.env) // this cannot fail without a delay
	format := strings.NewReplacer("%", "%%", "{now}", "%[1]s").Replace(text)
	return sqlexpr.Format(format, sqlexpr.Arg(now, "timestamptz"))
}

func (p SQL) trueFrom(c *compiler, _ row) sqlexpr.Expr { return p.expand(c, p.Due) }

func (p SQL) columns() (columns []string) {
	for _, s := range p.Reads {
		if s.Table == "" {
			columns = append(columns, s.Columns...)
		}
	}
	return columns
}

func (p SQL) describe(Env) string { return p.Words }

// Clause is a part of a rule, compiled to explain it for one row r.
type Clause struct {
	Text string
	// Condition is the SQL of whether the part is true. TrueFrom is the SQL of the time from which it is true; it is
	// empty if the part does not change with time alone.
	Condition, TrueFrom sqlexpr.Expr
	// Columns are the row's columns that the part reads. Some may be missing in the table.
	Columns []string
}

// Clauses returns the parts of each rule that is applicable to the table.
func (p *Plan) Clauses(rules Rules, t *campaign.Table, env Env) (applicable [][]Clause) {
	r := row{"r", t}
	for _, rule := range rules {
		var clauses []Clause
		for _, part := range rule {
			c := &compiler{env: env, plan: &Plan{Task: p.Task}, table: t}
			var condition sqlexpr.Expr
			applies := part.applies(c, r)
			if applies {
				condition, applies = part.sql(c, r)
			}
			if !applies {
				clauses = nil
				break
			}
			clauses = append(clauses, Clause{part.describe(env), condition, part.trueFrom(c, r), part.columns()})
		}
		if clauses != nil {
			applicable = append(applicable, clauses)
		}
	}
	return applicable
}

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

// Filter compares a column of a policy's table. PostgreSQL converts the values to the column's type.
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
