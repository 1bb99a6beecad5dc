package tasks_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
)

// The expected number of rows of a task differs by at most a fifth from the actual one if tables are analyzed.
func TestEstimates(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Campaign(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = campaigndb.Fill(t.Context(), conn.Conn(), suite.Size(suite.Long, 50_000, 200_000), 1, now)
	conn.Release()
	if err != nil {
		t.Fatal(err)
	}
	j := newJournal(db)
	for _, task := range tasks.Pipeline {
		// These tasks delete no rows.
		if slices.Contains(
			[]string{"orphan-work-tables", "work-tables", "simulation-tables", "statistics"}, task.Name,
		) {
			continue
		}
		if err := runWith(t, j, nil, task.Name); err != nil {
			t.Fatal(err)
		}
		db.Do("ANALYZE")
		expected, actual := j.expected[task.Name], j.deleted[task.Name]+j.updated[task.Name]
		if actual > 20 && (expected < actual*8/10 || expected > actual*12/10) {
			t.Errorf("%s: expected %d rows, got %d", task.Name, expected, actual)
		}
	}
}
