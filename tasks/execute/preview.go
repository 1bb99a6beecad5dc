package execute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Action is what a task would do to a table.
type Action string

// Actions.
const (
	Delete Action = "DELETE"
	Update Action = "UPDATE"
	Drop   Action = "DROP"
)

// TablePreview is what a task would do to a table, or to its work tables.
type TablePreview struct {
	// Table is its quoted name with the schema; of work tables the mask of their names.
	Table  string
	Action Action
	// Rows is how many rows would be deleted or updated.
	Rows int64
	// RowsTotal is how many it has, and Bytes how large those are that go: estimates.
	RowsTotal int64 `json:",omitempty"`
	Bytes     int64 `json:",omitempty"`
	// Tables is how many would be dropped, Names are some of them.
	Tables int64    `json:",omitempty"`
	Names  []string `json:",omitempty"`
	// Oldest and Newest are among the dates of the rows that go; nil: the rule goes by none.
	Oldest *time.Time `json:",omitempty"`
	Newest *time.Time `json:",omitempty"`
	// Sample is the keys of some of them.
	Sample []int64 `json:",omitempty"`
	// Rule says in words why they go.
	Rule string `json:",omitempty"`
	// RowsNow is how many rows, or tables, it would be by the options as they are stored; nil: these are.
	RowsNow *int64 `json:",omitempty"`
	// Remarks say what is not known before it is done.
	Remarks []string `json:",omitempty"`

	relations []string // that the rows are in
	dropped   []string // all names, quoted
}

// namesShown is how many names of tables a preview has.
const namesShown = 20

// preview is what a dry run knows of what its tasks would do, beyond the one at work: a row counts at the first task that deletes it, and
// what one task changes is seen by the next.
type preview struct {
	chosen []plan.Task
	// sets are those of tasks, by their names: of those that are done what they would have deleted or updated.
	sets map[string][]int64
	// begun are those that tasks began with, of which some may stay.
	begun map[string][]int64
	// void are the tasks that would do nothing, since they failed or were not run.
	void map[string]bool
	// coalesced is from when on tasks would have coalesced rows.
	coalesced map[string]time.Time
	// tallies are what was found of jobs, some before their tasks have begun.
	tallies map[string]purge.Tally
	// dropped are the quoted names of tables.
	dropped map[string]bool
	// tables are what the task at work would do.
	tables []*TablePreview
}

func newPreview(chosen []plan.Task) *preview {
	return &preview{chosen: chosen, sets: map[string][]int64{}, begun: map[string][]int64{}, void: map[string]bool{}, coalesced: map[string]time.Time{},
		tallies: map[string]purge.Tally{}, dropped: map[string]bool{}}
}

// upTo are the chosen tasks up to one that would do something.
func (p *preview) upTo(name string) (some []plan.Task) {
	for _, t := range p.chosen {
		if !p.void[t.Name] {
			some = append(some, t)
		}
		if t.Name == name {
			break
		}
	}
	return some
}

// at is what the task at work would do to a table.
func (p *preview) at(table string, action Action, rule string) *TablePreview {
	for _, t := range p.tables {
		if t.Table == table && t.Action == action {
			if rule != "" && !strings.Contains(t.Rule, rule) {
				t.Rule += "; or " + rule
			}
			return t
		}
	}
	t := &TablePreview{Table: table, Action: action, Rule: rule}
	p.tables = append(p.tables, t)
	return t
}

// add adds rows that a job would take.
func (p *preview) add(t *TablePreview, relation string, found purge.Tally) {
	all := purge.Tally{Oldest: t.Oldest, Newest: t.Newest, Keys: t.Sample}
	all.Add(found)
	t.Rows, t.Oldest, t.Newest, t.Sample = t.Rows+found.Rows, all.Oldest, all.Newest, all.Keys
	if !slices.Contains(t.relations, relation) {
		t.relations = append(t.relations, relation)
	}
}

// drop adds work tables that would be dropped.
func (p *preview) drop(mask, rule string, tables []campaign.WorkTable) {
	if len(tables) == 0 {
		return
	}
	t := p.at(mask, Drop, rule)
	for _, w := range tables {
		p.dropped[w.Quoted()] = true
		t.Tables++
		t.dropped = append(t.dropped, w.Quoted())
		if len(t.Names) < namesShown {
			t.Names = append(t.Names, w.Name)
		}
	}
}

// take returns what the task at work would do, and forgets it. A table without a row that goes is left out.
func (p *preview) take() (tables []TablePreview) {
	for _, t := range p.tables {
		if t.Rows > 0 || t.Tables > 0 {
			tables = append(tables, *t)
		}
	}
	p.tables = nil
	return tables
}

// ruleOf is why the rows of a job go.
func ruleOf(j plan.Job, set *plan.Parents) string {
	switch {
	case !j.Does.Dependent():
		return j.Rule
	case j.Does.OfSet:
		return strings.Join(slices.DeleteFunc([]string{set.Rule, j.Rule}, func(s string) bool { return s == "" }), "; and ")
	case j.Rule == "":
		return fmt.Sprintf("of a row of %s: %s", set.Table.Name, set.Rule)
	}
	return fmt.Sprintf("%s, of a row of %s: %s", j.Rule, set.Table.Name, set.Rule)
}

