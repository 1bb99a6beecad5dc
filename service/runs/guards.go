package runs

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

func (m *Manager) Guards(ctx context.Context) (guard.Limits, []store.GuardRefusal, error) {
	limits, err := store.GuardLimits(ctx, m.calls)
	if err != nil {
		return limits, nil, err
	}
	refusals, err := store.GuardRefusals(ctx, m.calls)
	return limits, refusals, err
}

// SetGuards changes the limits. It ends the refusals by guards whose limits change, and returns the remaining ones.
// It fails with failure.Violations, and with etag.ErrStale if givenEtag is not that of the current limits. The
// reason is stored in the audit.
func (m *Manager) SetGuards(
	ctx context.Context, givenEtag, reason string, change func(current guard.Limits) guard.Limits,
) (limits guard.Limits, refusals []store.GuardRefusal, err error) {
	noCampaign, err := m.Tasks.Profile.NoCampaign(ctx, m.calls)
	if err != nil {
		return limits, nil, err
	}
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		current, err := store.LockGuardLimits(ctx, tx)
		if err != nil {
			return err
		}
		if err := etag.Check(givenEtag, etag.Of(current), "the guards"); err != nil {
			return err
		}
		limits = change(current)
		if err := validateLimits(limits); err != nil {
			return err
		}
		if err := m.checkApplies(current, limits, noCampaign); err != nil {
			return err
		}
		if err := store.SetGuardLimits(ctx, tx, current, limits); err != nil {
			return err
		}
		if refusals, err = store.GuardRefusals(ctx, tx); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{"from": current, "to": limits, "reason": reason})
	})
	return limits, refusals, err
}

// checkApplies fails with failure.Violations if a limit changes that is about what the database or the service does not
// have.
func (m *Manager) checkApplies(current, changed guard.Limits, noCampaign bool) error {
	var wrong failure.Violations
	check := func(same bool, field, why string) {
		if !same {
			wrong.Add("guards."+field, why)
		}
	}
	if noCampaign {
		const tables = "applies to work tables, which only a Campaign database has"
		check(current.MaxTables == changed.MaxTables, "max_tables", tables)
		check(current.MaxDropPercent == changed.MaxDropPercent, "max_drop_percent", tables)
		check(current.MaxIdle == changed.MaxIdle, "max_idle",
			"applies to the application's logs and events, which only a Campaign database has")
	}
	if m.Tasks.External == nil {
		check(current.MinProcessInstances == changed.MinProcessInstances, "min_process_instances",
			"applies to process instances of AEM Forms, and the service has no --forms-database-url")
	}
	return wrong.Err()
}

func validateLimits(g guard.Limits) error {
	var wrong failure.Violations
	check := func(ok bool, field, problem string) {
		if !ok {
			wrong.Add("guards."+field, problem)
		}
	}
	isPercent := func(p float64) bool { return p >= 0 && p <= 100 } // false for NaN
	check(g.MinRows >= 0, "min_rows", "must not be negative")
	check(g.MinProcessInstances >= 0, "min_process_instances", "must not be negative")
	check(isPercent(g.MaxSharePercent), "max_share_percent", "must be from 0, which switches the guard off, to 100")
	check(g.MaxGrowth == 0 || (g.MaxGrowth >= 1 && g.MaxGrowth <= math.MaxInt32), "max_growth",
		"must be 0, which switches the guard off, or 1 or more")
	check(g.MaxTables >= 0, "max_tables", "must not be negative; 0 switches the guard off")
	check(isPercent(g.MaxDropPercent), "max_drop_percent", "must be from 0, which switches the guard off, to 100")
	for field, d := range map[string]time.Duration{
		"max_clock_difference": g.MaxClockDifference,
		"max_idle":             g.MaxIdle,
	} {
		check(d >= 0 && d <= schedule.MaxTimeLimit, field,
			"must be from 0, which switches the guard off, to 36500 days")
	}
	slices.SortFunc(wrong, func(a, b failure.Violation) int { return strings.Compare(a.Field, b.Field) })
	return wrong.Err()
}
