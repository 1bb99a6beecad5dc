package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Rules say which rows a step is about: those that match any of them, or all if there are none. A rule that is not
// applicable to a table, for want of a column, a parent or a usable option, is noted and ignored.
type Rules []Rule

// Rule is a condition on a row. All of its parts must hold.
type Rule []Part

// And is the rule with more parts.
func (rule Rule) And(more ...Part) Rule { return slices.Concat(rule, more) }

// Part is a part of a rule. It is never true where a column that it reads is NULL, unless it says so.
type Part interface {
	// applies notes which table or column is missing that the part reads, and reports whether none is.
	applies(c *compiler, r row) bool
	// sql is the part as SQL over the row; not ok, with a note, if it cannot be judged.
	sql(c *compiler, r row) (sql string, ok bool)
	// describe is the part for people, with its numbers.
	describe(env Env) string
	// option is the option that it reads; the zero value: none.
	option() campaign.Option
	// columns are those of the row that it reads; some may be missing.
	columns() []string
	// trueFrom is the SQL of the moment from which it is true, of a row of which it is not yet; empty: time alone does not
	// change it.
	trueFrom(c *compiler, r row) string
}

// row is a row that SQL is about.
type row struct {
	alias string
	table *campaign.Table
}

func (rs Rules) options() (options []campaign.Option) {
	for _, r := range rs {
		for _, p := range r {
			options = append(options, p.option())
		}
	}
	return options
}

// describe is what the rules say, for people.
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

// noOption is what parts have in common that read no option, and timeless that of those that time alone does not
// change.
type (
	noOption struct{ timeless }
	timeless struct{}
)

func (noOption) option() campaign.Option { return campaign.Option{} }

func (timeless) trueFrom(*compiler, row) string { return "" }

// comparison compares a column with numbers, or with NULL if there are none.
type comparison struct {
	noOption
	column, operator, text string
	values                 []int64
}

// IsKnown says that a column is not NULL.
func IsKnown(column string) Part {
	return comparison{column: column, operator: "IS NOT NULL", text: "is known"}
}

// Is says that a column has one of some values.
func Is(column string, values ...int64) Part {
	return comparison{column: column, operator: operatorFor(values, "=", "IN"), text: "is", values: values}
}

// IsNot says that a column has another value than some.
func IsNot(column string, values ...int64) Part {
	return comparison{column: column, operator: operatorFor(values, "<>", "NOT IN"), text: "is not", values: values}
}

// Above says that a column is greater than a value.
func Above(column string, value int64) Part {
	return comparison{column: column, operator: ">", text: "is above", values: []int64{value}}
}

// AtLeast says that a column is not less than a value.
func AtLeast(column string, value int64) Part {
	return comparison{column: column, operator: ">=", text: "is at least", values: []int64{value}}
}

// Below says that a column is less than a value.
func Below(column string, value int64) Part {
	return comparison{column: column, operator: "<", text: "is below", values: []int64{value}}
}

// operatorFor is an operator for a single value, or that for several.
func operatorFor(values []int64, single, several string) string {
	if len(values) == 1 {
		return single
	}
	return several
}

func (p comparison) applies(c *compiler, r row) bool { return c.requireColumns(r, p.column) }

// joinValues is the values, for SQL or for people.
func (p comparison) joinValues(between string) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(p.values)), between), "[]")
}

func (p comparison) sql(_ *compiler, r row) (string, bool) {
	list := p.joinValues(", ")
	if len(p.values) > 1 {
		list = "(" + list + ")"
	}
	return strings.TrimSpace(fmt.Sprintf("%s.%s %s %s", r.alias, p.column, p.operator, list)), true
}

func (p comparison) describe(Env) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.column, p.text, p.joinValues(" or ")))
}

func (p comparison) columns() []string { return []string{p.column} }

// Source is a table that plain SQL reads, by an alias, and the columns that it names; without a table the row itself.
type Source struct {
	Alias, Table string
	Columns      []string
}

// SQL is a condition that no other part says.
type SQL struct {
	noOption
	// Due is SQL as Text, of the moment from which it is true; empty: time alone does not change it.
	Due string
	// Text is SQL, in which {alias} stands for a table with that alias, in a FROM, and {now} for the run's clock.
	Text string
	// Reads are the tables and columns that it names, with the row's own.
	Reads []Source
	// Words say the same.
	Words string
	// Date is the row's date that it goes by; empty: none.
	Date string
}

func (p SQL) applies(c *compiler, r row) bool {
	for _, s := range p.Reads {
		of := r
		if s.Table != "" {
			of.table = c.Catalog.Table(s.Table)
			if of.table == nil {
				c.note(severity.Info, "table %s is missing, which %s is judged by: skipped", s.Table, c.table.Name)
				return false
			}
			c.recordRead(of.table)
		}
		if !c.requireColumns(of, s.Columns...) {
			return false
		}
	}
	return true
}

func (p SQL) sql(c *compiler, _ row) (string, bool) { return p.expand(c, p.Text), true }

// expand is a text with the tables and the clock in.
func (p SQL) expand(c *compiler, text string) string {
	for _, s := range p.Reads {
		if s.Table != "" {
			text = strings.ReplaceAll(text, "{"+s.Alias+"}", c.Catalog.Table(s.Table).Quoted()+" AS "+s.Alias)
		}
	}
	if strings.Contains(text, "{now}") {
		now, _, _ := (Age{}).cutoff(c.Env) // without a delay it does not fail
		text = strings.ReplaceAll(text, "{now}", c.bind(now, "timestamptz"))
	}
	return text
}

func (p SQL) trueFrom(c *compiler, _ row) string { return p.expand(c, p.Due) }

// columns are those of the row itself.
func (p SQL) columns() (columns []string) {
	for _, s := range p.Reads {
		if s.Table == "" {
			columns = append(columns, s.Columns...)
		}
	}
	return columns
}

func (p SQL) describe(Env) string { return p.Words }