// remember is the set of the task at work, in a dry run: those after it see what becomes of it.
func (t *task) remember(ids []int64) {
	if t.preview != nil && t.plan.Task.Set != nil {
		if t.preview.begun[t.plan.Task.Name] == nil {
			t.preview.begun[t.plan.Task.Name] = ids
		}
		t.preview.sets[t.plan.Task.Name], t.keepers[t.plan.Task.Name] = ids, t.kept
	}
}

// setOf is the set of a task of the dry run, which may not have begun; ok is false while it is not known.
func (t *task) setOf(ctx context.Context, of plan.Task) (ids []int64, ok bool, err error) {
	for _, before := range t.preview.upTo(of.Name) {
		if _, known := t.preview.sets[before.Name]; known || before.Set == nil {
			continue
		}
		if before.Set.MidSourced && !t.Succeeded[before.Name] { // its servers decide
			return nil, false, nil
		}
		p, err := t.compile(before)
		if err != nil {
			return nil, false, err
		}
		if t.preview.sets[before.Name], err = t.loadParents(ctx, p.Parents); err != nil {
			return nil, false, err
		}
	}
	return t.preview.sets[of.Name], true, nil
}

// claimed is a job of the dry run, and what it will take of its table.
type claimed struct {
	task  string
	job   plan.Job
	claim purge.Claim
}

func (c claimed) key() string { return c.task + "/" + c.job.Unit }

// deletes reports whether the rows are gone then.
func (c claimed) deletes() bool { return c.job.Set == nil }

// hides reports whether what it takes, a later job does not find: it is gone, or its date is new.
func (c claimed) hides(later plan.Job) bool {
	return c.deletes() || slices.ContainsFunc(c.job.Set, func(a purge.Assignment) bool { return slices.Contains(later.DateColumns, a.Column) })
}

