package dryrun

import (
	"context"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
)

// remarkUndated adds remarks on rows that a policy's rule never matches, since the column by which it judges their
// age is NULL.
func (x *executor) remarkUndated(ctx context.Context, a *pipeline.Attempt) {
	if a.Task.Basis == "" || len(a.Jobs) == 0 {
		return
	}
	j := a.Jobs[0] // a policy has one table
	remark := func(format string, args ...any) {
		done := map[preview.Action]string{
			preview.Delete: "deleted", preview.Update: "changed", preview.Detach: "detached",
		}[actionOf(j)]
		text := fmt.Sprintf("never "+done+": "+format, args...)
		x.found.tables.at(j.Table.Quoted(), actionOf(j), a.Plan.Describe(j)).remark(text)
	}
	for _, column := range ageColumns(j) {
		detail, ok := j.Table.Column(column)
		if !ok || !detail.HasNulls || j.NoTIDs {
			continue
		}
		what := "a number"
		if detail.IsDate {
			what = "a date"
		}
		rows, about, err := countNulls(ctx, x.run.Database.Pool, j.Table, column)
		switch {
		case err != nil:
			remark("rows without %s in %s, which could not be counted: %s", what, column, sqlstate.Text(err))
		case rows > 0:
			remark("%s%s rows without %s in %s", about, humanize.Comma(rows), what, column)
		}
	}
}

// ageColumns returns the stored names of the columns by which a job judges the age of rows.
func ageColumns(j plan.Job) (columns []string) {
	for _, part := range slices.Concat(j.Step.Rules...) {
		switch p := part.(type) {
		case plan.Age:
			columns = append(columns, j.Table.Stored(p.Column))
		case plan.Newest:
			columns = append(columns, j.Table.Stored(p.OrderBy))
		}
	}
	slices.Sort(columns)
	return slices.Compact(columns)
}

// estimatedNulls estimates how many rows of the relations $1 have NULL in the column $2.
const estimatedNulls = `
SELECT COALESCE(sum(s.null_frac * greatest(c.reltuples, 0)), 0)::bigint FROM pg_stats s
JOIN pg_class c ON c.relname = s.tablename AND c.relnamespace = to_regnamespace(quote_ident(s.schemaname))
WHERE c.oid = ANY ($1::oid[]) AND s.attname = $2 AND NOT s.inherited`

// countNulls counts the rows with NULL in a column. If that takes too long, the number comes from the planner's
// statistics, and about says so.
func countNulls(
	ctx context.Context, pool *pgxpool.Pool, t *campaign.Table, column string,
) (rows int64, about string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100; SET LOCAL statement_timeout = '3s'"); err != nil {
			return err
		}
		count := fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NULL", t.Quoted(), pgx.Identifier{column}.Sanitize())
		return tx.QueryRow(ctx, count).Scan(&rows)
	})
	if !sqlstate.Is(err, pgerrcode.QueryCanceled) || ctx.Err() != nil {
		return rows, "", err
	}
	relations := []uint32{t.OID}
	for _, leaf := range t.Leaves {
		relations = append(relations, leaf.OID)
	}
	err = pool.QueryRow(ctx, estimatedNulls, relations, column).Scan(&rows)
	return rows, "about ", err
}
