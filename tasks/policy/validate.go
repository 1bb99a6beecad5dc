package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

var (
	namePattern = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	notInNames  = regexp.MustCompile(`[^a-z0-9]+`)
)

// NameOf makes the name of a policy from a text and a suffix; "" if they have no character that a name may have.
func NameOf(text, suffix string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
	const longest = 40
	return strings.Trim(name[:min(len(name), longest-len(suffix))]+suffix, "-")
}

const (
	maxDescription = 1_000
	maxLimit       = 1_000_000
	maxParts       = 50 // number of filters, and of assigned columns
	maxValues      = 1_000
	maxPer         = 10
	maxCount       = 1_000_000
	maxName        = 255   // the length of a table's or column's name, in bytes
	maxValue       = 8_192 // bytes
)

// Validate fails with failure.Violations if the policy is invalid regardless of the database.
func (p Policy) Validate() error {
	var wrong failure.Violations
	if !namePattern.MatchString(p.Name) {
		wrong.Add("policy.name", "must be 1 to 40 of a-z, 0-9 and -")
	}
	checkName(&wrong, "policy.table", p.Table)
	if utf8.RuneCountInString(p.Description) > maxDescription || !connection.IsStorable(p.Description) {
		wrong.Addf("policy.description", "is longer than %d characters, or not a text that a database can store",
			maxDescription)
	}
	if p.Limit < 0 || p.Limit > maxLimit {
		wrong.Addf("policy.limit", "must be 1 to %d, or 0 for the default", maxLimit)
	}
	if p.OlderThan == nil && p.OrphanOf == nil && p.KeepNewest == nil {
		wrong.Add("policy",
			"needs olderThan, orphanOf or keepNewest: other conditions alone do not say when a row is obsolete")
	}
	switch p.Partitions {
	case "", purge.DropPartitions, purge.DeleteRows:
	case purge.DetachPartitions:
		if !p.RemovesPartitions() {
			wrong.Add("policy.partitions", "can be DETACH only with olderThan alone, and without assign: a partition leaves "+
				"with all of its rows")
		}
	default:
		wrong.Add("policy.partitions", "is unknown")
	}
	if problem := trash.KeepProblem(p.Undo); problem != "" {
		wrong.Add("policy.undo", problem)
	} else if p.Undo != nil && (p.Assign != nil || p.Partitions == purge.DetachPartitions) {
		wrong.Add("policy.undo", "is for policies that delete rows")
	}
	p.validateParts(&wrong)
	p.validateAssign(&wrong)
	return wrong.Err()
}

func (p Policy) validateParts(wrong *failure.Violations) {
	if a := p.OlderThan; a != nil {
		checkName(wrong, "policy.older_than.column", a.Column)
		switch {
		case (a.Days == nil) == (a.Hours == nil):
			wrong.Add("policy.older_than", "needs either days or hours")
		case a.Days != nil:
			checkRange(wrong, "policy.older_than.days", *a.Days, 0, campaign.MaxDays)
		default:
			checkRange(wrong, "policy.older_than.hours", *a.Hours, 0, 24*campaign.MaxDays)
		}
	}
	for i, f := range first(maxParts, p.Filters, wrong, "policy.filters") {
		f.validate(wrong, fmt.Sprintf("policy.filters[%d]", i))
	}
	if o := p.OrphanOf; o != nil {
		checkName(wrong, "policy.orphan_of.column", o.Column)
		checkName(wrong, "policy.orphan_of.parent_table", o.ParentTable)
		checkName(wrong, "policy.orphan_of.parent_column", o.ParentColumn)
	}
	if k := p.KeepNewest; k != nil {
		for i, column := range first(maxPer, k.Per, wrong, "policy.keep_newest.per") {
			checkName(wrong, fmt.Sprintf("policy.keep_newest.per[%d]", i), column)
		}
		if p.orderBy() == "" {
			wrong.Add("policy.keep_newest.order_by", "is missing, and there is no olderThan column to use")
		} else {
			checkName(wrong, "policy.keep_newest.order_by", p.orderBy())
		}
		checkRange(wrong, "policy.keep_newest.count", k.Count, 1, maxCount)
	}
}

func (p Policy) validateAssign(wrong *failure.Violations) {
	for i, a := range first(maxParts, p.Assign, wrong, "policy.assign") {
		field := fmt.Sprintf("policy.assign[%d]", i)
		checkName(wrong, field+".column", a.Column)
		if a.Value != nil {
			checkValue(wrong, field+".value", *a.Value)
		}
		switch template := a.ValueFromKey; {
		case template == "":
		case a.Value != nil:
			wrong.Add(field+".value_from_key", "cannot be combined with value")
		case !strings.Contains(template, "{key}") && !strings.Contains(template, "{hash}"):
			wrong.Add(field+".value_from_key", "must have {key} or {hash} in it, such as deleted-{key}")
		default:
			checkValue(wrong, field+".value_from_key", template)
		}
	}
}

func (f Filter) validate(wrong *failure.Violations, field string) {
	checkName(wrong, field+".column", f.Column)
	op, known := ops[f.Op]
	switch n := len(f.Values); {
	case !known:
		wrong.Add(field+".op", "is missing or unknown")
	case op == rules.Null || op == rules.NotNull:
		if n > 0 {
			wrong.Addf(field+".values", "must be empty for %s", f.Op)
		}
	case op == rules.In || op == rules.NotIn:
		if n < 1 || n > maxValues {
			wrong.Addf(field+".values", "must be 1 to %d for %s", maxValues, f.Op)
		}
	case n != 1:
		wrong.Addf(field+".values", "must be one for %s", f.Op)
	}
	if op == rules.StartsWith && slices.Contains(f.Values, "") {
		wrong.Add(field+".values[0]", "must not be empty: every text starts with it")
	}
	for i, v := range f.Values[:min(len(f.Values), maxValues)] {
		checkValue(wrong, fmt.Sprintf("%s.values[%d]", field, i), v)
	}
}

func checkName(wrong *failure.Violations, field, name string) {
	switch {
	case name == "":
		wrong.Add(field, "is missing")
	case len(name) > maxName || !connection.IsStorable(name):
		wrong.Addf(field, "is longer than %d bytes, or not a text that a database can store", maxName)
	}
}

func checkValue(wrong *failure.Violations, field, value string) {
	if len(value) > maxValue || !connection.IsStorable(value) {
		wrong.Addf(field, "is longer than %d bytes, or not a text that a database can store", maxValue)
	}
}

func checkRange(wrong *failure.Violations, field string, value, least, most int) {
	if value < least || value > most {
		wrong.Addf(field, "must be %d to %d", least, most)
	}
}

// first returns the entries to check. A longer list is a mistake, and each entry may be another one.
func first[E any](most int, list []E, wrong *failure.Violations, field string) []E {
	if len(list) > most {
		wrong.Addf(field, "has %d entries; at most %d are possible", len(list), most)
		return list[:most]
	}
	return list
}
