package forecast

import (
	"context"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// limits are settings that limit what one question costs the server.
const limits = "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '500ms'; SET LOCAL jit = off"

// sampleBlocks is how many blocks of a table are read if counting takes too long: 16 MiB.
const sampleBlocks = 2_048

// question counts the rows of a relation that match, by the first reference time at which they do.
type question struct {
	sweep purge.Sweep
	dated bool
	cases sqlexpr.Expr // a WHEN for each reference time
	last  sqlexpr.Expr // the condition at the last reference time
}

// add adds the condition at a reference time.
func (q *question) add(time int, where sqlexpr.Expr) {
	q.cases = sqlexpr.Format("%s WHEN (%s) IS TRUE THEN %d", q.cases, where, time)
	q.last = where
}

// readable reports whether the relation's rows are on this server.
func (q *question) readable() bool { return !q.sweep.NoTIDs }

// sql returns the query for the counts. A row counts with its paired row.
func (q *question) sql(sample string) sqlexpr.Expr {
	rows := "1"
	if p := q.sweep.Paired; p != nil {
		rows = fmt.Sprintf("1 + (SELECT count(*) FROM %s AS t WHERE t.%s = r.%s AND t.%[2]s <> 0)", p.Relation, p.Key,
			p.ID)
	}
	return sqlexpr.Format(
		"SELECT day, sum(rows)::bigint FROM (SELECT CASE%s END AS day, %s AS rows FROM ONLY %s AS r%s WHERE (%s) IS TRUE "+
			"OFFSET 0) AS q WHERE day IS NOT NULL GROUP BY day",
		q.cases,
		rows,
		q.sweep.Relation,
		sample,
		q.last,
	)
}

// count returns how many rows match now, and how many more on each day. exact is false if only a sample was read.
// why says why the numbers are not known.
func (q *question) count(
	ctx context.Context, pool *pgxpool.Pool,
) (counts [Days + 1]int64, exact bool, why string, err error) {
	if counts, err = q.ask(ctx, pool, "", 1); !sqlstate.Is(err, pgerrcode.QueryCanceled) || ctx.Err() != nil {
		return counts, true, unknown(err), ifLost(ctx, err)
	}
	var blocks float64
	const size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::float8"
	if err := pool.QueryRow(ctx, size, q.sweep.Relation).Scan(&blocks); err != nil {
		return counts, false, unknown(err), ifLost(ctx, err)
	}
	share := min(sampleBlocks/max(blocks, 1), 1)
	counts, err = q.ask(ctx, pool, fmt.Sprintf(" TABLESAMPLE SYSTEM (%f)", 100*share), 1/share)
	return counts, false, unknown(err), ifLost(ctx, err)
}

// unknown returns the text of an error because of which something is unknown; empty if there is none.
func unknown(err error) string {
	if err == nil {
		return ""
	}
	return sqlstate.Explain(err)
}

// ifLost returns an error after which nothing more can be read; nil for other errors.
func ifLost(ctx context.Context, err error) error {
	if sqlstate.Lost(err) || ctx.Err() != nil {
		return err
	}
	return nil
}

// ask reads the counts, each multiplied by a factor.
func (q *question) ask(
	ctx context.Context, pool *pgxpool.Pool, sample string, factor float64,
) (counts [Days + 1]int64, err error) {
	options := pgx.TxOptions{AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, limits); err != nil {
			return err
		}
		var day int
		var rows int64
		_, err := pgx.ForEachRow(q.sql(sample).Query(ctx, tx), []any{&day, &rows}, func() error {
			counts[day] = int64(float64(rows) * factor)
			return nil
		})
		return err
	})
	return counts, err
}
