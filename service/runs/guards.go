package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// Latched is a guard that tripped in a task, and has refused it since.
type Latched struct {
	guard.Trip
	Task  string
	RunID string // the first run that it refused
	Time  time.Time
}

// Guards reads the settings of the guards, and those that are latched.
func (m *Manager) Guards(ctx context.Context) (guard.Limits, []Latched, error) {
	settings, err := readGuards(ctx, m.calls, "")
	if err != nil {
		return settings, nil, err
	}
	rows, err := m.calls.Query(
		ctx,
		"SELECT guard, table_name, number, most, task, run_id::text, trip_time FROM cleanupd.latch ORDER BY "+
			"trip_time, task, guard, table_name",
	)
	if err != nil {
		return settings, nil, err
	}
	latched, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Latched, err error) {
		return l, row.Scan(&l.Guard, &l.Table, &l.Number, &l.Limit, &l.Task, &l.RunID, &l.Time)
	})
	return settings, latched, err
}

// readGuards reads the settings. What is not stored is as by default.
func readGuards(ctx context.Context, db campaign.Querier, lock string) (guard.Limits, error) {
	g := guard.DefaultLimits
	var stored []byte
	err := db.QueryRow(ctx, "SELECT settings FROM cleanupd.guards "+lock).Scan(&stored)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return g, nil
	case err != nil:
		return g, err
	}
	return g, json.Unmarshal(stored, &g)
}

// checkGuards fails with InvalidError if settings cannot be.
func checkGuards(g guard.Limits) error {
	var wrong InvalidError
	say := func(bad bool, field, problem string) {
		if bad {
			wrong.Add("guards."+field, problem)
		}
	}
	percent := func(p float64) bool { return !(p >= 0 && p <= 100) } // nor NaN
	say(g.MinRows < 0, "min_rows", "must not be negative")
	say(g.MinProcessInstances < 0, "min_process_instances", "must not be negative")
	say(percent(g.MaxSharePercent), "max_share_percent", "must be from 0, which switches the guard off, to 100")
	say(
		g.MaxGrowth != 0 && !(g.MaxGrowth >= 1 && g.MaxGrowth <= math.MaxInt32),
		"max_growth",
		"must be 0, which switches the guard off, or 1 or more",
	)
	say(g.MaxTables < 0, "max_tables", "must not be negative; 0 switches the guard off")
	say(percent(g.MaxDropPercent), "max_drop_percent", "must be from 0, which switches the guard off, to 100")
	for field, d := range map[string]time.Duration{
		"max_clock_difference": g.MaxClockDifference,
		"max_idle":             g.MaxIdle,
	} {
		say(d < 0 || d > longest, field, "must be from 0, which switches the guard off, to 36500 days")
	}
	if wrong == nil {
		return nil
	}
	slices.SortFunc(wrong, func(a, b Violation) int { return strings.Compare(a.Field, b.Field) })
	return wrong
}

// SetGuards replaces the settings of the guards. Those that are judged otherwise now are not latched any longer. It
// fails with InvalidError.
func (m *Manager) SetGuards(ctx context.Context, g guard.Limits) error {
	if err := checkGuards(g); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if err := m.keepOwn(ctx, tx); err != nil {
			return err
		}
		before, err := readGuards(ctx, tx, "FOR UPDATE")
		if err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO cleanupd.guards (settings) VALUES ($1) ON CONFLICT (only_row) DO UPDATE SET settings = "+
				"excluded.settings",
			g,
		); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM cleanupd.latch WHERE guard = ANY ($1)", before.Changed(g)); err != nil {
			return err
		}
		if before.MinProcessInstances != g.MinProcessInstances {
			// only purges have other names
			if _, err := tx.Exec(ctx, "DELETE FROM cleanupd.latch WHERE task <> ALL ($1)", tasks.Names()); err != nil {
				return err
			}
		}
		return audit.Note(ctx, tx, audit.Details{"from": before, "to": g})
	})
}

