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
	// there notes which table or column is missing that the part reads, and reports whether none is.
	there(c *compiler, r row) bool
	// sql is the part as SQL over the row; not ok, with a note, if it cannot be judged.
	sql(c *compiler, r row) (sql string, ok bool)
	// words is the part for people, with its numbers.
	words(g Env) string
	// option is the option that it reads; the zero value: none.
	option() campaign.Option
	// columns are those of the row that it reads; some may be missing.
	columns() []string
	// due is the SQL of the moment from which it is true, of a row of which it is not yet; empty: time alone does not
	// change it.
	due(c *compiler, r row) string
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

// words is what the rules say, for people.
func (rs Rules) words(g Env) string {
	var sides []string
	for _, r := range rs {
		var parts []string
		for _, p := range r {
			parts = append(parts, p.words(g))
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

func (timeless) due(*compiler, row) string { return "" }

// comparison compares a column with numbers, or with NULL if there are none.
type comparison struct {
	noOption
	column, operator, name string
	values                 []int64
}

// IsKnown says that a column is not NULL.
func IsKnown(column string) Part {
	return comparison{column: column, operator: "IS NOT NULL", name: "is known"}
}

// Is says that a column has one of some values.
func Is(column string, values ...int64) Part {
	return comparison{column: column, operator: one(values, "=", "IN"), name: "is", values: values}
}

// IsNot says that a column has another value than some.
func IsNot(column string, values ...int64) Part {
	return comparison{column: column, operator: one(values, "<>", "NOT IN"), name: "is not", values: values}
}

// Above says that a column is greater than a value.
func Above(column string, value int64) Part {
	return comparison{column: column, operator: ">", name: "is above", values: []int64{value}}
}

// AtLeast says that a column is not less than a value.
func AtLeast(column string, value int64) Part {
	return comparison{column: column, operator: ">=", name: "is at least", values: []int64{value}}
}

// Below says that a column is less than a value.
func Below(column string, value int64) Part {
	return comparison{column: column, operator: "<", name: "is below", values: []int64{value}}
}

// one is an operator for a single value, or that for several.
func one(values []int64, single, several string) string {
	if len(values) == 1 {
		return single
	}
	return several
}

func (p comparison) there(c *compiler, r row) bool { return c.has(r, p.column) }

// list is the values, for SQL or for people.
func (p comparison) list(between string) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(p.values)), between), "[]")
}

func (p comparison) sql(_ *compiler, r row) (string, bool) {
	list := p.list(", ")
	if len(p.values) > 1 {
		list = "(" + list + ")"
	}
	return strings.TrimSpace(fmt.Sprintf("%s.%s %s %s", r.alias, p.column, p.operator, list)), true
}

func (p comparison) words(Env) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.column, p.name, p.list(" or ")))
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

func (p SQL) there(c *compiler, r row) bool {
	for _, s := range p.Reads {
		of := r
		if s.Table != "" {
			of.table = c.Catalog.Table(s.Table)
			if of.table == nil {
				c.note(severity.Info, "table %s is missing, which %s is judged by: skipped", s.Table, c.table.Name)
				return false
			}
			c.reads(of.table)
		}
		if !c.has(of, s.Columns...) {
			return false
		}
	}
	return true
}

func (p SQL) sql(c *compiler, _ row) (string, bool) { return p.filled(c, p.Text), true }

// filled is a text with the tables and the clock in.
func (p SQL) filled(c *compiler, text string) string {
	for _, s := range p.Reads {
		if s.Table != "" {
			text = strings.ReplaceAll(text, "{"+s.Alias+"}", c.Catalog.Table(s.Table).Quoted()+" AS "+s.Alias)
		}
	}
	if strings.Contains(text, "{now}") {
		now, _, _ := (Age{}).moment(c.Env) // without a delay it does not fail
		text = strings.ReplaceAll(text, "{now}", c.bind(now, "timestamptz"))
	}
	return text
}

func (p SQL) due(c *compiler, _ row) string { return p.filled(c, p.Due) }

// columns are those of the row itself.
func (p SQL) columns() (columns []string) {
	for _, s := range p.Reads {
		if s.Table == "" {
			columns = append(columns, s.Columns...)
		}
	}
	return columns
}

func (p SQL) words(Env) string { return p.Words }
