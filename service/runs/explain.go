package runs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/execute"
)

// ExplainTask tells what a task would do here and now. It fails with ErrNoTask.
func (m *Manager) ExplainTask(ctx context.Context, name string) (e execute.Explanation, err error) {
	config, err := m.asked(ctx)
	if err != nil {
		return e, err
	}
	t, ok := Pipeline{Tasks: config.Pipeline}.find(name)
	if !ok {
		return e, ErrNoTask
	}
	return execute.Explain(ctx, config, t)
}

// asked is what a question is answered by.
func (m *Manager) asked(ctx context.Context) (config execute.Config, err error) {
	p, err := m.Pipeline(ctx)
	if err != nil {
		return config, err
	}
	config = m.config(p)
	config.Pool, config.Log = m.calls, m.log
	config.Holds, _, err = readHolds(ctx, m.calls, time.Now())
	return config, err
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
// exist. byText is called first if the key is a text. ExplainRow fails with execute.ErrKey, or an execute.RefusedError.
func (m *Manager) ExplainRow(
	ctx context.Context,
	table, key string,
	byText func() error,
) (x execute.RowExplanation, took []RowRun, err error) {
	config, err := m.asked(ctx)
	if err != nil {
		return x, nil, err
	}
	e, err := execute.NewExplainer(ctx, config, table)
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
