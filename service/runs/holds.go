package runs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

const (
	holdColumns = "id::text, kind, ids, table_name, not_covered, reason, created_by, create_time, expire_time, " +
		"release_time, released_by"
	holdNotReleased = "release_time IS NULL AND (expire_time IS NULL OR expire_time > "
)

// ErrNoHold says that there is no hold with an id.
var ErrNoHold = failure.New(failure.NotFound, "no such hold")

// CreateHold stores a hold, and returns it when all batches have ended that may have begun before; a hold of everything
// also waits for work on Forms databases. It fails with InvalidError, or with a RefusedError where the database is
// another instance's. If it fails otherwise while it waits, the hold is stored.
func (m *Manager) CreateHold(ctx context.Context, h Hold) (*Hold, error) {
	catalog, err := campaign.LoadCatalog(ctx, m.calls)
	if err != nil {
		return nil, err
	}
	if err := h.check(ctx, m.calls, catalog); err != nil {
		return nil, err
	}
	h.NotCovered = []string{}
	if h.Kind == HoldRecipients {
		config := m.config(Pipeline{Tasks: tasks.Pipeline})
		config.DryRun = true // what the role may do to the tables does not matter
		env, err := pipeline.EnvOf(ctx, config, m.pool, catalog, plan.Holds{})
		if err != nil {
			return nil, err
		}
		if h.NotCovered, err = hold.NotCoveredByRecipients(env); err != nil {
			return nil, err
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	var stored *Hold
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.keepOwn(ctx, tx); err != nil {
			return err
		}
		// One after another, so that their numbers are in the order of their commits.
		if _, err := tx.Exec(
			ctx,
			"SET LOCAL lock_timeout = '5s'; LOCK TABLE cleanupd.hold IN SHARE ROW EXCLUSIVE MODE",
		); err != nil {
			return err
		}
		if err := h.checkTotal(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(
			ctx,
			`INSERT INTO cleanupd.hold (id, kind, ids, table_name, not_covered, reason, created_by, expire_time)
			VALUES ($1::text::uuid, $2, $3, $4, $5, $6, $7, $8) RETURNING `+holdColumns,
			id.String(),
			h.Kind,
			append([]int64{}, h.IDs...),
			h.Table,
			h.NotCovered,
			connection.Text(h.Reason),
			connection.Text(h.CreatedBy),
			h.ExpireTime,
		)
		if err != nil {
			return err
		}
		if stored, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Hold]); err != nil {
			return err
		}
		return audit.Note(
			ctx,
			tx,
			audit.Details{
				"hold_id": stored.ID,
				"kind":    stored.Kind,
				"ids":     stored.IDs,
				"table":   stored.Table,
				"reason":  stored.Reason,
			},
		)
	})
	if err != nil {
		return nil, err
	}
	if h.Kind == HoldEverything {
		if err := m.awaitErasing(ctx); err != nil {
			return nil, err
		}
	}
	return stored, m.awaitBatches(ctx)
}

// awaitErasing waits until all work on Forms databases has ended that is going on now.
func (m *Manager) awaitErasing(ctx context.Context) error {
	if err := advisory.Squatted(ctx, m.calls, advisory.Erasing, false); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		_, err := tx.Exec(
			ctx,
			fmt.Sprintf(
				"SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(%d)",
				advisory.Erasing,
			),
		)
		return err
	})
}

// awaitBatches waits until all batches of runs have ended that are open now.
func (m *Manager) awaitBatches(ctx context.Context) error {
	rows, err := m.calls.Query(ctx, "SELECT id::text FROM cleanupd.run WHERE state = 'RUNNING' AND NOT dry_run")
	if err != nil {
		return err
	}
	active, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var open []string
	for _, id := range active {
		rows, err := m.calls.Query(
			ctx,
			"SELECT DISTINCT virtualtransaction FROM ("+advisory.Holders+") AS h",
			lockOf(id),
		)
		if err != nil {
			return err
		}
		more, err := pgx.CollectRows(rows, pgx.RowTo[string])
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
		rows, err := m.calls.Query(
			ctx,
			"SELECT DISTINCT virtualtransaction FROM pg_locks WHERE virtualtransaction = ANY ($1)",
			open,
		)
		if err != nil {
			return err
		}
		if open, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
	}
	return nil
}

