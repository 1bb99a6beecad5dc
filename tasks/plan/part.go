package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Rules say which rows a step is about: those that match any of them, or all if there are none. A rule that is not applicable to
// a table, for want of a column, a parent or a usable option, is noted and ignored.
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
	words(g Given) string
	// option is the option that it reads; the zero value: none.
	option() campaign.Option
	// columns are those of the row that it reads; some may be missing.
	columns() []string
	// due is the SQL of the moment from which it is true, of a row of which it is not yet; empty: time alone does not change it.
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
func (rs Rules) words(g Given) string {
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

// noOption is what parts have in common that read no option, and timeless that of those that time alone does not change.
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

func (p comparison) words(Given) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.column, p.name, p.list(" or ")))
}

func (p comparison) columns() []string { return []string{p.column} }

// Age compares a date with a moment in the past.
type Age struct {
	// Column is that of the date; where it is NULL, or missing, it is that of Else, unless that is empty.
	Column, Else string
	// Delay is how far back the moment lies, More further; without both it is the run's clock.
	Delay campaign.Option
	More  time.Duration
	// operator is how the date compares with it.
	operator, name string
}

// Older says that a date is before the run's clock less a delay.
func Older(column string, delay campaign.Option) Age {
	return Age{Column: column, Delay: delay, operator: "<", name: "older than"}
}

// Past says that a date is before the run's clock.
func Past(column string) Age { return Age{Column: column, operator: "<", name: "before"} }

// Reached says that a date is not after the run's clock.
func Reached(column string) Age { return Age{Column: column, operator: "<=", name: "not after"} }

// Younger says that a date is after the run's clock less some time.
func Younger(column string, than time.Duration) Age {
	return Age{Column: column, More: than, operator: ">", name: "younger than"}
}

// Or is the age by another column where the first is NULL, or missing.
func (p Age) Or(column string) Age {
	p.Else = column
	return p
}

// By is the age with a longer delay.
func (p Age) By(more time.Duration) Age {
	p.More = more
	if p.Delay == (campaign.Option{}) && p.operator == "<" {
		p.name = "older than"
	}
	return p
}

func (p Age) there(c *compiler, r row) bool {
	return p.Else != "" && (r.table.Has(p.Column) || r.table.Has(p.Else)) || c.has(r, p.Column)
}

// moment is what the date is compared with; it fails if the delay cannot be used.
func (p Age) moment(g Given) (time.Time, time.Duration, error) {
	delay := p.More
	if at, ok := g.Earlier[p.Delay.Name]; ok {
		return at.Add(-delay), delay, nil
	}
	if p.Delay != (campaign.Option{}) {
		stored, err := g.Options.Delay(p.Delay)
		if err != nil {
			return time.Time{}, 0, err
		}
		delay += stored
	}
	return g.Now.Add(-delay), delay, nil
}

func (p Age) sql(c *compiler, r row) (string, bool) {
	moment, _, err := p.moment(c.Given)
	if err != nil {
		c.note(severity.Warning, "%v; %s is left as it is", err, c.table.Name)
		return "", false
	}
	return fmt.Sprintf("%s %s %s", c.first(r, p.Column, p.Else), p.operator, c.bind(moment, "timestamptz")), true
}

func (p Age) words(g Given) string {
	moment, delay, err := p.moment(g)
	column := p.Column
	if p.Else != "" {
		column += " (or " + p.Else + ")"
	}
	at := moment.UTC().Format("2006-01-02 15:04 UTC")
	switch {
	case err != nil:
		return fmt.Sprintf("%s %s a delay that can not be used", column, p.name)
	case delay == 0:
		return fmt.Sprintf("%s %s %s", column, p.name, at)
	case delay%campaign.Day == 0:
		return fmt.Sprintf("%s %s %d days (%s)", column, p.name, delay/campaign.Day, at)
	}
	return fmt.Sprintf("%s %s %s (%s)", column, p.name, delay, at)
}

func (p Age) option() campaign.Option { return p.Delay }

func (p Age) columns() []string { return []string{p.Column, p.Else} }

func (p Age) due(c *compiler, r row) string {
	_, delay, err := p.moment(c.Given)
	if err != nil || p.operator == ">" {
		return ""
	}
	return fmt.Sprintf("%s::timestamptz + interval '%d seconds'", c.first(r, p.Column, p.Else), int64(delay.Seconds()))
}

// since says that a date is not before a stored moment.
type since struct {
	timeless
	column string
	stored campaign.Option
}