// claims are what the tasks of the dry run will take of some relations, in order: up to the first of which that is not known.
func (t *task) claims(ctx context.Context, of func(j plan.Job) bool) (all []claimed, err error) {
	for _, what := range t.preview.chosen {
		w := t
		if what.Name != t.plan.Task.Name {
			if t.preview.void[what.Name] {
				continue
			}
			w = &task{database: t.database, lookups: map[plan.Lookup]any{}, excepted: map[string][]int64{}}
			if w.plan, err = t.compile(what); err != nil || w.plan.Rights != nil {
				return all, err
			}
		}
		for _, j := range w.plan.Jobs {
			if !of(j) {
				continue
			}
			late := slices.ContainsFunc(j.Orphans, func(o plan.Orphan) bool { return o.EmptyAfter != "" })
			if _, begun := t.Succeeded[what.Name]; late && !begun && w != t {
				return all, nil
			}
			var ids []int64
			if j.Does.Dependent() {
				known := false
				if ids, known, err = t.setOf(ctx, what); err != nil || !known {
					return all, err
				}
				if len(ids) == 0 {
					continue
				}
			}
			s, err := w.bind(ctx, &j, ids)
			if err != nil {
				return nil, err
			}
			c := claimed{what.Name, j, purge.Claim{Condition: purge.Condition{Where: s.Where, Args: s.Args}, Date: j.Date, Key: j.Key}}
			for i, before := range all {
				if before.job.Relation == j.Relation && before.hides(j) {
					c.claim.But = append(c.claim.But, i)
				}
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// but are the conditions of the claims on a relation before a job's that hide rows from it.
func but(all []claimed, relation func(j plan.Job) bool, of claimed) (conditions []purge.Condition) {
	for _, c := range all {
		if c.key() == of.key() {
			break
		}
		if relation(c.job) && c.hides(of.job) {
			conditions = append(conditions, c.claim.Condition)
		}
	}
	return conditions
}

// foresee counts the rows of a job of the dry run, and, in the same reading, those of others of the table whose tasks follow.
func (t *task) foresee(ctx context.Context, j plan.Job, s purge.Sweep) error {
	mine := claimed{task: t.plan.Task.Name, job: j}
	action := Delete
	if s.Set != nil {
		action = Update
	}
	into := t.preview.at(j.Table.Quoted(), action, ruleOf(j, t.plan.Parents))
	report := func(ctx context.Context, found purge.Tally) error {
		t.preview.add(into, j.Relation, found)
		if found.Paired > 0 {
			t.preview.add(t.preview.at(t.given.Catalog.Table(j.Does.Paired.Table).Quoted(), Delete, "with the row of the same id"), j.Paired.Relation, purge.Tally{Rows: found.Paired})
		}
		d := purge.Delta{Deleted: found.Rows + found.Paired, Statements: found.Windows}
		if s.Set != nil {
			d = purge.Delta{Updated: found.Rows, Statements: found.Windows}
		}
		return t.journal.Count(ctx, d)
	}
	if found, known := t.preview.tallies[mine.key()]; known {
		return report(ctx, found)
	}
	if err := s.Refusal(); err != nil {
		t.refuse(ctx, j, s, err)
		return nil
	}
	related, err := t.related(j.Relation)
	if err != nil {
		return err
	}
	all, err := t.claims(ctx, func(other plan.Job) bool { return related[other.Relation] })
	if err != nil {
		return err
	}
	same := func(relation string) func(plan.Job) bool {
		return func(other plan.Job) bool { return other.Relation == relation }
	}
	if s.Elsewhere {
		s = s.Without(but(all, same(j.Relation), mine))
		return t.uncounted(ctx, j, s, t.engine.Count(ctx, s, func(ctx context.Context, rows int64) error { return report(ctx, purge.Tally{Rows: rows, Windows: 1}) }))
	}
	var here []claimed
	var claims []purge.Claim
	for i, c := range all {
		if c.job.Relation != j.Relation || c.job.Elsewhere {
			continue
		}
		c.claim.But = nil // counted among these
		for k, before := range here {
			if before.hides(c.job) {
				c.claim.But = append(c.claim.But, k)
			}
		}
		if c.job.Paired != nil {
			c.claim.Paired = &purge.PairedClaim{Paired: *c.job.Paired, But: but(all[:i], func(other plan.Job) bool { return other.Table.Quoted() == c.job.Paired.Relation }, c)}
			for _, b := range all[:i] {
				if b.job.Does.Paired == c.job.Does.Paired {
					c.claim.Paired.Before = append(c.claim.Paired.Before, purge.Taken{Relation: b.job.Relation, ID: b.job.Paired.ID, Condition: b.claim.Condition, But: but(all, same(b.job.Relation), b)})
				}
			}
		}
		here, claims = append(here, c), append(claims, c.claim)
	}
	at := slices.IndexFunc(here, func(c claimed) bool { return c.key() == mine.key() })
	sums := make([]purge.Tally, len(claims))
	err = t.engine.Survey(ctx, j.Name, j.Relation, claims, func(ctx context.Context, window []purge.Tally) error {
		for i := range window {
			sums[i].Add(window[i])
		}
		if window[at].Rows == 0 {
			return t.journal.Count(ctx, purge.Delta{}) // or it is told to stop
		}
		return report(ctx, window[at])
	})
	if err != nil {
		return t.uncounted(ctx, j, s, err)
	}
	for i, c := range here {
		t.preview.tallies[c.key()] = sums[i]
	}
	return nil
}

// related are a relation and those that decide which paired rows its own take with them.
func (t *task) related(relation string) (map[string]bool, error) {
	var jobs []plan.Job
	for _, what := range t.preview.chosen {
		p, err := t.compile(what)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, p.Jobs...)
	}
	related := map[string]bool{relation: true}
	for _, j := range jobs {
		if j.Relation != relation || j.Paired == nil {
			continue
		}
		for _, other := range jobs {
			if other.Table.Quoted() == j.Paired.Relation || other.Does.Paired == j.Does.Paired {
				related[other.Relation] = true
			}
		}
	}
	return related, nil
}

// standing is what is known of relations ($1) without reading them.
const standing = `
SELECT sum(greatest(c.reltuples, 0))::bigint, sum(pg_total_relation_size(c.oid))::bigint,
  bool_or(EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D') OR c.relkind IN ('r', 'p') AND EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid))
FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)`

// measured is what the task would do, those tables first of which most goes, with estimates of sizes, and remarks. A table that is locked has none.
func (t *task) measured(ctx context.Context) []TablePreview {
	tables := t.preview.take()
	for i := range tables {
		p := &tables[i]
		var rows, bytes *int64
		var triggers *bool
		err := pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100"); err != nil {
				return err
			}
			return tx.QueryRow(ctx, standing, slices.Concat(p.relations, p.dropped)).Scan(&rows, &bytes, &triggers)
		})
		if err != nil || rows == nil || bytes == nil {
			continue
		}
		switch p.Action {
		case Drop:
			p.Bytes = *bytes
			continue
		case Delete:
			p.RowsTotal = max(*rows, p.Rows)
			p.Bytes = int64(float64(*bytes) * float64(p.Rows) / float64(p.RowsTotal))
		case Update:
			p.RowsTotal = max(*rows, p.Rows)
		}
		if triggers != nil && *triggers {
			p.Remarks = append(p.Remarks, "a trigger or rule of the table may keep rows, or change others")
		}
	}
	slices.SortStableFunc(tables, func(a, b TablePreview) int { return cmp.Compare(b.Rows+b.Tables, a.Rows+a.Tables) })
	return tables
}

// void forgets a task that failed, or was not run, unless it has found its set: then it does what it can of it.
func (d *database) void(t plan.Task) {
	if d.preview.sets[t.Name] == nil {
		d.preview.void[t.Name] = true
		clear(d.plans) // they see what it would have done
	}
}
