package execute

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/jackc/pgerrcode"
)

// Estimates decide where they are less than a tenth of a limit.
const farFrom = 10

// about is how many rows of a table would go, as the planner and a sample of the table say; infinite where that is not
// known.
func (g *guarded) about(ctx context.Context, table string, jobs []plan.Job) (float64, error) {
	if g.found != nil {
		return float64(g.found[table]), nil
	}
	planned := g.estimate(ctx, jobs, g.ids)
	if planned < 0 || slices.ContainsFunc(jobs, func(j plan.Job) bool { return j.Elsewhere }) {
		return math.Inf(1), nil
	}
	var sampled int64
	for _, j := range jobs { // statistics may be older than what somebody has just changed
		s, err := g.bind(ctx, &j, g.ids)
		if err != nil {
			return 0, err
		}
		rows, err := g.engine.Sample(ctx, s)
		if g.unread(ctx, err, s.Relation) != nil {
			return 0, err
		}
		sampled += rows
	}
	return float64(max(planned, sampled)), nil
}

// rowsOf is how many rows some relations have, by their sizes and the planner's statistics, which a standby does not
// have, and whether these are fresh: not a tenth of the rows has changed since.
func (d *database) rowsOf(ctx context.Context, relations []string) (rows float64, fresh bool, err error) {
	err = d.primary.QueryRow(ctx, `SELECT COALESCE(sum(greatest(c.reltuples, 0) / greatest(c.relpages,
		1) * pg_relation_size(c.oid) / current_setting('block_size')::float8), 0),
			COALESCE(bool_and(c.relkind IN ('r', 'm') AND (c.reltuples > 0 OR c.relpages = 0
				AND pg_relation_size(c.oid) = 0)
				AND pg_stat_get_mod_since_analyze(c.oid) <= greatest(c.reltuples, 0) / 10), false)
		FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)`, relations).
		Scan(&rows, &fresh)
	return rows, fresh, err
}

// count is how many rows a table has.
func (g *guarded) count(ctx context.Context, table *campaign.Table) (rows float64, err error) {
	if table.Elsewhere != "" {
		err := g.Pool.QueryRow(ctx, "SELECT count(*)::float8 FROM "+table.Quoted()).Scan(&rows)
		return rows, err
	}
	for _, leaf := range table.Leaves {
		all := purge.Sweep{Name: leaf.Name, Relation: leaf.Quoted(), Where: "true"}
		err := g.engine.Count(ctx, all, func(ctx context.Context, n int64) error {
			rows += float64(n)
			return g.journal.Proceed(ctx)
		})
		if err := g.unread(ctx, err, all.Relation); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// errEnough says that more rows were found than are of interest.
var errEnough = errors.New("enough")

// unread returns an error of reading a relation, unless that is locked or gone, as the batches will find, too.
func (g *guarded) unread(ctx context.Context, err error, relation string) error {
	if errors.Is(err, errEnough) || g.vanished(ctx, err, relation) || sqlstate.Is(err, pgerrcode.LockNotAvailable) {
		return nil
	}
	return err
}

// rows is how many rows of a table would go, each at the first job that takes it. It stops once these are more than
// enough.
func (g *guarded) rows(ctx context.Context, table string, jobs []plan.Job, enough int64) (int64, error) {
	if g.found != nil {
		return g.found[table], nil
	}
	return g.rowsBut(ctx, table, jobs, enough, nil)
}

// rowsBut is rows without those of which a condition is true, by the jobs' units.
func (g *guarded) rowsBut(
	ctx context.Context,
	table string,
	jobs []plan.Job,
	enough int64,
	but map[string]purge.Condition,
) (n int64, err error) {
	var all []claimed
	for _, j := range jobs {
		ids := g.of(j)
		if !takes(j, table) || (j.Step.Dependent() && len(ids) == 0) {
			continue
		}
		c, err := g.claim(ctx, j, ids)
		if err != nil {
			return 0, err
		}
		if except, some := but[j.Unit]; some {
			s := purge.Sweep{Where: c.claim.Where, Args: c.claim.Args}.Without(except)
			c.claim.Where, c.claim.Args = s.Where, s.Args
		}
		all = append(all, c)
	}
	var seen []string
	for _, c := range all {
		if slices.Contains(seen, c.job.Relation) {
			continue
		}
		seen = append(seen, c.job.Relation)
		g.journal.At(c.job.Name+": counted first", -1)
		add := func(ctx context.Context, rows int64) error {
			if n += rows; n > enough {
				n = enough + 1
				return errEnough
			}
			return g.journal.Proceed(ctx)
		}
		if err := g.unread(ctx, g.survey(ctx, table, c, all, add), c.job.Relation); err != nil || n > enough {
			return n, err
		}
	}
	return n, nil
}

// survey counts the rows of a table that claims on a relation take.
func (g *guarded) survey(
	ctx context.Context,
	table string,
	of claimed,
	all []claimed,
	add func(ctx context.Context, rows int64) error,
) error {
	if of.job.Elsewhere {
		s := of.job.Sweep
		s.Where, s.Args = of.claim.Where, of.claim.Args
		if s.RemoteError() != nil { // it deletes nothing
			return nil
		}
		found, err := g.engine.CountElsewhere(ctx, s)
		switch {
		case err != nil:
			return err
		case of.job.Root == table:
			return add(ctx, found.Rows)
		}
		return add(ctx, found.Paired)
	}
	here, claims := together(all, of.job.Relation)
	return g.engine.CountCandidates(
		ctx,
		of.job.Name,
		of.job.Relation,
		claims,
		func(ctx context.Context, window []purge.Tally) error {
			var rows int64
			for i, tally := range window {
				if here[i].job.Root == table {
					rows += tally.Rows
				} else {
					rows += tally.Paired
				}
			}
			return add(ctx, rows)
		},
	)
}
