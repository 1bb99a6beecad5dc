package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// remember is the set of the task at work, in a dry run: those after it see what becomes of it.
func (t *task) remember(ids []int64) {
	if t.preview != nil && t.plan.Task.ParentSet != nil {
		t.preview.foresee(t, ids)
		t.keepers[t.plan.Task.Name] = t.kept
	}
}

// setOf is the set of a task of the dry run, which may not have begun; ok is false while it is not known.
func (t *task) setOf(ctx context.Context, of plan.Task) (ids []int64, ok bool, err error) {
	for _, before := range t.preview.upTo(of.Name) {
		if _, known := t.preview.sets[before.Name]; known || before.ParentSet == nil {
			continue
		}
		if before.ParentSet.MidSourced && t.preview.follows(before.Name, t.plan.Task.Name) { // its servers decide
			return nil, false, nil
		}
		p, err := t.compile(before)
		if err != nil {
			return nil, false, err
		}
		w := t.other(p)
		if ids, err = w.loadParents(ctx, p.Parents); err == nil {
			ids, err = w.holdBack(ctx, p.Jobs, ids)
		}
		if err != nil {
			return nil, false, err
		}
		t.preview.foresee(w, ids)
	}
	return t.preview.worked[of.Name], true, nil
}

// foresee is what becomes of a task's set: what belongs to its rows goes, and so do those that are not held back.
func (p *preview) foresee(t *task, ids []int64) {
	p.worked[t.plan.Task.Name], p.sets[t.plan.Task.Name] = ids, without(ids, t.heldBack)
}

// other is a task that is not at work, but for what it would do.
func (d *database) other(p *plan.Plan) *task {
	return &task{database: d, plan: p, lookups: map[plan.Lookup]any{}, excepted: map[string][]int64{}}
}

// claimed is a job of the dry run, and what it will take of its table.
type claimed struct {
	task  string
	job   plan.Job
	claim purge.Candidates
}

func (c claimed) key() string { return c.task + "/" + c.job.Unit }

// hides reports whether what it takes, a later job does not find: it is gone, or its date is new.
func (c claimed) hides(later plan.Job) bool {
	return c.job.Set == nil ||
		slices.ContainsFunc(
			c.job.Set,
			func(a purge.Assignment) bool { return slices.Contains(later.DateColumns, a.Column) },
		)
}

