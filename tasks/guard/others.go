package guard

import (
	"context"
	"fmt"
	"time"
)

type Drops struct {
	Mask    string
	Tables  int64
	Options map[string]string
	DryRun  bool
	// Sizes returns the sizes of the tables and of the database, in bytes.
	Sizes func(ctx context.Context) (tables, database int64, err error)
}

func (h *History) JudgeDrops(ctx context.Context, d Drops) (trips []Trip, err error) {
	shown := func(name Name) bool { return d.DryRun && h.IsRefused(name, d.Mask, d.Options) }
	n := Trip{Guard: Tables, Table: d.Mask, Number: d.Tables, Limit: h.limit(Tables, d.Mask, float64(h.MaxTables), 0)}
	if h.MaxTables > 0 && (n.Number > n.Limit || shown(Tables)) {
		trips = append(trips, n)
	}
	if h.MaxDropPercent == 0 || (d.Tables == 0 && !shown(Bytes)) {
		return trips, nil
	}
	tables, database, err := d.Sizes(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the sizes of work tables: %w", err)
	}
	limit := h.limit(Bytes, d.Mask, float64(database)*h.MaxDropPercent/100, 0)
	b := Trip{Guard: Bytes, Table: d.Mask, Number: tables, Limit: limit}
	if b.Number > b.Limit || shown(Bytes) {
		trips = append(trips, b)
	}
	return trips, nil
}

type Items struct {
	Table string
	// Total is how many items the table has, and Number how many the task would delete.
	Total, Number int64
	// Recent is how many were deleted within SharePeriod, and Before how many earlier tasks of a dry run would delete.
	Recent, Before int64
	// SinceCutoff is how many items are between a former cutoff and the current one; it is set only if CutoffMoved is.
	SinceCutoff int64
	CutoffMoved bool
	Options     map[string]string
	DryRun      bool
}

func (h *History) JudgeItems(i Items) (trips []Trip) {
	judge := func(t Trip, limit float64) {
		t.Table, t.Limit = i.Table, h.limit(t.Guard, i.Table, limit, max(h.MinProcessInstances-1, 0))
		if t.Number > t.Limit || (i.DryRun && h.IsRefused(t.Guard, i.Table, i.Options)) {
			trips = append(trips, t)
		}
	}
	if h.MaxSharePercent > 0 {
		recent, total := i.Recent+i.Before, i.Total+i.Recent
		t := Trip{Guard: Share, Number: recent + i.Number, Recent: recent, Total: total}
		judge(t, float64(total)*h.MaxSharePercent/100)
	}
	if h.Cutoff && i.CutoffMoved {
		judge(Trip{Guard: Cutoff, Number: i.SinceCutoff}, 0)
	}
	return trips
}

// JudgeFirst returns why a scheduled run must not be the first one in a database; "" if it may.
func (h *History) JudgeFirst() string {
	if !h.First || !h.Unattended {
		return ""
	}
	return "no run started by hand or following a saved plan has succeeded in this database: " +
		"start one with `cleanupd run --preview`"
}

// JudgeClock returns what is wrong with the clocks; "" if nothing is. offset is how far the clock of this process
// is ahead of the database's.
func (h *History) JudgeClock(now time.Time, offset time.Duration) string {
	database := now.Add(-offset)
	switch {
	case h.MaxClockDifference == 0:
		return ""
	case offset.Abs() > h.MaxClockDifference:
		return fmt.Sprintf("the database's clock is %s, and this replica's differs by %s: more than %s",
			inUTC(database), offset.Abs().Round(time.Second), h.MaxClockDifference)
	case h.LastStart != nil && database.Before(*h.LastStart):
		return fmt.Sprintf("the database's clock is %s, and the last run began at %s", inUTC(database),
			inUTC(*h.LastStart))
	}
	return ""
}

// JudgeIdle returns what is unusual if the application has written nothing for too long; "" otherwise. newest is when
// it last wrote something; zero if unknown.
func (h *History) JudgeIdle(newest, now time.Time) string {
	if h.MaxIdle == 0 || newest.IsZero() || !newest.Before(now.Add(-h.MaxIdle)) {
		return ""
	}
	return fmt.Sprintf(
		"the application last did something at %s (the newest date of workflow logs, tracking logs and events), "+
			"which is more than %s ago: is this a restored copy, or is the clock wrong?",
		inUTC(newest), h.MaxIdle,
	)
}

func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
