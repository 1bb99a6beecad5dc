package tasks_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var (
	policyTables = flag.Int("policy-tables", suite.Size(suite.Model, 10, 80),
		"how many random tables TestRandomPolicies makes")
	firstPolicySeed = flag.Uint64("first-policy-seed", 1,
		"the seed of the first database of TestRandomPolicies and TestRandomKeys")
)

const tablesPerSeed = 10

type randomPolicies struct {
	db *pgtest.DB
	// application is set if the database has the application's tables. zone is the zone of its local times; empty for the
	// zone of the database.
	application bool
	zone        string
	policies    []*randomPolicy
	want        [][]string
	changed     []int64
}

// A run deletes or changes the same rows as one plain statement, which the test writes itself. The dry run before it
// finds as many, and a run after it does nothing.
func TestRandomPolicies(t *testing.T) {
	t.Parallel()
	n := (*policyTables + tablesPerSeed - 1) / tablesPerSeed
	seeded(t, *firstPolicySeed, n, 3, func(t *testing.T, rng *rand.Rand, seed uint64) {
		r := newRandomPolicies(t, rng)
		r.check(t)
		r.ask(t)
		t.Logf("rows to delete or change: %d", r.changed)
		dryRun := r.run(t, rng, func(c *cleanup.Config) { c.DryRun = true })
		r.compareCounts(t, "dry", dryRun)
		for i, p := range r.policies {
			if shown := dryRun.previews[p.TaskName()]; previewed(shown) != r.changed[i] {
				t.Errorf("%s: the preview is %v, want %d rows; %s", p.describe(), shown, r.changed[i], p.sql())
			}
		}
		saved := map[string]cleanup.SavedTask(nil)
		if seed%2 == 0 {
			saved = dryRun.planned
		}
		r.compareCounts(t, "first", r.run(t, rng, func(c *cleanup.Config) { c.SavedPlan = saved }))
		r.compareRows(t)
		r.changed = make([]int64, len(r.policies))
		r.compareCounts(t, "second", r.run(t, rng, nil))
		r.compareRows(t)
	})
}

func previewed(tables []cleanup.PreviewTable) (rows int64) {
	for _, t := range tables {
		rows += t.Rows
	}
	return rows
}

func (p *randomPolicy) describe() string {
	return fmt.Sprintf("%s on %s with limit %d", p.TaskName(), p.table.createSQL(), p.Limit)
}

func newRandomPolicies(t *testing.T, rng *rand.Rand) *randomPolicies {
	t.Helper()
	r := &randomPolicies{db: pgtest.Empty(t)}
	if r.application = rng.IntN(2) == 0; r.application {
		r.db = pgtest.Campaign(t)
		if r.zone = choose(rng, []string{"", "America/New_York", "Asia/Tokyo"}); r.zone != "" {
			r.db.Do("INSERT INTO XtkOption (iOptionId, sName, sStringValue) VALUES (1, 'WdbcTimeZone', $1)", r.zone)
		}
	}
	r.db.Do(typesSQL + `; CREATE SCHEMA "x"" .Y"`)
	names := slices.Clone(oddNames)
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	b := &pgx.Batch{}
	for i := range tablesPerSeed {
		schema := choose(rng, []string{"public", `x" .Y`, "Odd types"})
		child, parent := newRandomTable(rng, schema, names[2*i]), newRandomTable(rng, schema, names[2*i+1])
		parent.rows = choose(rng, []int{0, 1, 3})
		r.policies = append(r.policies, newRandomPolicy(rng, fmt.Sprintf("p%d", i), child, parent, r.application))
		child.large = suite.Model.Requested() && rng.IntN(20) == 0 && child.by == "" && len(child.relations) == 1
		if child.large {
			r.policies[i].Limit = 0
		}
		for _, table := range []*randomTable{child, parent} {
			r.db.Do(table.createSQL())
			table.fill(rng, b)
		}
	}
	if err := r.db.SendBatch(connection.InZone(t.Context(), r.zone), b).Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.policies {
		if p.table.large {
			r.db.Do(p.table.multiplySQL())
		}
	}
	if rng.IntN(2) == 0 { // indexes are cheap
		r.db.Do("ALTER DATABASE " + r.db.Name + " SET random_page_cost = 0.001")
		r.db.Reset()
	}
	return r
}

func (r *randomPolicies) tasks() (all []rules.Task) {
	for _, p := range r.policies {
		all = append(all, p.Task())
	}
	return all
}