// Holds reads a page of the holds, newest first, and the token of the next page; empty when there is none. It fails
// with ErrPageToken.
func (m *Manager) Holds(ctx context.Context, ended bool, size int, token string) ([]Hold, string, error) {
	before, err := parseNumberToken(token)
	if err != nil {
		return nil, "", err
	}
	rows, err := m.calls.Query(
		ctx,
		"SELECT "+holdColumns+", number FROM cleanupd.hold WHERE ($1 OR "+holdNotReleased+`clock_timestamp()))
		AND ($2 = 0 OR number < $2) ORDER BY number DESC LIMIT $3`,
		ended,
		before,
		size+1,
	)
	if err != nil {
		return nil, "", err
	}
	type numbered struct {
		Hold
		Number int64
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[numbered])
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(list) > size {
		list = list[:size]
		next = formatNumberToken(list[size-1].Number)
	}
	var holds []Hold
	for _, h := range list {
		holds = append(holds, h.Hold)
	}
	return holds, next, nil
}

// formatNumberToken is the token of the page after what has a number.
func formatNumberToken(number int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(number, 10)))
}

// parseNumberToken is the number of what comes before a page; 0 for the first page.
func parseNumberToken(token string) (number int64, err error) {
	if token == "" {
		return 0, nil
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	number, _ = strconv.ParseInt(string(raw), 10, 64)
	if number <= 0 || formatNumberToken(number) != token { // only the canonical form is accepted
		return 0, ErrPageToken
	}
	return number, nil
}

// ReleaseHold ends a hold; one that was released is returned as it is. It fails with ErrNoHold.
func (m *Manager) ReleaseHold(ctx context.Context, id, by string) (*Hold, error) {
	key, err := uuid.Parse(id)
	if err != nil {
		return nil, ErrNoHold
	}
	var h *Hold
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.keepOwn(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(
			ctx,
			`UPDATE cleanupd.hold SET release_time = COALESCE(release_time, clock_timestamp()), released_by = CASE
				WHEN release_time IS NULL THEN $2 ELSE released_by END
			WHERE id = $1::text::uuid RETURNING `+holdColumns,
			key.String(),
			connection.Text(by),
		) // PostgreSQL does not read all the forms that Parse does
		if err != nil {
			return err
		}
		if h, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Hold]); errors.Is(err, pgx.ErrNoRows) {
			return ErrNoHold
		} else if err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{"hold_id": h.ID})
	})
	return h, err
}

// readHolds are the holds in force at a moment, and the number of the last one that was created, as long as the query
// ran.
func readHolds(ctx context.Context, db campaign.Querier, now time.Time) (all plan.Holds, last int64, err error) {
	rows, err := db.Query(
		ctx,
		`SELECT last, id::text, kind, ids, table_name FROM (SELECT COALESCE(max(number), 0) AS last
			FROM cleanupd.hold) AS created
		LEFT JOIN cleanupd.hold ON `+holdNotReleased+`$1) ORDER BY number`,
		now,
	)
	if err != nil {
		return all, 0, err
	}
	var (
		id, kind, table *string
		ids             []int64
	)
	_, err = pgx.ForEachRow(rows, []any{&last, &id, &kind, &ids, &table}, func() error {
		if kind == nil {
			return nil
		}
		all.Names = append(all.Names, *id)
		switch HoldKind(*kind) {
		case HoldDeliveries:
			all.Deliveries = append(all.Deliveries, ids...)
		case HoldLists:
			all.Lists = append(all.Lists, ids...)
		case HoldWorkflows:
			all.Workflows = append(all.Workflows, ids...)
		case HoldRecipients:
			all.Recipients = append(all.Recipients, ids...)
		case HoldTable:
			all.Tables = append(all.Tables, *table)
		default: // what this version does not know holds all, too
			all.Everything = true
		}
		return nil
	})
	return all, last, err
}

// AllHeld is the reason for which nobody's data is erased: everything is held.
const AllHeld = "HELD"

// Unheld fails with a RefusedError of the reason AllHeld while everything is held.
func Unheld(ctx context.Context, db campaign.Querier) error {
	var now time.Time
	if err := db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	holds, _, err := readHolds(ctx, db, now)
	if err == nil && holds.Everything {
		err = &refused.Error{
			Reason:  AllHeld,
			Message: "everything is held: nothing is erased until that is released",
		}
	}
	return err
}

// Holds implements pipeline.Safety.
func (j *journal) Holds(ctx context.Context) (plan.Holds, error) {
	holds, last, err := readHolds(ctx, j.m.pool, j.claim.referenceTime)
	if err == nil && !j.claim.dryRun {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.holds = &last
	}
	return holds, err
}
