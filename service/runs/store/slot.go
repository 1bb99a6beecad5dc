package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// A run takes the first free slot of its list, and each slot has at most one active run. Viewers may use only one
// of the two slots for dry runs, so that the other one stays free for callers with more rights.
var (
	DeletingSlots  = []int16{0}
	DryRunSlots    = []int16{2, 1}
	ViewerRunSlots = []int16{1}
)

// A run by hand takes the slot of a scheduled run that waits for its window. The scheduled run has slot 3 meanwhile,
// in which a run can only be paused, and gets its slot back in the transaction that ends the run by hand. Slot 0 is
// therefore never free while a scheduled run waits, and the next one stays pending.

// yields is the SQL condition that a run has given its slot to a run by hand.
const yields = "slot = 3 AND " + active

// overtaking is the SQL for the id of the run by hand that has the slot of run r, or NULL.
const overtaking = `(SELECT h.id FROM cleanupd.run h WHERE r.slot = 3 AND r.state = 'PAUSED' AND h.slot = 0
	AND h.` + active + `)`

// yieldSlot makes a scheduled run that waits for its window give its slot away, unless a replica has it. It returns
// nil if there is no such run. The new epoch fences a replica that has fallen silent.
func yieldSlot(ctx context.Context, tx pgx.Tx) (*Epoch, error) {
	var id uuid.UUID
	err := tx.QueryRow(
		ctx,
		`UPDATE cleanupd.run SET slot = 3 WHERE slot = 0 AND state = 'PAUSED' AND paused_by = $1 AND replica = ''
		RETURNING id`,
		RequestedBySchedule,
	).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := BeginEpoch(ctx, tx, id)
	return &e, err
}

// returnSlot gives the slot back, unless a run by hand has it.
func returnSlot(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.run SET slot = 0 WHERE "+yields+` AND NOT EXISTS (SELECT FROM cleanupd.run h
			WHERE h.slot = 0 AND h.`+active+")",
	)
	return err
}

func ActiveRuns(ctx context.Context, db campaign.Querier, slots []int16) ([]*Run, error) {
	return readRuns(ctx, db, Basic, "WHERE slot = ANY ($1) AND "+active+" ORDER BY slot", slots)
}

// RunActive is the reason of an ActiveError.
const RunActive = "RUN_ACTIVE"

// ActiveError says that another run has the slot.
type ActiveError struct{ RunID string }

func (e *ActiveError) Error() string { return fmt.Sprintf("run %s is active", e.RunID) }

func (*ActiveError) Kind() failure.Kind { return failure.Conflict }

func (e *ActiveError) Info() (reason string, metadata map[string]string) {
	return RunActive, map[string]string{"run_id": e.RunID}
}
