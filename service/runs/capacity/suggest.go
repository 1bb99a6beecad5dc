package capacity

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// Limits are the size and the growth above which a policy is suggested for a table.
type Limits struct {
	Bytes int64
	// GrowthPercent is the growth per day in percent of the size. It counts only for tables of GrowthBytes or more, since
	// small tables double easily.
	GrowthPercent float64
	GrowthBytes   int64
	// Days is how long the suggested policy keeps rows.
	Days int32
}

var DefaultLimits = Limits{Bytes: 1 << 30, GrowthPercent: 1, GrowthBytes: 10 << 20, Days: 365}

// Suggestion is a policy to consider for a table that nothing covers.
type Suggestion struct {
	Reason string
	// Disabled is the task of an existing policy for the table that is not enabled; "" if there is none.
	Disabled string
	// Policy is the name of the suggested policy. It is "" if the table has a policy already, or no date by which rows
	// could be deleted.
	Policy string
	// Column is the date with which Days are compared, and ColumnReason why it was chosen.
	Column, ColumnReason string
	Days                 int32 // 0 for a time at which a row expires
}

// Command returns the command that previews the policy once it is set, or "" if there is no policy.
func (s Suggestion) Command() string {
	task := s.Disabled
	if task == "" && s.Policy != "" {
		task = policy.Prefix + s.Policy
	}
	if task == "" {
		return ""
	}
	return "cleanupd run --dry-run --task " + task
}

// suggest returns nil for tables that are covered, for the application's own tables, because their rows depend on each
// other without foreign keys, and, unless all is set, for tables within the limits and those whose dates do not show
// the age of a row.
func (l Limits) suggest(t *Table, c covered, name string, all bool, now time.Time) *Suggestion {
	if len(t.CoveredBy) > 0 || (t.Kind != insight.Ordinary && t.Kind != insight.Partitioned) || c.ownsTable(t) {
		return nil
	}
	reason := l.reason(t)
	if reason == "" && all {
		reason = uncovered
	}
	if reason == "" {
		return nil
	}
	s := &Suggestion{Reason: reason}
	if disabled := c.Disabled[t.Quoted()]; len(disabled) > 0 {
		s.Disabled = disabled[0]
		s.Reason += "; " + s.Disabled + " is not enabled"
		return s
	}
	if len(t.Dates) == 0 {
		s.Reason += "; it has no column with a date by which a policy could delete rows"
		return s
	}
	date, expiry := bestDate(t.Dates, now), expiryOf(t.Dates)
	switch {
	case expiry != nil: // a limit on their age would delete valid rows and keep expired ones
		s.Policy, s.Column, s.ColumnReason = name, expiry.Column, whyColumn(*expiry)
		if expiry.IsDay {
			s.Days = 1 // with 0, rows would be deleted on their last day
		}
		if date != nil {
			s.ColumnReason += fmt.Sprintf("; to keep expired rows for longer, give more days, or take %s", date.Column)
		}
	case date != nil:
		s.Policy, s.Column, s.ColumnReason, s.Days = name, date.Column, whyColumn(*date), l.Days
	case all:
		s.Reason += "; " + noAge(t.Dates, now)
	default:
		return nil
	}
	if s.Policy != "" && t.Rows > 0 && t.Rows < fewRows {
		s.Reason += fmt.Sprintf("; with about %d rows, it may be a list that does not age", t.Rows)
	}
	return s
}

// fewRows is how many rows a table has that is probably one of kinds, branches or settings.
const fewRows = 50

const uncovered = "no task covers it"

// reason returns "" if no limit is exceeded.
func (l Limits) reason(t *Table) string {
	if t.Size() > l.Bytes {
		return fmt.Sprintf("%s, and it has %s", uncovered, humanize.IBytes(uint64(t.Size())))
	}
	if t.Week == nil || t.Size() < max(l.GrowthBytes, 1) {
		return ""
	}
	if percent := 100 * float64(*t.Week) / float64(t.Size()); percent > l.GrowthPercent {
		return fmt.Sprintf("%s, and it grows by %.1f %% a day", uncovered, percent)
	}
	return ""
}

// applicationTable matches the names of the application's own tables.
var applicationTable = regexp.MustCompile(`^(nms|xtk|ncm|nml|crm)`)

// ownsTable also reports tables with the name of a work table, because policies for some of these would be refused.
func (c covered) ownsTable(t *Table) bool {
	return c.Schema != "" && t.Schema == c.Schema &&
		(applicationTable.MatchString(t.Base) || campaign.LooksLikeWorkTable(t.Base))
}