// Unlatch lets go of the guards that tripped by other values of options than those in force, in the transaction that
// changes these.
func (m *Manager) Unlatch(ctx context.Context, tx pgx.Tx, inForce map[string]string) error {
	_, err := tx.Exec(
		ctx,
		`DELETE FROM cleanupd.latch AS l WHERE EXISTS (SELECT FROM jsonb_each_text(l.options) AS was
			JOIN jsonb_each_text($1::jsonb) AS is_now USING (key) WHERE was.value <> is_now.value)`,
		inForce,
	)
	return err
}

// acceptable are the guards that a run may pass.
var acceptable = []guard.Name{
	guard.Share,
	guard.Cutoff,
	guard.Growth,
	guard.Tables,
	guard.Bytes,
}

// wrongAccepted is what is wrong with the guards that a request accepts.
func (r Request) wrongAccepted() (wrong InvalidError) {
	if len(r.Accepted) > 0 && r.Plan == "" {
		wrong.Add("accept_guards", "is for the run of a plan, whose preview shows the numbers")
	}
	for i, a := range r.Accepted {
		field := fmt.Sprintf("accept_guards[%d].", i)
		switch {
		case a.Guard == guard.Clock || a.Guard == guard.Idle:
			wrong.Addf(field+"guard", "%s can not be accepted, only set", a.Guard)
		case !slices.Contains(acceptable, a.Guard):
			wrong.Addf(field+"guard", "unknown guard %.64q; those that can be accepted are %v", a.Guard, acceptable)
		case a.Table == "":
			wrong.Add(field+"table", "is missing: the table as the preview shows it")
		case a.Number < 0:
			wrong.Add(field+"number", "must not be negative")
		}
	}
	return wrong
}

// History implements pipeline.Safety.
func (j *journal) History(ctx context.Context) (*guard.History, error) {
	h := &guard.History{
		Accepted:  j.claim.accepted,
		Deletions: map[string]guard.Deletions{},
		Cutoffs:   map[string]guard.CutoffRecord{},
	}
	var err error
	if h.Limits, err = readGuards(ctx, j.m.pool, ""); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *guard.History) error{j.latched, j.taken, j.cutoffs} {
		if err := read(ctx, h); err != nil {
			return nil, err
		}
	}
	return h, j.m.pool.QueryRow(ctx, `SELECT max(start_time) FROM cleanupd.run r WHERE NOT dry_run
		AND id <> $1::text::uuid
		AND EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id AND t.start_time IS NOT NULL)`, j.claim.id).
		Scan(&h.LastStart)
}

func (j *journal) latched(ctx context.Context, h *guard.History) error {
	rows, err := j.m.pool.Query(
		ctx,
		"SELECT guard, table_name, number, most, options FROM cleanupd.latch WHERE task = $1 ORDER BY guard, table_name",
		j.task,
	)
	if err != nil {
		return err
	}
	h.Latched, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l guard.Latch, err error) {
		return l, row.Scan(&l.Guard, &l.Table, &l.Number, &l.Limit, &l.Options)
	})
	return err
}

// taken reads what runs have taken: this one, too, unless it is dry. What somebody has accepted of a table's share is
// not counted with what others take.
func (j *journal) taken(ctx context.Context, h *guard.History) error {
	rows, err := j.m.pool.Query(ctx, `
		WITH taken AS (
		  SELECT t.table_name, t.start_time, t.rows_deleted, t.rows_updated, usual, EXISTS (SELECT FROM cleanupd.run r
		    WHERE r.id = t.run_id
		    AND r.accepted @> jsonb_build_array(jsonb_build_object('Guard', $4::text, 'Table',
		    t.table_name))) AS accepted
		  FROM cleanupd.taken t
		  UNION ALL
		  SELECT COALESCE(NULLIF(s.root, ''), s.relation), r.start_time, s.rows_deleted, s.rows_updated, false, false
		    FROM cleanupd.space s JOIN cleanupd.run r ON r.id = s.run_id WHERE r.id = $1::text::uuid),
		begun AS (SELECT start_time FROM cleanupd.run WHERE id = $1::text::uuid)
		SELECT t.table_name, COALESCE(sum(rows_deleted + rows_updated) FILTER (WHERE lately), 0)::bigint,
			COALESCE(sum(rows_deleted) FILTER (WHERE lately), 0)::bigint,
			COALESCE(max(rows_deleted + rows_updated) FILTER (WHERE usual), 0)::bigint
		FROM taken AS t, begun, LATERAL (SELECT NOT accepted
			AND t.start_time > begun.start_time - $2::bigint * interval '1 microsecond' AS lately) AS l
		WHERE t.start_time > begun.start_time - $3::bigint * interval '1 microsecond' GROUP BY 1`,
		j.claim.id, guard.SharePeriod.Microseconds(), guard.UsualPeriod.Microseconds(), guard.Share)
	if err != nil {
		return err
	}
	var (
		table string
		t     guard.Deletions
	)
	_, err = pgx.ForEachRow(
		rows,
		[]any{&table, &t.Recent, &t.RecentDeleted, &t.Usual},
		func() error { h.Deletions[table] = t; return nil },
	)
	return err
}

