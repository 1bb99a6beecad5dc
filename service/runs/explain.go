package runs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/explain"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// ExplainTask tells what a task would do here and now. It fails with ErrNoTask.
func (m *Manager) ExplainTask(ctx context.Context, name string) (e explain.Task, err error) {
	config, holds, err := m.explainConfig(ctx)
	if err != nil {
		return e, err
	}
	t, ok := Pipeline{Tasks: config.Pipeline}.find(name)
	if !ok {
		return e, ErrNoTask
	}
	return explain.DescribeTask(ctx, config, holds, t)
}

// explainConfig returns what explanations are made with.
func (m *Manager) explainConfig(ctx context.Context) (config pipeline.Config, holds plan.Holds, err error) {
	p, err := m.Pipeline(ctx)
	if err != nil {
		return config, holds, err
	}
	config = m.config(p)
	config.Pool, config.Log = m.calls, m.log
	holds, _, err = readHolds(ctx, m.calls, time.Now())
	return config, holds, err
}

// RowRun is a run that took rows of a table.
type RowRun struct {
	RunID       string
	StartTime   time.Time
	RowsDeleted int64
	Tasks       []string // those that did; none if the run is forgotten
}

// runsShown is how many runs are told of a row that is not there.
const runsShown = 50

// ExplainRow explains why a row is, or is not, deleted, and returns which runs took rows of its table if it does not
// exist. byText is called first if the key is a text. ExplainRow fails with explain.ErrKey, or an refused.Error.
func (m *Manager) ExplainRow(
	ctx context.Context,
	table, key string,
	byText func() error,
) (x explain.Row, took []RowRun, err error) {
	config, holds, err := m.explainConfig(ctx)
	if err != nil {
		return x, nil, err
	}
	e, err := explain.NewExplainer(ctx, config, holds, table)
	if err != nil {
		return x, nil, err
	}
	if x, err = e.Row(ctx, key, byText); err != nil || x.Exists {
		return x, nil, err
	}
	rows, err := m.calls.Query(
		ctx,
		`WITH active AS (SELECT r.id, s.root, r.start_time, sum(s.rows_deleted)::bigint AS rows FROM cleanupd.run r
			JOIN cleanupd.space s ON s.run_id = r.id
		  WHERE r.state = 'RUNNING' AND NOT r.dry_run GROUP BY 1, 2, 3)
		SELECT run_id::text, start_time, rows_deleted, ARRAY(SELECT DISTINCT s.task FROM cleanupd.space s
			WHERE s.run_id = t.run_id AND $1 IN (s.root, s.relation) AND s.rows_deleted > 0 ORDER BY 1)
		FROM (SELECT run_id, table_name, start_time, rows_deleted FROM cleanupd.taken UNION ALL SELECT *
			FROM active) AS t
		WHERE table_name = $1 AND rows_deleted > 0 ORDER BY start_time DESC, run_id LIMIT $2`,
		x.Table,
		runsShown,
	)
	if err != nil {
		return x, nil, err
	}
	took, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RowRun])
	return x, took, err
}
