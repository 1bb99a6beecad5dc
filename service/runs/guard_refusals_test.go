package runs_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

// The limit of process instances concerns purges: a change of it keeps what guards have refused policies and tasks.
func TestRefusalsOfOtherTasksStay(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := store.Migrate(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	db.Do(`INSERT INTO cleanupd.guard_refusal (task, task_kind, guard, table_name, number, number_limit, options, run_id)
		SELECT task, kind, 'share', 't', 2, 1, '{}', gen_random_uuid() FROM (VALUES ('sessions', 'BUILT_IN'),
			('policy/old', 'POLICY'), ('policy/forms', 'POLICY'), ('forms/loans', 'EXTERNAL')) AS t (task, kind)`)
	limits := guard.DefaultLimits
	limits.MinProcessInstances++
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return store.SetGuardLimits(t.Context(), tx, guard.DefaultLimits, limits)
	}); err != nil {
		t.Fatal(err)
	}
	refused := db.Strings("SELECT task FROM cleanupd.guard_refusal ORDER BY 1")
	if want := []string{"policy/forms", "policy/old", "sessions"}; !slices.Equal(refused, want) {
		t.Errorf("%v, not %v", refused, want)
	}
}
