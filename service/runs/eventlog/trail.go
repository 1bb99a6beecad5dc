package eventlog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// ReplacedError says that a watcher was sent events that the stored log no longer has.
type ReplacedError struct {
	RunID string
	// AfterSequence is the last event that the watcher was sent and that the log still has; 0 if there is none or it
	// is unknown.
	AfterSequence int64
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf(
		"the run's log no longer has the events after %d that were sent, as after a failover to a standby that "+
			"lagged: watch it again with after_sequence %[1]d",
		e.AfterSequence,
	)
}

const LogReplaced = "LOG_REPLACED"

func (*ReplacedError) Kind() failure.Kind { return failure.DataLoss }

func (e *ReplacedError) Info() (reason string, metadata map[string]string) {
	return LogReplaced, map[string]string{
		"run_id":         e.RunID,
		"after_sequence": strconv.FormatInt(e.AfterSequence, 10),
	}
}

// trail has the last event of each generation that a watcher was sent, oldest first.
type trail []store.Place

func (t trail) last() store.Place { return t[len(t)-1] }

func (t *trail) add(p store.Place) {
	if t.last().Generation == p.Generation {
		(*t)[len(*t)-1] = p
	} else {
		*t = append(*t, p)
	}
}

// verify fails with a ReplacedError if the stored log lacks part of the trail, and with store.ErrNotFound if the
// run was pruned.
func (t trail) verify(ctx context.Context, db campaign.Querier, id uuid.UUID) error {
	shared, err := store.SharedSequence(ctx, db, id, t)
	if err == nil && shared < t.last().Sequence {
		err = &ReplacedError{id.String(), shared}
	}
	return err
}