// claims are what the tasks of the dry run will take of some relations, in order: up to the first of which that is not
// known.
func (t *task) claims(ctx context.Context, of func(j plan.Job) bool) (all []claimed, err error) {
	for _, what := range t.preview.chosen {
		w := t
		if what.Name != t.plan.Task.Name {
			if t.preview.void[what.Name] {
				continue
			}
			p, err := t.compile(what)
			if err != nil || p.Rights != nil {
				return all, err
			}
			w = t.other(p)
		}
		for _, j := range w.plan.Jobs {
			if !of(j) {
				continue
			}
			if slices.ContainsFunc(j.Orphans, func(o plan.Orphan) bool { return o.EmptyAfter != "" }) &&
				t.preview.follows(what.Name, t.plan.Task.Name) {
				return all, nil
			}
			var ids []int64
			if j.Step.Dependent() {
				known := false
				if ids, known, err = t.setOf(ctx, what); err != nil || !known {
					return all, err
				}
				if j.Step.OfParents {
					ids = t.preview.sets[what.Name]
				}
				if len(ids) == 0 {
					continue
				}
			}
			if known, err := t.setsFor(ctx, j); err != nil || !known {
				return all, err
			}
			c, err := w.claim(ctx, j, ids)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// setsFor loads the sets of tasks by which a job is judged, and reports whether they are known.
func (t *task) setsFor(ctx context.Context, j plan.Job) (known bool, err error) {
	for _, what := range t.preview.chosen {
		if !slices.Contains(j.Args, any(plan.DryRunSet(what.Name))) {
			continue
		}
		if _, known, err := t.setOf(ctx, what); err != nil || !known {
			return false, err
		}
	}
	return true, nil
}

// claim is what a job of the task would take, of some rows of its set.
func (t *task) claim(ctx context.Context, j plan.Job, ids []int64) (claimed, error) {
	s, err := t.bind(ctx, &j, ids)
	return claimed{
		t.plan.Task.Name,
		j,
		purge.Candidates{Condition: purge.Condition{Where: s.Where, Args: s.Args}, Date: j.Date, Key: j.Key},
	}, err
}

// on is the condition that a job is on a relation.
func on(relation string) func(plan.Job) bool {
	return func(j plan.Job) bool { return j.Relation == relation }
}

// but are the conditions of those of some claims that come before one, and hide rows from it.
func but(all []claimed, which func(j plan.Job) bool, of claimed) (conditions []purge.Condition) {
	for _, c := range all {
		if c.key() == of.key() {
			break
		}
		if which(c.job) && c.hides(of.job) {
			conditions = append(conditions, c.claim.Condition)
		}
	}
	return conditions
}

// foresee counts the rows of a job of the dry run.
func (t *task) foresee(ctx context.Context, j plan.Job, s purge.Sweep) error {
	if t.preview.blind {
		return nil
	}
	mine := claimed{task: t.plan.Task.Name, job: j}
	if found, known := t.preview.tallies[mine.key()]; known {
		return t.found(ctx, j, found)
	}
	if j.Unlogged && t.readsStandby() {
		t.log(
			ctx,
			severity.Warning,
			j.Name+" is unlogged: its rows are not counted, since the standby has none of them; a dry run without "+
				"--preview-database-url counts them",
		)
		t.preview.at(j.Table.Quoted(), Delete, ruleOf(j, t.plan.Parents)).
			remark(j.Name + " is unlogged: the standby has none of its rows, which are not counted")
		t.left.Tables++
		return nil
	}
	if err := s.RemoteError(); err != nil {
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
	if s.Elsewhere {
		s = s.Without(but(all, on(j.Relation), mine)...)
		var found purge.Tally
		if found, err = t.engine.CountElsewhere(ctx, s); err == nil {
			return t.found(ctx, j, found)
		}
	} else {
		err = t.survey(ctx, mine, all)
	}
	return t.uncounted(ctx, j, s, err)
}

// found reports rows that a job would take.
func (t *task) found(ctx context.Context, j plan.Job, found purge.Tally) error {
	d, action := purge.Delta{Deleted: found.Rows + found.Paired, Statements: found.Windows}, Delete
	if j.Set != nil {
		d, action = purge.Delta{Updated: found.Rows, Statements: found.Windows}, Update
	}
	p := t.preview.at(j.Table.Quoted(), action, ruleOf(j, t.plan.Parents))
	t.preview.add(p, j.Table, j.Relation, found)
	if found.Rows > 0 {
		p.foretell(j, action)
	}
	if found.Paired > 0 {
		rule := fmt.Sprintf("with the row of %s of the same id: %s", j.Table.Name, j.Rule)
		t.preview.add(
			t.preview.at(j.Paired.Relation, Delete, rule),
			t.given.Catalog.Table(j.Step.Paired.Table),
			j.Paired.Relation,
			purge.Tally{Rows: found.Paired, Keys: found.PairedKeys},
		)
	}
	return t.journal.Count(ctx, d)
}

// foretell remarks what else the rows of a job have the database do, which is not counted.
func (t *TablePreview) foretell(j plan.Job, action Action) {
	if j.Elsewhere {
		t.remark("rows are " + j.Location + ": what another server does with them is not known")
	}
	if j.Companion != nil && j.CompanionWrites != "" {
		t.remark(j.CompanionWrites + " are inserted")
	}
	if action != Delete {
		return
	}
	for _, c := range j.Table.Cascades {
		t.remark("a foreign key deletes or changes rows of " + c.Table.NameIn(j.Table.Schema) + " that refer to these")
	}
}

// survey counts the rows of a job and, in the same reading of its table, those of others whose tasks follow.
func (t *task) survey(ctx context.Context, mine claimed, all []claimed) error {
	here, claims := together(all, mine.job.Relation)
	supposed, places, claims := t.supposed(ctx, mine.job.Relation, claims)
	at := slices.IndexFunc(here, func(c claimed) bool { return c.key() == mine.key() })
	sums := make([]purge.Tally, len(claims))
	err := t.engine.CountCandidates(
		ctx,
		mine.job.Name,
		mine.job.Relation,
		claims,
		func(ctx context.Context, window []purge.Tally) error {
			for i := range window {
				sums[i].Add(window[i])
			}
			if window[at].Rows == 0 {
				return t.journal.Count(ctx, purge.Delta{}) // or it is told to stop
			}
			return t.found(ctx, mine.job, window[at])
		},
	)
	if err == nil {
		for i, c := range here {
			t.preview.tallies[c.key()] = sums[i]
		}
		for i, c := range supposed {
			t.supposing.preview.tallies[c.key()] = sums[places[i]]
		}
	}
	return err
}

// together are those of some claims that are on a relation, each without the rows that those before it hide.
func together(all []claimed, relation string) (here []claimed, claims []purge.Candidates) {
	for i, c := range all {
		if c.job.Relation != relation || c.job.Elsewhere {
			continue
		}
		for k, before := range here {
			if before.hides(c.job) {
				c.claim.Except = append(c.claim.Except, k)
			}
		}
		if c.job.Paired != nil {
			c.claim.Paired = pairedClaim(all[:i], c)
		}
		here, claims = append(here, c), append(claims, c.claim)
	}
	return here, claims
}

// pairedClaim is what a claim takes of its paired table, after some others.
func pairedClaim(before []claimed, c claimed) *purge.PairedCandidates {
	p := &purge.PairedCandidates{
		Paired: *c.job.Paired,
		Except: but(before, func(other plan.Job) bool { return other.Table.Quoted() == c.job.Paired.Relation }, c),
	}
	for _, b := range before {
		if b.job.Step.Paired == c.job.Step.Paired {
			p.Before = append(
				p.Before,
				purge.PairedSource{
					Relation:  b.job.Relation,
					ID:        b.job.Paired.ID,
					Condition: b.claim.Condition,
					Except:    but(before, on(b.job.Relation), b),
				},
			)
		}
	}
	return p
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
			if other.Table.Quoted() == j.Paired.Relation || other.Step.Paired == j.Step.Paired {
				related[other.Relation] = true
			}
		}
	}
	return related, nil
}
