package rollup

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

var intBytes = map[string]int{"smallint": 2, "integer": 4, "bigint": 8}

// Statement replaces the rows of the period by their sums, except for the rows at some TIDs, and selects how many
// rows it deleted. A sum is clamped to the range of its column, and the sum of NULLs alone is 0. PostgreSQL
// computes generated columns from the sums of the others.
func (p *Period) Statement(ctx context.Context, db campaign.Querier, except []pgtype.TID) (sqlexpr.Expr, error) {
	var columns, sums []string
	for _, column := range p.Sums {
		if !p.Table.Has(column) {
			continue
		}
		sum, generated, err := p.sum(ctx, db, column)
		if err != nil {
			return sqlexpr.Expr{}, err
		}
		if generated {
			continue
		}
		columns, sums = append(columns, column), append(sums, sum)
	}
	start := p.start()
	return sqlexpr.Format(
		"WITH gone AS (DELETE FROM %[1]s AS r WHERE %[2]s AND r.ctid <> ALL (%[9]s) RETURNING *),"+
			" kept AS (INSERT INTO %[1]s (%[3]s, %[4]s, %[5]s) SELECT %[3]s, %[10]s, %[6]s FROM gone GROUP "+
			"BY %[3]s HAVING sum(%[7]s) >= %[8]d) SELECT count(*) FROM gone",
		p.Table.Quoted(), p.condition(start), strings.Join(p.By, ", "), p.Date, strings.Join(columns, ", "),
		strings.Join(sums, ", "), p.Total, p.Least, sqlexpr.Arg(except, "tid[]"), start,
	), nil
}

// columnTypeSQL returns the type of a column, or the base type of its domain, and whether the column is generated.
const columnTypeSQL = `WITH RECURSIVE typed (oid, level) AS (
  SELECT atttypid, 0 FROM pg_attribute WHERE attrelid = $1 AND attname = $2
  UNION ALL SELECT t.typbasetype, level + 1 FROM typed JOIN pg_type t ON t.oid = typed.oid AND t.typtype = 'd')
SELECT typed.oid::regtype::text, a.attgenerated <> '' FROM typed, pg_attribute a
WHERE a.attrelid = $1 AND a.attname = $2 ORDER BY level DESC LIMIT 1`

func (p *Period) sum(ctx context.Context, db campaign.Querier, column string) (sql string, generated bool, err error) {
	var sqlType string
	if err := db.QueryRow(ctx, columnTypeSQL, p.Table.OID, strings.ToLower(column)).
		Scan(&sqlType, &generated); err != nil {
		return "", false, err
	}
	sum := fmt.Sprintf("sum(%s)", column)
	bytes, isInt := intBytes[sqlType]
	if !isInt {
		return sum, generated, nil
	}
	largest := int64(math.MaxInt64) >> (64 - 8*bytes)
	sql = fmt.Sprintf("greatest(least(COALESCE(%s, 0), %d), %d)::%s", sum, largest, -largest-1, sqlType)
	return sql, generated, nil
}
