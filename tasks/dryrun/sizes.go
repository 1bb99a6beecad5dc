package dryrun

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
)

// properties selects the rows and sizes that the catalog has for the relations $1, and whether the relations to
// delete from ($2), or tables above them, have triggers or rules.
const properties = `
SELECT sum(greatest(c.reltuples, 0))::bigint, sum(pg_total_relation_size(c.oid))::bigint,
  sum(pg_relation_size(c.oid))::bigint,
  bool_or(name = ANY ($2) AND EXISTS (WITH RECURSIVE up (oid) AS (SELECT c.oid
      UNION SELECT i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.oid)
    SELECT FROM up WHERE EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = up.oid AND NOT t.tgisinternal
      AND t.tgenabled IN ('O', 'A'))
    OR c.relkind IN ('r', 'p') AND EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = up.oid
      AND w.ev_enabled IN ('O', 'A')))),
  bool_or(c.relpersistence = 'u' AND pg_is_in_recovery())
FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)`

// preview returns what a task would do. The tables with the most rows come first.
func (x *executor) preview(ctx context.Context, a *pipeline.Attempt) *preview.Task {
	p := x.found.task(a.Task.Name)
	p.Basis, p.Relations = pipeline.BasisOf(x.run.Config, x.run.Database.Env), a.Plan.Relations()
	x.remarkUnidentified(ctx, a)
	x.remarkUndated(ctx, a)
	for _, t := range x.found.tables.take() {
		x.measure(ctx, t)
		p.Tables = append(p.Tables, t.Table)
		p.Dropped = append(p.Dropped, t.dropped...)
	}
	slices.SortStableFunc(p.Tables, func(a, b preview.Table) int {
		return cmp.Compare(b.Rows+b.Tables, a.Rows+a.Tables)
	})
	return p
}

// measure estimates the size of a table, and what deleting the rows would free. A locked table gets no estimate.
func (x *executor) measure(ctx context.Context, t *table) {
	var rows, bytes, heap *int64
	var triggers, absent *bool
	err := pgx.BeginFunc(ctx, x.run.Database.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100"); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, properties, t.all(), t.relations).Scan(&rows, &bytes, &heap, &triggers, &absent)
		if err != nil || rows == nil || *absent || t.of == nil || t.of.Location != "" {
			return err
		}
		*rows, err = countOrEstimate(ctx, tx, t.of, *heap)
		return err
	})
	if err != nil || rows == nil || bytes == nil {
		return
	}
	if *absent {
		t.remark("unlogged: the standby has none of the rows, so that sizes are not known")
		return
	}
	if t.Action == preview.Drop {
		t.Bytes = *bytes
		return
	}
	t.RowsTotal = max(*rows, t.Rows)
	if t.Action != preview.Update && t.RowsTotal > 0 {
		t.Bytes = int64(float64(*bytes) * float64(t.Rows) / float64(t.RowsTotal))
	}
	if triggers != nil && *triggers {
		t.remark("a trigger or rule of the table may keep rows, or change others")
	}
}

func (t *table) all() (names []string) {
	if t.of == nil {
		return t.dropped
	}
	for _, leaf := range t.of.Leaves {
		names = append(names, leaf.Quoted())
	}
	return names
}

// maxCountedBytes is up to which size a table is counted instead of estimated: 8 MiB.
const maxCountedBytes = 8 << 20

// countOrEstimate returns the number of rows of a table. The planner estimates that of a large table from its size,
// even if the table was never analyzed.
func countOrEstimate(ctx context.Context, tx pgx.Tx, t *campaign.Table, bytes int64) (rows int64, err error) {
	if bytes <= maxCountedBytes {
		return rows, tx.QueryRow(ctx, "SELECT count(*) FROM "+t.Quoted()).Scan(&rows)
	}
	var explained []struct {
		Plan struct {
			Rows int64 `json:"Plan Rows"`
		}
	}
	err = tx.QueryRow(ctx, "EXPLAIN (FORMAT JSON) SELECT FROM "+t.Quoted()).Scan(&explained)
	if err == nil && len(explained) > 0 {
		rows = explained[0].Plan.Rows
	}
	return rows, err
}
