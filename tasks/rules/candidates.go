package rules

import (
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Candidates struct {
	Task string
	Job  Job
	Rows purge.Candidates
	// ByKey is set if foreign keys, not the job itself, delete or change these rows.
	ByKey bool
}

// CandidatesOf returns the job's own candidates, followed by those of each relation whose rows foreign keys delete or
// change with them.
func CandidatesOf(task string, j Job, s purge.Sweep) []Candidates {
	if !s.Refused.IsZero() {
		s = s.Without(s.Refused)
	}
	rows := purge.Candidates{Where: s.Where, Newest: s.Newest, Date: j.Date, Key: j.Table.Key, Follows: s.Follows()}
	if s.Cascade.Circular() {
		rows.Where = s.Without(s.Dependent()).Where
	}
	j.Sweep = s
	sets := []Candidates{{Task: task, Job: j, Rows: rows}}
	for _, c := range CascadedJobs(j, s, nil) {
		sets = append(sets,
			Candidates{Task: task, Job: c, Rows: purge.Candidates{Where: c.Where, Key: c.Table.Key, Follows: true}, ByKey: true})
	}
	return sets
}

// CascadedJobs returns jobs for the rows that foreign keys delete or change with those of a job. relations limits the
// result to some relations; nil means all. Tables on other servers, and those that the role cannot read, are left out.
func CascadedJobs(j Job, s purge.Sweep, relations map[string]bool) (jobs []Job) {
	hidden := func(table int) bool {
		return slices.ContainsFunc(s.Cascade.Reads(table), func(i int) bool { return !readable(j.Affected[i]) })
	}
	for i, t := range j.Affected {
		leaves := slices.DeleteFunc(slices.Clone(t.Leaves), func(l campaign.Leaf) bool {
			return relations != nil && !relations[l.Quoted()] || !l.CanSelect && l.Empty
		})
		if len(leaves) == 0 || hidden(i) || s.NoTIDs || t.Location != "" {
			continue
		}
		var estimates []string
		if j.Estimates != nil {
			estimates = append(estimates, "an estimate, as the number of rows of "+j.Table.NameIn(t.Schema)+" is")
		}
		rule := fmt.Sprintf("by foreign keys, with rows of %s: %s", j.Table.NameIn(t.Schema), j.Rule)
		add := func(action string, where sqlexpr.Expr, set []purge.Assignment) {
			if where.IsZero() {
				return
			}
			for _, leaf := range leaves {
				jobs = append(jobs, Job{
					Sweep: purge.Sweep{
						Unit:     fmt.Sprintf("%s %s %s", j.Unit, action, leaf.Quoted()),
						Name:     leaf.Name,
						Relation: leaf.Quoted(),
						Root:     t.Quoted(),
						Where:    where,
						Set:      set,
						Key:      t.ShownKey(),
					},
					Table:     t,
					Rule:      rule,
					Estimates: estimates,
				})
			}
		}
		if i > 0 {
			add("deletes", s.Goes(i), nil)
		}
		if s.Cascade.Clearing(i) > 1 {
			estimates = append(estimates, "an estimate: a run counts a row once for each foreign key that changes it")
		}
		add("changes", s.Changes(i), []purge.Assignment{})
	}
	return jobs
}

func (s Candidates) Key() string { return s.Task + "/" + s.Job.Unit }

// Hides reports whether a later job no longer finds the rows of s, because they are deleted or because a date that the
// later job's rules read is updated.
func (s Candidates) Hides(later Job) bool {
	return s.Job.Set == nil || slices.ContainsFunc(s.Job.Set, func(a purge.Assignment) bool {
		return slices.Contains(later.DateColumns, a.Column)
	})
}

func Deletes(j Job, table *campaign.Table) bool {
	return Touches(j, table.Quoted()) || slices.Contains(j.Affected, table)
}

func OnRelation(relation string) func(Job) bool {
	return func(j Job) bool { return j.Relation == relation }
}

// Touches reports whether a job deletes or updates rows of a table, given by its quoted name. Rows paired with the
// job's own also count.
func Touches(j Job, table string) bool {
	return j.Root == table || (j.Paired != nil && j.Paired.Relation == table)
}

// Exclusions returns the conditions of the sets before s that hide rows from it. Only sets whose jobs filter accepts
// count.
func Exclusions(all []Candidates, filter func(Job) bool, s Candidates) (conditions []sqlexpr.Expr) {
	for _, before := range all {
		if before.Key() == s.Key() {
			break
		}
		if filter(before.Job) && before.Hides(s.Job) {
			conditions = append(conditions, before.Rows.Where)
		}
	}
	return conditions
}

// CandidatesOfRelation returns a relation's sets in order, and for each the rows that earlier ones do not hide: a
// single scan can count them all. Sets whose rows have no TIDs on this server are left out.
func CandidatesOfRelation(all []Candidates, relation string) (sets []Candidates, rows []purge.Candidates) {
	for i, s := range all {
		if s.Job.Relation != relation || s.Job.NoTIDs {
			continue
		}
		for k, before := range sets {
			if before.Hides(s.Job) {
				s.Rows.Except = append(s.Rows.Except, k)
			}
		}
		if s.Job.Paired != nil {
			s.Rows.Paired = paired(all[:i], s)
		}
		sets, rows = append(sets, s), append(rows, s.Rows)
	}
	return sets, rows
}

// paired returns the paired rows of s without those that the sets before it delete.
func paired(before []Candidates, s Candidates) *purge.PairedCandidates {
	onPaired := func(j Job) bool { return j.Table.Quoted() == s.Job.Paired.Relation }
	p := &purge.PairedCandidates{Paired: *s.Job.Paired, Except: Exclusions(before, onPaired, s)}
	p.Before = nil
	for _, b := range before {
		if b.Job.Step.Paired == s.Job.Step.Paired {
			sweep := b.Job.Sweep
			sweep.Where = b.Rows.Where
			p.Before = append(p.Before, sweep.Without(Exclusions(before, OnRelation(b.Job.Relation), b)...))
		}
	}
	return p
}

// RelatedRelations returns a relation, and those whose jobs decide which paired rows are deleted with its rows.
func RelatedRelations(jobs []Job, relation string) map[string]bool {
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
	return related
}
