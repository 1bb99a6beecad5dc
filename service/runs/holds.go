package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/worker"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// CreateHold stores a hold and then waits until all batches have ended that may have begun before. A hold of
// everything also waits for work on Forms databases. It fails with failure.Violations, or with a failure.Refusal if
// another instance owns the database. If it fails while it waits, the hold is stored nevertheless.
func (m *Manager) CreateHold(ctx context.Context, h store.Hold) (*store.Hold, error) {
	config, err := m.Configure(ctx, m.calls)
	if err != nil {
		return nil, err
	}
	scope := config.Scope()
	if h.Kind == store.HoldRows && connection.IsStorable(h.Rows.Table) {
		scope.Held = []string{h.Rows.Table}
	}
	catalog, err := campaign.LoadCatalog(ctx, m.calls, scope)
	if err != nil {
		return nil, err
	}
	if err := validateHold(ctx, m.calls, catalog, &h); err != nil {
		return nil, err
	}
	if h.Kind == store.HoldRows {
		if err := checkConcerned(ctx, config, m.calls, &h); err != nil {
			return nil, err
		}
	}
	if h.Kind == store.HoldRecipients {
		config.DryRun = true // so that it does not matter what the role may do to the tables
		env, err := cleanup.EnvOf(ctx, config, m.pool, catalog, rules.Holds{})
		if err != nil {
			return nil, err
		}
		if h.NotCovered, err = rules.NotCoveredByRecipients(env); err != nil {
			return nil, err
		}
	}
	var stored *store.Hold
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if err := store.LockHolds(ctx, tx); err != nil {
			return err
		}
		if err := checkTotal(ctx, tx, &h); err != nil {
			return err
		}
		if stored, err = store.InsertHold(ctx, tx, h); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{
			"hold_id": stored.ID,
			"kind":    stored.Kind,
			"ids":     stored.IDs,
			"table":   stored.Table,
			"rows":    stored.Rows,
			"reason":  stored.Reason,
		})
	})
	if err != nil {
		return nil, err
	}
	if h.Kind == store.HoldEverything {
		if err := awaitErasing(ctx, m.calls); err != nil {
			return nil, err
		}
	}
	return stored, m.AwaitBatches(ctx, "")
}

func awaitErasing(ctx context.Context, pool *pgxpool.Pool) error {
	if err := advisory.Squatted(ctx, pool, advisory.Erasing, false); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx,
			fmt.Sprintf("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(%d)",
				advisory.Erasing))
		return err
	})
}

// AwaitBatches waits for the current batches of a task, or of all tasks if task is "".
func (m *Manager) AwaitBatches(ctx context.Context, task string) error {
	pool := m.calls
	active, err := store.DeletingRuns(ctx, pool, task)
	if err != nil {
		return err
	}
	transactions := func(query string, arg any) ([]string, error) {
		rows, err := pool.Query(ctx, "SELECT DISTINCT virtualtransaction FROM "+query, arg)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	var open []string
	for _, id := range active {
		more, err := transactions("("+advisory.Holders+") AS h", worker.AdvisoryLock(id))
		if err != nil {
			return err
		}
		open = append(open, more...)
	}
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if open, err = transactions("pg_locks WHERE virtualtransaction = ANY ($1)", open); err != nil {
			return err
		}
	}
	return nil
}

// ReleaseHold releases a hold. It returns a hold that was released before unchanged, and fails with
// store.ErrNoHold.
func (m *Manager) ReleaseHold(ctx context.Context, id, by string) (h *store.Hold, err error) {
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if h, err = store.ReleaseHold(ctx, tx, id, by); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{"hold_id": h.ID})
	})
	return h, err
}

// AllHeld is the reason why no person's data is erased while everything is on hold.
const AllHeld = "HELD"

// CheckErasable fails with a failure.Refusal with the reason AllHeld if everything is on hold.
func CheckErasable(ctx context.Context, db campaign.Querier) error {
	now, err := store.Now(ctx, db)
	if err != nil {
		return err
	}
	holds, _, err := store.EffectiveHolds(ctx, db, now)
	if err == nil && holds.Everything {
		err = &failure.Refusal{
			Reason:  AllHeld,
			Message: "everything is held: nothing is erased until that is released",
		}
	}
	return err
}
