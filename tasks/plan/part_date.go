package plan

import (
	"fmt"
	"time"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Age compares a date with a moment in the past.
type Age struct {
	// Column is that of the date; where it is NULL, or missing, it is that of Else, unless that is empty.
	Column, Else string
	// Delay is how far back the moment lies, More further; without both it is the run's clock.
	Delay campaign.Option
	More  time.Duration
	// operator is how the date compares with it.
	operator, text string
}

// Older says that a date is before the run's clock less a delay.
func Older(column string, delay campaign.Option) Age {
	return Age{Column: column, Delay: delay, operator: "<", text: "older than"}
}

// Past says that a date is before the run's clock.
func Past(column string) Age { return Age{Column: column, operator: "<", text: "before"} }

// Reached says that a date is not after the run's clock.
func Reached(column string) Age { return Age{Column: column, operator: "<=", text: "not after"} }

// Younger says that a date is after the run's clock less some time.
func Younger(column string, than time.Duration) Age {
	return Age{Column: column, More: than, operator: ">", text: "younger than"}
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
		p.text = "older than"
	}
	return p
}

func (p Age) applies(c *compiler, r row) bool {
	return (p.Else != "" && (r.table.Has(p.Column) || r.table.Has(p.Else))) || c.requireColumns(r, p.Column)
}

// cutoff is what the date is compared with; it fails if the delay cannot be used.
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

func (p Age) sql(c *compiler, r row) (string, bool) {
	moment, _, err := p.cutoff(c.Env)
	if err != nil {
		c.note(severity.Warning, "%v; %s is left as it is", err, c.table.Name)
		return "", false
	}
	if p.operator == ">" {
		moment = c.Catalog.Zone.After(moment)
	}
	return fmt.Sprintf("%s %s %s", c.coalesce(r, p.Column, p.Else), p.operator, c.bind(moment, "timestamptz")), true
}

func (p Age) describe(env Env) string {
	moment, delay, err := p.cutoff(env)
	column := p.Column
	if p.Else != "" {
		column += " (or " + p.Else + ")"
	}
	at := moment.UTC().Format("2006-01-02 15:04 UTC")
	switch {
	case err != nil:
		return fmt.Sprintf("%s %s a delay that can not be used", column, p.text)
	case delay == 0:
		return fmt.Sprintf("%s %s %s", column, p.text, at)
	case delay%campaign.Day == 0:
		return fmt.Sprintf("%s %s %d days (%s)", column, p.text, delay/campaign.Day, at)
	}
	return fmt.Sprintf("%s %s %s (%s)", column, p.text, delay, at)
}

func (p Age) option() campaign.Option { return p.Delay }

func (p Age) columns() []string { return []string{p.Column, p.Else} }

func (p Age) trueFrom(c *compiler, r row) string {
	_, delay, err := p.cutoff(c.Env)
	if err != nil || p.operator == ">" {
		return ""
	}
	return fmt.Sprintf("%s + interval '%d seconds'", ClampDate(c.coalesce(r, p.Column, p.Else)), int64(delay.Seconds()))
}

// Never is a moment that does not come: neither the API nor PostgreSQL, with a delay, has later ones.
const Never = "timestamptz '10000-01-01 00:00:00+00'"

// ClampDate is the SQL of a date, or Never if that is sooner.
func ClampDate(date string) string { return "least(" + date + "::timestamptz, " + Never + ")" }

// since says that a date is not before a stored moment.
type since struct {
	timeless
	column string
	stored campaign.Option
}

// Since says that a date is not before a stored moment, or that there is none.
func Since(column string, stored campaign.Option) Part { return since{column: column, stored: stored} }

func (p since) applies(c *compiler, r row) bool { return c.requireColumns(r, p.column) }

func (p since) sql(c *compiler, r row) (string, bool) {
	if options := c.Catalog.Table("XtkOption"); options != nil && options.RowSecurity {
		c.note(
			severity.Warning,
			"row security may hide rows of XtkOption, which keeps when the last cleanup was; %s is left as it is",
			c.table.Name,
		)
		return "", false
	}
	last, err := c.Options.Moment(p.stored)
	if err != nil {
		c.note(severity.Warning, "%v; %s is left as it is", err, c.table.Name)
		return "", false
	}
	if last != nil {
		*last = c.Catalog.Zone.After(*last)
	}
	return fmt.Sprintf("%s.%s >= COALESCE(%s, '-infinity')", r.alias, p.column, c.bind(last, "timestamptz")), true
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