func (j *journal) cutoffs(ctx context.Context, h *guard.History) error {
	rows, err := j.m.pool.Query(
		ctx,
		"SELECT delay, cutoff, reference_time, clock_offset FROM cleanupd.cutoff WHERE task = $1",
		j.task,
	)
	if err != nil {
		return err
	}
	var (
		delay  string
		c      guard.CutoffRecord
		offset int64
	)
	_, err = pgx.ForEachRow(rows, []any{&delay, &c.At, &c.ReferenceTime, &offset}, func() error {
		c.ClockOffset = time.Duration(offset) * time.Microsecond
		h.Cutoffs[delay] = c
		return nil
	})
	return err
}

// judged stores what guards said of a task that has ended, and what they will compare with.
func (j *journal) judged(ctx context.Context, tx pgx.Tx, o pipeline.Outcome) error {
	if j.claim.dryRun {
		return nil
	}
	b := &pgx.Batch{}
	if o.State == pipeline.Succeeded {
		b.Queue("DELETE FROM cleanupd.latch WHERE task = $1", j.task)
		for delay, c := range o.Cutoffs {
			b.Queue(
				`INSERT INTO cleanupd.cutoff (task, delay, cutoff, reference_time, clock_offset)
					VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (task, delay) DO UPDATE
					SET cutoff = excluded.cutoff, reference_time = excluded.reference_time,
					clock_offset = excluded.clock_offset`,
				j.task,
				delay,
				c.At,
				c.ReferenceTime,
				c.ClockOffset.Microseconds(),
			)
		}
	}
	// whatever became of it: what did not get as far as them is judged again
	if o.Trips == nil && o.State != pipeline.NotRun && o.Reason != refused.PlanStale {
		for _, a := range j.claim.accepted {
			b.Queue(
				"DELETE FROM cleanupd.latch WHERE task = $1 AND guard = $2 AND table_name = $3",
				j.task,
				a.Guard,
				a.Table,
			)
		}
	}
	if o.Trips != nil {
		b.Queue("DELETE FROM cleanupd.latch WHERE task = $1 AND options <> $2", j.task, o.Options)
	}
	for _, t := range o.Trips {
		b.Queue(
			`INSERT INTO cleanupd.latch (task, guard, table_name, number, most, options, run_id)
				VALUES ($1, $2, $3, $4, $5, $6, $7::text::uuid)
			ON CONFLICT (task, guard, table_name) DO UPDATE SET number = excluded.number, most = excluded.most`,
			j.task,
			t.Guard,
			t.Table,
			t.Number,
			t.Limit,
			o.Options,
			j.claim.id,
		)
	}
	return tx.SendBatch(ctx, b).Close()
}

// keepTaken keeps what a run took of tables for longer than the run. One that a guard refused, or that passed one,
// tells nothing of others.
func keepTaken(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.taken (run_id, table_name, start_time, rows_deleted, rows_updated, usual)
		SELECT r.id, COALESCE(NULLIF(s.root, ''), s.relation), r.start_time, sum(s.rows_deleted), sum(s.rows_updated),
		  r.accepted IS NULL AND NOT EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = r.id AND t.reason = $2)
		FROM cleanupd.run r JOIN cleanupd.space s ON s.run_id = r.id
		WHERE r.id = $1::text::uuid AND NOT r.dry_run AND (s.rows_deleted > 0 OR s.rows_updated > 0) GROUP BY 1, 2, 3
		ON CONFLICT DO NOTHING`,
		id,
		refused.Guard,
	)
	return err
}