// Since says that a date is not before a stored moment, or that there is none.
func Since(column string, stored campaign.Option) Part { return since{column: column, stored: stored} }

func (p since) there(c *compiler, r row) bool { return c.has(r, p.column) }

func (p since) sql(c *compiler, r row) (string, bool) {
	if options := c.Catalog.Table("XtkOption"); options != nil && options.RowSecurity {
		c.note(severity.Warning, "row security may hide rows of XtkOption, which keeps when the last cleanup was; %s is left as it is", c.table.Name)
		return "", false
	}
	last, err := c.Options.Moment(p.stored)
	if err != nil {
		c.note(severity.Warning, "%v; %s is left as it is", err, c.table.Name)
		return "", false
	}
	return fmt.Sprintf("%s.%s >= COALESCE(%s, '-infinity')", r.alias, p.column, c.bind(last, "timestamptz")), true
}

func (p since) words(g Given) string {
	last, err := g.Options.Moment(p.stored)
	if err != nil || last == nil {
		return p.column + " is known"
	}
	return fmt.Sprintf("%s since %s", p.column, last.UTC().Format("2006-01-02 15:04 UTC"))
}

func (p since) option() campaign.Option { return p.stored }

func (p since) columns() []string { return []string{p.column} }

// Orphan says that a link leads to a row that is gone. 0 is no link. A parent without any row, or whose rows may be hidden from this
// role, proves nothing.
type Orphan struct {
	noOption
	// Column is the link.
	Column string
	// Parent is the table that it leads to, Key its id column.
	Parent, Key string
	// EmptyAfter names the task whose success in this run makes an empty parent credible; empty: an empty parent
	// proves nothing.
	EmptyAfter string
}

func (p Orphan) there(c *compiler, r row) bool {
	return c.has(r, p.Column) && c.parent(p.Parent, p.Key) != nil
}

// sql asks again in the deleting statement whether the parent has rows.
func (p Orphan) sql(c *compiler, r row) (string, bool) {
	parent := c.Catalog.Table(p.Parent)
	from := c.seen(parent)
	missing := "NOT EXISTS (SELECT FROM %[3]s AS p WHERE p.%[4]s = %[1]s.%[2]s)"
	if !strings.EqualFold(parent.Key, p.Key) || c.apart() { // says the same, but hashes the parents once per statement: no index finds one
		missing = "(%[1]s.%[2]s IN (SELECT DISTINCT p.%[4]s FROM %[3]s AS p)) IS NOT TRUE"
	}
	sql := fmt.Sprintf("%[1]s.%[2]s <> 0 AND "+missing, r.alias, p.Column, from, p.Key)
	has := fmt.Sprintf("EXISTS (SELECT 1 FROM %s AS p)", from)
	if p.EmptyAfter != "" {
		has = fmt.Sprintf("(%s OR %s)", c.bind(SucceededTask(p.EmptyAfter), "boolean"), has)
	}
	return sql + " AND " + has, true
}

func (p Orphan) words(Given) string { return fmt.Sprintf("its %s (%s) is gone", p.Parent, p.Column) }

func (p Orphan) columns() []string { return []string{p.Column} }

// Linked says that a column leads to a row of another table, of which a rule is true.
type Linked struct {
	noOption
	// Column is the link.
	Column string
	// To is the table that it leads to, Key its id column.
	To, Key string
	That    Rule
}

func (p Linked) there(c *compiler, r row) bool {
	to := row{"p", c.Catalog.Table(p.To)}
	if to.table == nil {
		c.note(severity.Info, "table %s is missing, which %s is judged by: skipped", p.To, c.table.Name)
		return false
	}
	c.reads(to.table)
	return c.has(to, p.Key) && c.has(r, p.Column) && c.there(p.That, to)
}

func (p Linked) sql(c *compiler, r row) (string, bool) {
	to := row{"p", c.Catalog.Table(p.To)}
	that, ok := c.all(p.That, to)
	return fmt.Sprintf("EXISTS (SELECT FROM %s AS p WHERE p.%s = %s.%s AND %s)", c.seen(to.table), p.Key, r.alias, p.Column, that), ok
}

func (p Linked) words(g Given) string {
	return fmt.Sprintf("its %s (%s) has %s", p.To, p.Column, Rules{p.That}.words(g))
}

func (p Linked) columns() []string { return []string{p.Column} }

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
		now, _, _ := (Age{}).moment(c.Given) // without a delay it does not fail
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

func (p SQL) words(Given) string { return p.Words }
