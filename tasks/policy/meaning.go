package policy

import (
	"context"
	"regexp"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// isoDate matches dates and times that PostgreSQL reads in the same way whatever its clock and settings.
var isoDate = regexp.MustCompile(`^(?:-?infinity|(?:\d{4,6}-\d\d-\d\d(?:[T ]|$))?(?:\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?` +
	`(?: ?(?:Z|[+-]\d\d(?::?\d\d)?))?)$`)

var wholeNumber = regexp.MustCompile(`^-?\d+$`)

// plainInterval matches intervals whose sign belongs to a single field, so that the setting IntervalStyle does not
// matter.
var plainInterval = regexp.MustCompile(`^(?:P.*|-?\d+(?:\.\d+)? ?[A-Za-z]+)$`)

// meanings returns whether the types of which the type $1 consists include dates or times, amounts of money, intervals,
// or rows.
const meanings = `
WITH RECURSIVE part (oid) AS (SELECT $1::text::regtype::oid UNION SELECT of.oid FROM part JOIN pg_type t USING (oid)
  CROSS JOIN LATERAL (SELECT t.typelem AS oid WHERE t.typcategory = 'A' UNION ALL SELECT t.typbasetype
    UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
    UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0) AS of)
SELECT COALESCE(bool_or(typcategory = 'D'), false), COALESCE(bool_or(oid = 'money'::regtype), false),
  COALESCE(bool_or(typcategory = 'T'), false), COALESCE(bool_or(typtype = 'c'), false)
FROM part JOIN pg_type USING (oid)`

// checkMeaning checks that a value means the same whenever it is read, since a run must do what its saved plan
// counted. If the value depends on the clock or on a setting, or would be cut off, it adds a violation and meant is
// false.
func (c *checker) checkMeaning(
	ctx context.Context, field string, column campaign.Column, value string,
) (meant bool, err error) {
	var dates, money, intervals, rows bool
	if err := c.tx.QueryRow(ctx, meanings, column.Type).Scan(&dates, &money, &intervals, &rows); err != nil {
		return false, err
	}
	elements := []string{value}
	if column.Kind == "A" || column.Kind == "R" {
		elements = strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(`[](){},"`, r) })
	}
	for _, element := range elements {
		element = strings.TrimSpace(element)
		switch {
		case rows && (dates || money || intervals):
			c.wrong.Addf(field, "cannot be a value of %s, which has dates, intervals or money in a row", column.Full)
		case dates && !isoDate.MatchString(element) && !strings.EqualFold(element, "null") && element != "empty":
			c.wrong.Addf(
				field,
				"%.64q may depend on the clock or on a setting: write dates as 2026-02-03 or 2026-02-03T16:05:00Z; "+
					"olderThan compares with the clock",
				element,
			)
		case money && !wholeNumber.MatchString(element):
			c.wrong.Addf(field, "%.64q depends on the setting lc_monetary: write whole numbers", element)
		case intervals && strings.Contains(element, "-") && !plainInterval.MatchString(element):
			c.wrong.Addf(field, "%.64q depends on the setting IntervalStyle: write it as P1DT-2H", element)
		default:
			continue
		}
		return false, nil
	}
	if size := map[string]int{"pg_catalog.name": 63, `pg_catalog."char"`: 1}[column.Type]; size > 0 &&
		len(value) > size {
		c.wrong.Addf(field, "is longer than the %d bytes of %s, and would be cut", size, column.Full)
		return false, nil
	}
	return true, nil
}
