package rules

import (
	"fmt"
	"time"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Age struct {
	// Else is the column to use if Column is NULL or missing; it may be empty.
	Column, Else string
	// Delay and More, where set, are subtracted from the reference time to get the cutoff.
	Delay campaign.Option
	More  time.Duration
	// operator compares the date with the cutoff; text describes that in messages.
	operator, text string
	inHours        bool // whether More is described in hours
}

// Older matches rows whose date is before the cutoff. A row without the date does not match.
func Older(column string, delay campaign.Option) Age {
	return Age{Column: column, Delay: delay, operator: "<", text: "older than"}
}

func Past(column string) Age { return Age{Column: column, operator: "<", text: "before"} }

func Reached(column string) Age { return Age{Column: column, operator: "<=", text: "not after"} }

func Younger(column string, than time.Duration) Age {
	return Age{Column: column, More: than, operator: ">", text: "younger than"}
}

// Or adds the column to use if the first one is NULL or missing.
func (p Age) Or(column string) Age {
	p.Else = column
	return p
}

func (p Age) By(more time.Duration) Age {
	p.More = more
	if p.Delay == (campaign.Option{}) && p.operator == "<" && more > 0 {
		p.text = "older than"
	}
	return p
}

func (p Age) ByHours(hours int) Age {
	p.inHours = true
	return p.By(time.Duration(hours) * time.Hour)
}

func (p Age) applies(c *compiler, r row) bool {
	return (p.Else != "" && (r.table.Has(p.Column) || r.table.Has(p.Else))) || c.requireColumns(r, p.Column)
}

// cutoff returns the cutoff, and its distance from the reference time. It fails if the delay cannot be used.
func (p Age) cutoff(env Env) (time.Time, time.Duration, error) {
	delay := p.More
	if at, ok := env.Earlier[p.Delay.Name]; ok {
		return at.Add(-delay), delay, nil
	}
	if p.Delay != (campaign.Option{}) {
		stored, err := env.Options.Delay(p.Delay)
		if err != nil {
			return time.Time{}, 0, err
		}
		delay += stored
	}
	return env.Now.Add(-delay), delay, nil
}

func (p Age) sql(c *compiler, r row) (condition sqlexpr.Expr, ok bool) {
	cutoff, _, err := p.cutoff(c.env)
	if err != nil {
		c.plan.note(message.OptionUnusable.With("error", err, "table", c.table.Name))
		return condition, false
	}
	if p.operator == ">" {
		cutoff = c.env.Catalog.Zone.After(cutoff)
	}
	date := coalesce(r, p.Column, p.Else)
	return sqlexpr.Format("%s %s %s", date, p.operator, sqlexpr.Arg(cutoff, "timestamptz")), true
}

func (p Age) describe(env Env) string {
	cutoff, delay, err := p.cutoff(env)
	column := p.Column
	if p.Else != "" {
		column += " (or " + p.Else + ")"
	}
	at := cutoff.UTC().Format("2006-01-02 15:04 UTC")
	switch {
	case err != nil:
		return fmt.Sprintf("%s %s a delay that cannot be used", column, p.text)
	case delay == 0:
		return fmt.Sprintf("%s %s %s", column, p.text, at)
	case p.inHours:
		return fmt.Sprintf("%s %s %s (%s)", column, p.text, count(delay/time.Hour, "hour"), at)
	case delay%campaign.Day == 0:
		return fmt.Sprintf("%s %s %s (%s)", column, p.text, count(delay/campaign.Day, "day"), at)
	}
	return fmt.Sprintf("%s %s %s (%s)", column, p.text, delay, at)
}

func count(n time.Duration, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

func (p Age) option() campaign.Option { return p.Delay }

func (p Age) columns() []string { return []string{p.Column, p.Else} }

func (p Age) trueFrom(c *compiler, r row) (from sqlexpr.Expr) {
	_, delay, err := p.cutoff(c.env)
	if err != nil || p.operator == ">" {
		return from
	}
	return sqlexpr.Format("%s + interval '%d seconds'", ClampDate(coalesce(r, p.Column, p.Else)),
		int64(delay.Seconds()))
}

type inWholePartition struct{ age Age }

// InWholePartition is true for rows of a partition that ends before the cutoff of an age, in a table that is
// partitioned by range of that date alone.
func InWholePartition(age Age) Part { return inWholePartition{age} }

func (p inWholePartition) applies(c *compiler, r row) bool { return p.age.applies(c, r) }

func (p inWholePartition) sql(c *compiler, r row) (condition sqlexpr.Expr, ok bool) {
	cutoff, _, err := p.age.cutoff(c.env)
	return sqlexpr.Format("r.tableoid IN (%s)",
		purge.WholePartitions(r.table.Quoted(), r.table.Stored(p.age.Column), cutoff)), err == nil
}

func (inWholePartition) describe(Env) string { return "in a partition that ends before that" }

func (p inWholePartition) option() campaign.Option { return p.age.option() }

func (inWholePartition) columns() []string { return nil }

// The time is unknown: rows leave with their partition, which ends after their dates.
func (inWholePartition) trueFrom(*compiler, row) (unknown sqlexpr.Expr) { return unknown }

// Never is a time that is never reached. The API cannot represent a later time, and PostgreSQL can still add a
// delay to it.
const Never = "timestamptz '10000-01-01 00:00:00+00'"

func ClampDate(date string) string { return "least(" + date + "::timestamptz, " + Never + ")" }

type since struct {
	timeless
	column string
	stored campaign.Option
}

// Since is true for a date that is not before the time in an option, and for every date if the option is not
// stored.
func Since(column string, stored campaign.Option) Part { return since{column: column, stored: stored} }

func (p since) applies(c *compiler, r row) bool { return c.requireColumns(r, p.column) }

func (p since) sql(c *compiler, r row) (condition sqlexpr.Expr, ok bool) {
	problem := ""
	if options := c.env.Catalog.Table("XtkOption"); options != nil && options.RowSecurity {
		problem = "row security may hide rows of XtkOption"
	}
	if c.env.Catalog.InPlaceOf("XtkOption") != nil {
		problem = c.env.Catalog.DescribeMissing("XtkOption")
	}
	if problem != "" {
		c.plan.note(message.LastCleanupUnknown.With("problem", problem, "table", c.table.Name))
		return condition, false
	}
	last, err := c.env.Options.Moment(p.stored)
	if err != nil {
		c.plan.note(message.OptionUnusable.With("error", err, "table", c.table.Name))
		return condition, false
	}
	if last != nil {
		*last = c.env.Catalog.Zone.After(*last)
	}
	stored := sqlexpr.Arg(last, "timestamptz")
	return sqlexpr.Format("%s.%s >= COALESCE(%s, '-infinity')", r.alias, p.column, stored), true
}

func (p since) describe(env Env) string {
	last, err := env.Options.Moment(p.stored)
	if err != nil || last == nil {
		return p.column + " is known"
	}
	return fmt.Sprintf("%s since %s", p.column, last.UTC().Format("2006-01-02 15:04 UTC"))
}

func (p since) option() campaign.Option { return p.stored }

func (p since) columns() []string { return []string{p.column} }