// config changes the configuration of a run so that it does the policies.
func (r *randomPolicies) config(c *cleanup.Config) {
	c.Todo = r.tasks()
	c.Pipeline, c.NoCampaign = slices.Clone(c.Todo), !r.application
	if r.application {
		c.Pipeline = slices.Concat(tasks.Pipeline, c.Todo)
	}
}

func (r *randomPolicies) check(t *testing.T) {
	t.Helper()
	c := cleanup.Config{}
	r.config(&c)
	err := pgx.BeginFunc(t.Context(), r.db, func(tx pgx.Tx) error {
		env := rules.Env{Now: now, Pipeline: c.Pipeline}
		var err error
		if env.Catalog, err = campaign.LoadCatalog(t.Context(), tx, c.Scope()); err != nil {
			return err
		}
		if env.Options, err = campaign.ReadOptions(t.Context(), tx, env.Catalog); err != nil {
			return err
		}
		for _, p := range r.policies {
			if err := errors.Join(p.Validate(), p.Check(t.Context(), tx, env)); err != nil {
				t.Errorf("%s: %+v: %v", p.describe(), p.Policy, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ask executes the plain statements of the policies in a transaction that is undone, and stores their results.
func (r *randomPolicies) ask(t *testing.T) {
	t.Helper()
	r.want, r.changed = make([][]string, len(r.policies)), make([]int64, len(r.policies))
	tx, err := r.db.Begin(connection.InZone(t.Context(), r.zone))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for i, p := range r.policies {
		b := &pgx.Batch{}
		tag, err := tx.Exec(t.Context(), p.sql())
		if err != nil {
			t.Fatalf("%s: %s: %v", p.describe(), p.sql(), err)
		}
		r.changed[i] = tag.RowsAffected()
		p.table.queueContents(b, &r.want[i])
		if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// run does the policies. The worker of a run may die, and another one continues.
func (r *randomPolicies) run(t *testing.T, rng *rand.Rand, change func(*cleanup.Config)) *journal {
	t.Helper()
	j := newJournal(r.db)
	limit := choose(rng, []int{0, 1, 20})
	if slices.ContainsFunc(r.policies, func(p *randomPolicy) bool { return p.table.large }) {
		limit = 0
	}
	configure := func(c *cleanup.Config) {
		r.config(c)
		c.Settings.MaxRows, c.ContinueOnError = limit, true
		if change != nil {
			change(c)
		}
	}
	if rng.IntN(2) == 0 {
		j.loseAt, j.after = 1+rng.IntN(20), rng.IntN(2) == 0
	}
	c := cleanup.Config{}
	if configure(&c); c.DryRun {
		j.loseAt = 0
	}
	err := runWith(t, j, configure)
	if errors.Is(err, cleanup.ErrLost) {
		j.loseAt = 0
		err = runWith(t, j, func(c *cleanup.Config) {
			configure(c)
			resume(c, j)
		})
	}
	if err != nil {
		t.Error(err)
	}
	return j
}

func (r *randomPolicies) compareCounts(t *testing.T, which string, j *journal) {
	t.Helper()
	for i, p := range r.policies {
		deleted, updated := r.changed[i], int64(0)
		if p.set != nil {
			deleted, updated = updated, deleted
		}
		name := p.TaskName()
		if j.deleted[name]-j.dropped[name] != deleted || j.updated[name] != updated || j.problems[name] != "" {
			t.Errorf("the %s run of %s deleted %d, updated %d, %s; want %d, %d by %s; the policy is %+v, the log %q",
				which, p.describe(), j.deleted[name], j.updated[name], j.problems[name], deleted, updated, p.sql(),
				p.Policy, j.logs)
		}
	}
}

func (r *randomPolicies) compareRows(t *testing.T) {
	t.Helper()
	got, b := make([][]string, len(r.policies)), &pgx.Batch{}
	for i, p := range r.policies {
		p.table.queueContents(b, &got[i])
	}
	if err := r.db.SendBatch(connection.InZone(t.Context(), r.zone), b).Close(); err != nil {
		t.Fatal(err)
	}
	for i, p := range r.policies {
		if !slices.Equal(got[i], r.want[i]) {
			t.Errorf("%s: rows are\n%s\nwant\n%s", p.describe(), strings.Join(got[i], "\n"),
				strings.Join(r.want[i], "\n"))
		}
	}
}