// These patterns match the names of date columns. The date at which a row ended is preferred, since it is NULL while
// the row is in use, and then that of the last change, since a row that was changed recently may still be needed.
// otherDate matches dates that do not show the age of a row: plans, or dates of a person's life.
var (
	endedDate = regexp.MustCompile(`(?i)ended|cancel|closed|deactiv|deleted|finish|complet|revok|archiv|retir|resolv|` +
		`discard|withdr|expired|returned|removed|dispos|scrap|decommis|terminat|abandon|laps|dismiss|disabled|stopped|` +
		`inactiv|obsolet|(^|_|ts)left`)
	changedDate = regexp.MustCompile(`(?i)modif|updat|chang|last`)
	createdDate = regexp.MustCompile(`(?i)creat|insert|log|event|added|order|time|date`)
	otherDate   = regexp.MustCompile(`(?i)birth|born|geburt|naiss|nascim|nacim|death|deceas|anniv|` +
		`expir|valid|until|due|plan|schedul|next|delet|renew|matur|(^|_|ts)(end|dob)`)
)

// expiry matches the names of dates at which a row expires.
var expiry = regexp.MustCompile(
	`(?i)(expir(y|es|ed|ation)_?(at|on|date|time|ts)?|(valid|keep|retain)_?(until|till|to))$`)

// IsExpiry reports whether a column, judged by its name, says when a row expires.
func IsExpiry(column string) bool { return expiry.MatchString(column) }

// expiryOf returns nil if no column shows when a row expires.
func expiryOf(dates []insight.DateColumn) *insight.DateColumn {
	i := slices.IndexFunc(dates, func(d insight.DateColumn) bool { return IsExpiry(d.Column) })
	if i < 0 {
		return nil
	}
	return &dates[i]
}

// maxAge applies to columns whose names do not say what they hold: one with older dates does not show the age of rows.
const maxAge = 40 * 365 * 24 * time.Hour

// noAge says why none of the dates shows the age of a row.
func noAge(dates []insight.DateColumn, now time.Time) string {
	var why []string
	for _, d := range dates {
		why = append(why, d.Column+unlikeAge(d, now))
	}
	return "none of its dates tells the age of a row: " + strings.Join(why, "; ")
}

// unlikeAge says why a date does not show the age of rows: it is that of a plan or of a person's life, in the future,
// or too old. It is empty if the date may show it.
func unlikeAge(d insight.DateColumn, now time.Time) string {
	ended := endedDate.MatchString(d.Column)
	known := ended || changedDate.MatchString(d.Column) || createdDate.MatchString(d.Column)
	switch {
	case !ended && otherDate.MatchString(d.Column):
		return ", by its name a plan or a date of somebody's life"
	case d.Newest != nil && !d.Newest.Before(now.Add(24*time.Hour)):
		return " has dates in the future"
	case !known && d.Oldest != nil && !d.Oldest.After(now.Add(-maxAge)):
		return " has dates of more than 40 years ago"
	}
	return ""
}

// bestDate returns nil if no column shows the age of a row.
func bestDate(dates []insight.DateColumn, now time.Time) *insight.DateColumn {
	var best *insight.DateColumn
	score := func(d *insight.DateColumn) (points int) {
		if d.Indexed || d.IsKey {
			points += 4
		}
		if d.Oldest != nil {
			points++
		}
		switch {
		case endedDate.MatchString(d.Column):
			points += 8
		case changedDate.MatchString(d.Column):
			points += 3
		case createdDate.MatchString(d.Column):
			points += 2
		}
		return points
	}
	for i := range dates {
		if d := &dates[i]; unlikeAge(*d, now) == "" && (best == nil || score(d) > score(best)) {
			best = d
		}
	}
	return best
}

func whyColumn(d insight.DateColumn) string {
	why := "a date that may tell the age of rows"
	switch {
	case expiry.MatchString(d.Column):
		why = "by its name, when a row expires"
	case endedDate.MatchString(d.Column):
		why = "by its name, when a row ended, NULL while it is in use"
	case changedDate.MatchString(d.Column):
		why = "by its name, when a row was last changed"
	case createdDate.MatchString(d.Column):
		why = "by its name, when a row was made"
	}
	if d.Hidden {
		why += "; its dates are unread, since the role may not read the column"
	}
	switch {
	case d.IsKey:
		return why + "; the table is partitioned by it"
	case d.Indexed:
		return why + "; an index begins with it"
	}
	return why + "; no index begins with it, so runs read the whole table"
}

// policyNames returns a name of a policy for each table, by table. Each name is unique, and no existing policy has
// it.
func (c covered) policyNames(tables []*Table) map[string]string {
	names, used := map[string]string{}, map[string]int{}
	for _, t := range tables {
		text := t.Base
		if t.Schema != c.Schema && t.Schema != "public" {
			text = t.Schema + "-" + text
		}
		name := policy.NameOf(text, "")
		names[t.Name] = name
		used[name]++
	}
	for _, t := range tables {
		if name := names[t.Name]; name == "" || used[name] > 1 || slices.Contains(c.Pipeline, policy.Prefix+name) {
			names[t.Name] = policy.NameOf(name, fmt.Sprintf("-%d", t.OID))
		}
	}
	return names
}
