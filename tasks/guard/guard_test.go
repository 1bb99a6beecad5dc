package guard_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

// figures are the figures of one table. They count how often the table would be read.
type figures struct {
	estimate, total                     float64
	stale                               bool
	count, withoutDelays, sinceCutoff   int64
	totals, counts, delayed, afterwards int
}

func (f *figures) Estimate(context.Context) (float64, error) { return f.estimate, nil }

func (f *figures) Total(context.Context) (float64, bool, error) { return f.total, !f.stale, nil }

func (f *figures) CountTotal(context.Context) (float64, error) { f.totals++; return f.total, nil }

func (f *figures) Count(context.Context, int64) (int64, error) { f.counts++; return f.count, nil }

func (f *figures) CountWithoutDelays(context.Context, int64) (int64, error) {
	f.delayed++
	return f.withoutDelays, nil
}

func (f *figures) CountSinceCutoff(context.Context, int64) (int64, error) {
	f.afterwards++
	return f.sinceCutoff, nil
}

const table = `"public"."t"`

// history returns a history with small limits: half of a table's rows, ten times the usual number, and at least 10
// rows.
func history() *guard.History {
	return &guard.History{
		Limits:    guard.Limits{MinRows: 10, MaxSharePercent: 50, MaxGrowth: 10, Cutoff: true},
		Deletions: map[string]guard.Deletions{},
	}
}

func TestJudgeRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(h *guard.History, r *guard.Rows)
		figures figures
		trips   []guard.Trip
		bound   bool
		counts  int
	}{
		"few rows are not counted": {
			figures: figures{estimate: 4, total: 1_000, count: 4},
			bound:   true,
		},
		"more than half of the rows": {
			figures: figures{estimate: 600, total: 1_000, count: 501},
			trips:   []guard.Trip{{Guard: guard.Share, Table: table, Number: 501, Limit: 500, AtLeast: true, Total: 1_000}},
			counts:  1,
		},
		"more than half of few rows": {
			change:  func(h *guard.History, _ *guard.Rows) { h.MinRows = 100_000 },
			figures: figures{estimate: 600, total: 1_000, count: 501},
			bound:   true,
		},
		"more than half of few rows, because parents are missing": {
			change:  func(h *guard.History, r *guard.Rows) { h.MinRows, r.Orphans = 100_000, true },
			figures: figures{estimate: 600, total: 1_000, count: 501},
			trips:   []guard.Trip{{Guard: guard.Share, Table: table, Number: 501, Limit: 500, AtLeast: true, Total: 1_000}},
			counts:  1,
		},
		"half of the rows": {
			figures: figures{estimate: 600, total: 1_000, count: 500},
			bound:   true,
			counts:  1,
		},
		"an unknown number": {
			figures: figures{estimate: math.Inf(1), total: 1_000, count: 501},
			trips:   []guard.Trip{{Guard: guard.Share, Table: table, Number: 501, Limit: 500, AtLeast: true, Total: 1_000}},
			counts:  1,
		},
		"with the rows of other runs": {
			change: func(h *guard.History, _ *guard.Rows) {
				h.Deletions[table] = guard.Deletions{Recent: 400, RecentDeleted: 400}
			},
			figures: figures{estimate: 310, total: 600, count: 301},
			trips: []guard.Trip{
				{Guard: guard.Share, Table: table, Number: 701, Limit: 500, AtLeast: true, Recent: 400, Total: 1_000},
			},
			counts: 1,
		},
		"the first row after other runs deleted more than the limit": {
			change: func(h *guard.History, _ *guard.Rows) {
				h.Deletions[table] = guard.Deletions{Recent: 600, RecentDeleted: 600}
			},
			figures: figures{estimate: 20, total: 400, count: 1},
			trips: []guard.Trip{
				{Guard: guard.Share, Table: table, Number: 601, Limit: 500, AtLeast: true, Recent: 600, Total: 1_000},
			},
			counts: 1,
		},
		"a dry run counts to the end": {
			change:  func(_ *guard.History, r *guard.Rows) { r.DryRun = true },
			figures: figures{estimate: 501, total: 1_000, count: 501},
			trips:   []guard.Trip{{Guard: guard.Share, Table: table, Number: 501, Limit: 500, Total: 1_000}},
			counts:  1,
		},
		"accepted": {
			change: func(h *guard.History, _ *guard.Rows) {
				h.Accepted = []guard.Trip{{Guard: guard.Share, Table: table, Number: 501}}
			},
			figures: figures{estimate: 600, total: 1_000, count: 501},
			bound:   true,
			counts:  1,
		},
		"a table that the task empties": {
			change:  func(_ *guard.History, r *guard.Rows) { r.Empties = true },
			figures: figures{estimate: 600, total: 1_000, count: 1_000},
		},
		"more than usual without a delay": {
			change: func(h *guard.History, r *guard.Rows) {
				h.Deletions[table], r.Empties = guard.Deletions{Typical: 5}, true
			},
			figures: figures{estimate: 600, withoutDelays: 51},
			trips:   []guard.Trip{{Guard: guard.Growth, Table: table, Number: 51, Limit: 50, AtLeast: true}},
		},
		"a cutoff that moved too fast": {
			change:  func(_ *guard.History, r *guard.Rows) { r.CutoffMoved, r.Empties = true, true },
			figures: figures{estimate: 600, sinceCutoff: 10},
			trips:   []guard.Trip{{Guard: guard.Cutoff, Table: table, Number: 10, Limit: 9, AtLeast: true}},
		},
		"a rule that has never run": {
			change:  func(_ *guard.History, r *guard.Rows) { r.Unproven = true },
			figures: figures{estimate: 4, total: 1_000, count: 4},
			trips:   []guard.Trip{{Guard: guard.Policy, Table: table, Number: 4, AtLeast: true}},
			bound:   true,
			counts:  1,
		},
		"a rule that has never run, and matches nothing yet": {
			change:  func(_ *guard.History, r *guard.Rows) { r.Unproven = true },
			figures: figures{estimate: 4, total: 1_000},
			bound:   true,
			counts:  1,
		},
		"a guard that has refused in a dry run": {
			change: func(h *guard.History, r *guard.Rows) {
				h.Refused = []guard.Refusal{{Trip: guard.Trip{Guard: guard.Cutoff, Table: table}}}
				r.DryRun, r.Empties = true, true
			},
			figures: figures{sinceCutoff: 0},
			trips:   []guard.Trip{{Guard: guard.Cutoff, Table: table, Number: 0, Limit: 9}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, r := history(), guard.Rows{Table: table}
			if c.change != nil {
				c.change(h, &r)
			}
			j, err := h.JudgeRows(t.Context(), r, &c.figures)
			if err != nil {
				t.Fatal(err)
			}
			if len(j.Trips) != len(c.trips) || (len(c.trips) > 0 && j.Trips[0] != c.trips[0]) {
				t.Errorf("got trips %v, want %v", j.Trips, c.trips)
			}
			if bound := j.Bound != nil; bound != c.bound {
				t.Errorf("got bound %v, want %v", bound, c.bound)
			}
			if c.figures.counts != c.counts {
				t.Errorf("got %d counts, want %d", c.figures.counts, c.counts)
			}
		})
	}
}

