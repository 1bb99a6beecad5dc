package execute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// readClock compares this process's clock with the database's.
func (d *database) readClock(ctx context.Context) error {
	asked := time.Now()
	var there time.Time
	if err := d.primary.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&there); err != nil {
		return err
	}
	took := time.Since(asked)
	d.clockOffset = asked.Add(took / 2).Sub(there)
	return nil
}

// guardStart judges the clock, and whether the application is idle, before the first task. A dry run is only warned.
func (d *database) guardStart(ctx context.Context) error {
	h, err := d.journal.History(ctx)
	if err != nil || h == nil {
		return err
	}
	clock := d.judgeClock(h)
	idle, err := d.judgeIdle(ctx, h.MaxIdle)
	if err != nil {
		return err
	}
	guard := GuardClock
	if clock == "" {
		guard = GuardIdle
	}
	switch why := cmp.Or(clock, idle); {
	case why == "":
		return nil
	case d.DryRun:
		d.log(ctx, severity.Warning, fmt.Sprintf("the guard %s would refuse a run: %s", guard, why))
		return nil
	default:
		return &RefusedError{
			Reason:   Guarded,
			Metadata: map[string]string{"guard": string(guard)},
			Message: fmt.Sprintf(
				"the guard %s refuses the run, which has changed nothing: %s; if that is right, set the guard: "+
					"cleanupd guards set",
				guard,
				why,
			),
		}
	}
}

// judgeClock says what is wrong with the database's clock; empty: nothing.
func (d *database) judgeClock(h *History) string {
	most := h.MaxClockDifference
	there := time.Now().Add(-d.clockOffset)
	switch {
	case most == 0:
		return ""
	case d.clockOffset.Abs() > most:
		return fmt.Sprintf(
			"the database's clock is %s, and this replica's differs by %s: more than %s",
			inUTC(there),
			d.clockOffset.Abs().Round(time.Second),
			most,
		)
	case h.LastStart != nil && there.Before(*h.LastStart):
		return fmt.Sprintf(
			"the database's clock is %s, and the last run began at %s",
			inUTC(there),
			inUTC(*h.LastStart),
		)
	}
	return ""
}

// judgeIdle says for how long the application has done nothing, if that is too long; empty: it is not, or not known.
func (d *database) judgeIdle(ctx context.Context, most time.Duration) (string, error) {
	if most == 0 {
		return "", nil
	}
	newest := time.Time{}
	for _, s := range d.signs() {
		since, at, err := d.newest(ctx, s, most)
		switch {
		case sqlstate.Lost(err) || ctx.Err() != nil:
			return "", cmp.Or(err, ctx.Err())
		case err != nil:
			d.log(
				ctx,
				severity.Warning,
				fmt.Sprintf("%s can not tell whether the application is idle: %s", s.table.Name, sqlstate.Explain(err)),
			)
		case since:
			return "", nil
		case at != nil && at.After(newest):
			newest = *at
		}
	}
	if newest.IsZero() {
		return "", nil
	}
	return fmt.Sprintf(
		"the application last did something at %s (the newest date of workflow logs, tracking logs and events), "+
			"which is more than %s ago: is this a restored copy, or is the clock wrong?",
		inUTC(newest),
		most,
	), nil
}

// sign is a date by which it is known that the application is at work.
type sign struct {
	table *campaign.Table
	date  string
}

// signs are those that the database has; those first that are told at once.
func (d *database) signs() (signs []sign) {
	add := func(t *campaign.Table, date string) {
		s := sign{t, date}
		if t != nil && t.Has(date) && t.CanSelect && !slices.Contains(signs, s) {
			signs = append(signs, s)
		}
	}
	add(d.given.Catalog.Table("XtkWorkflowLog"), "tsLog")
	for _, name := range []string{"NmsRtEvent", "NmsBatchEvent", "NmsEventHisto"} {
		add(d.given.Catalog.Table(name), "tsCreated")
	}
	logs, err := d.given.Catalog.TrackingLogs()
	if err != nil { // which ones there are is not known; the tasks say so
		return signs
	}
	for _, t := range logs.Tables {
		add(t, "tsLog")
	}
	return signs
}

// newest reports whether a sign is newer than some time ago, or else, which one is the newest; nil: there is none.
func (d *database) newest(ctx context.Context, s sign, than time.Duration) (since bool, at *time.Time, err error) {
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		from := fmt.Sprintf(
			" FROM %s AS r WHERE r.%s <= $1::timestamptz AND r.%[2]s > '-infinity'",
			s.table.Quoted(),
			s.date,
		)
		if err := tx.QueryRow(
			ctx,
			fmt.Sprintf("SELECT EXISTS (SELECT%s AND r.%s >= $2::timestamptz)", from, s.date),
			d.Now,
			d.Now.Add(-than),
		).
			Scan(&since); err != nil ||
			since {
			return err
		}
		return tx.QueryRow(ctx, fmt.Sprintf("SELECT max(r.%s)::timestamptz%s", s.date, from), d.Now).Scan(&at)
	})
	return since, at, err
}
