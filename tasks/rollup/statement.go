package rollup

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// intBytes are the sizes of the integer types of sums.
var intBytes = map[string]int{"smallint": 2, "integer": 4, "bigint": 8}

// Statement returns the statement that replaces the rows of the period, without those at some TIDs ($3), by their sums,
// and selects how many it deleted. A sum is clamped to the range of its column; the sum of only NULL is 0.
func (p *Period) Statement(ctx context.Context, db campaign.Querier) (string, error) {
	var columns, sums []string
	for _, column := range p.Sums {
		if !p.Table.Has(column) {
			continue
		}
		sum, err := p.sum(ctx, db, column)
		if err != nil {
			return "", err
		}
		columns, sums = append(columns, column), append(sums, sum)
	}
	return fmt.Sprintf(
		"WITH gone AS (DELETE FROM %[1]s AS r WHERE %[2]s AND r.ctid <> ALL ($3::tid[]) RETURNING *),"+
			" kept AS (INSERT INTO %[1]s (%[3]s, %[4]s, %[5]s) SELECT %[3]s, $1::timestamptz, %[6]s FROM gone GROUP "+
			"BY %[3]s HAVING sum(%[7]s) >= %[8]d) SELECT count(*) FROM gone",
		p.Table.Quoted(), p.Condition(), strings.Join(p.By, ", "), p.Date, strings.Join(columns, ", "),
		strings.Join(sums, ", "), p.Total, p.Least,
	), nil
}

// sum returns the SQL of the sum of a column.
func (p *Period) sum(ctx context.Context, db campaign.Querier, column string) (string, error) {
	var sqlType string
	if err := db.QueryRow(ctx, "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = $1 AND "+
		"attname = $2", p.Table.OID, strings.ToLower(column)).
		Scan(&sqlType); err != nil {
		return "", err
	}
	sum := fmt.Sprintf("sum(%s)", column)
	bytes, isInt := intBytes[sqlType]
	if !isInt {
		return sum, nil
	}
	largest := int64(math.MaxInt64) >> (64 - 8*bytes)
	return fmt.Sprintf("greatest(least(COALESCE(%s, 0), %d), %d)::%s", sum, largest, -largest-1, sqlType), nil
}