func TestTripString(t *testing.T) {
	t.Parallel()
	const table = "public.t"
	for want, trip := range map[string]guard.Trip{
		"share of public.t: more than 1,667,331 rows would be deleted within a day, of about 2,000,000 in the table": {
			Guard: guard.Share, Table: table, Number: 1_667_332, Limit: 1_667_331, AtLeast: true, Total: 2_000_000,
		},
		"share of public.t: 468,012 rows would be deleted within a day, 343,201 of them by earlier tasks and runs, without " +
			"accepted ones, of about 900,000 in the table; the limit is 450,000": {
			Guard: guard.Share, Table: table, Number: 468_012, Limit: 450_000, Recent: 343_201, Total: 900_000,
		},
		"share of public.t: more than 343,201 rows would be deleted within a day, 343,201 of them by earlier tasks and " +
			"runs, without accepted ones, of about 500,000 in the table; the limit is 250,000": {
			Guard: guard.Share, Table: table, Number: 343_202, Limit: 250_000, AtLeast: true, Recent: 343_201, Total: 500_000,
		},
		"share of public.t: more than 105,106 rows would be deleted within a day; the limit is 99,999": {
			Guard: guard.Share, Table: table, Number: 105_107, Limit: 99_999, AtLeast: true,
		},
		"share of public.t: 100,000 rows would be deleted within a day; the limit is 99,999": {
			Guard: guard.Share, Table: table, Number: 100_000, Limit: 99_999,
		},
		"cutoff of public.t: 93,608 rows would be deleted because a cutoff moved by more than the time that passed; " +
			"the limit is 999": {Guard: guard.Cutoff, Table: table, Number: 93_608, Limit: 999},
		"growth of public.t: more than 10 rows would be deleted by a rule without a delay, many times more than in " +
			"earlier runs": {Guard: guard.Growth, Table: table, Number: 11, Limit: 10, AtLeast: true},
		"tables of wkf%: 7,000 tables would be dropped; the limit is 5,000": {
			Guard: guard.Tables, Table: "wkf%", Number: 7_000, Limit: 5_000,
		},
		"policy of public.t: this rule has never run": {Guard: guard.Policy, Table: table, Number: 1},
		"bytes of wkf%: 2,000 bytes of tables would be dropped; the limit is 200": {
			Guard: guard.Bytes, Table: "wkf%", Number: 2_000, Limit: 200,
		},
	} {
		if got := trip.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJudgeDrops(t *testing.T) {
	t.Parallel()
	h := &guard.History{Limits: guard.Limits{MaxTables: 2, MaxDropPercent: 20}}
	d := guard.Drops{
		Mask:   "wkf%",
		Tables: 3,
		Sizes:  func(context.Context) (tables, database int64, err error) { return 201, 1_000, nil },
	}
	trips, err := h.JudgeDrops(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	want := []guard.Trip{
		{Guard: guard.Tables, Table: "wkf%", Number: 3, Limit: 2},
		{Guard: guard.Bytes, Table: "wkf%", Number: 201, Limit: 200},
	}
	if len(trips) != 2 || trips[0] != want[0] || trips[1] != want[1] {
		t.Errorf("got %v, want %v", trips, want)
	}
}

func TestMovedFast(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	then := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	h := &guard.History{Cutoffs: map[string]guard.CutoffRecord{"delay": {At: then, ReferenceTime: then}}}
	for name, c := range map[string]struct {
		moved, passed, offset time.Duration
		fast                  bool
	}{
		"as time passed":                {day, day, 0, false},
		"two days more":                 {3 * day, day, 0, false},
		"more than that":                {3*day + 1, day, 0, true},
		"by a clock that was set ahead": {3 * day, 3 * day, -2*day - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := guard.CutoffRecord{At: then.Add(c.moved), ReferenceTime: then.Add(c.passed), ClockOffset: c.offset}
			if _, fast := h.MovedFast("delay", now); fast != c.fast {
				t.Errorf("got %v, want %v", fast, c.fast)
			}
			if _, fast := h.MovedFast("another", now); fast {
				t.Error("a cutoff without a record moved fast")
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	if err := guard.Refuse(nil); err != nil {
		t.Errorf("no trips are refused: %v", err)
	}
	err := guard.Refuse([]guard.Trip{{Guard: guard.Share, Table: table, Number: 2, Limit: 1}})
	var refusal *failure.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("%v is not a refusal", err)
	}
	if refusal.Reason != failure.ReasonGuard || refusal.Metadata["number"] != "2" {
		t.Errorf("got reason %s, metadata %v", refusal.Reason, refusal.Metadata)
	}
}
