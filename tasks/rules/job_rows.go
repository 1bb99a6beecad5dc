package rules

import (
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// JobRows are the rows that a job would delete or update.
type JobRows struct {
	Task string
	Job  Job
	Rows purge.Candidates
	// ByKey is set if foreign keys, not the job itself, delete or change these rows.
	ByKey bool
}

// RowsOf returns the job's own rows, followed by those of each relation whose rows foreign keys delete or change with
// them.
func RowsOf(task string, j Job, s purge.Sweep) []JobRows {
	if !s.Refused.IsZero() {
		s = s.Without(s.Refused)
	}
	rows := purge.Candidates{Where: s.Where, Newest: s.Newest, Date: j.Date, Key: j.Table.Key, Follows: s.Follows()}
	if s.Cascade.Circular() {
		rows.Where = s.Without(s.Dependent()).Where
	}
	j.Sweep = s
	all := []JobRows{{Task: task, Job: j, Rows: rows}}
	for _, c := range CascadedJobs(j, s, nil) {
		all = append(all,
			JobRows{Task: task, Job: c, Rows: purge.Candidates{Where: c.Where, Key: c.Table.Key, Follows: true}, ByKey: true})
	}
	return all
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
		add := func(action string, where sqlexpr.Expr, assignments []purge.Assignment) {
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
						Set:      assignments,
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

func (r JobRows) Key() string { return r.Task + "/" + r.Job.Unit }

// Hides reports whether a later job no longer finds the rows, because they are deleted or because a date that the
// later job's rules read is updated.
func (r JobRows) Hides(later Job) bool {
	return r.Job.Set == nil || slices.ContainsFunc(r.Job.Set, func(a purge.Assignment) bool {
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

// Exclusions returns the conditions on the rows before r that its job no longer finds. Only those of jobs that filter
// accepts count.
func Exclusions(all []JobRows, filter func(Job) bool, r JobRows) (conditions []sqlexpr.Expr) {
	for _, before := range all {
		if before.Key() == r.Key() {
			break
		}
		if filter(before.Job) && before.Hides(r.Job) {
			conditions = append(conditions, before.Rows.Where)
		}
	}
	return conditions
}

// RowsOfRelation returns a relation's rows in the order of their jobs, and as candidates without those that earlier
// jobs hide: a single scan can count them all. Rows without TIDs on this server are left out.
func RowsOfRelation(all []JobRows, relation string) (rows []JobRows, candidates []purge.Candidates) {
	for i, r := range all {
		if r.Job.Relation != relation || r.Job.NoTIDs {
			continue
		}
		for k, before := range rows {
			if before.Hides(r.Job) {
				r.Rows.Except = append(r.Rows.Except, k)
			}
		}
		if r.Job.Paired != nil {
			r.Rows.Paired = paired(all[:i], r)
		}
		rows, candidates = append(rows, r), append(candidates, r.Rows)
	}
	return rows, candidates
}

// paired returns the paired rows of r without those that jobs before it delete.
func paired(before []JobRows, r JobRows) *purge.PairedCandidates {
	onPaired := func(j Job) bool { return j.Table.Quoted() == r.Job.Paired.Relation }
	p := &purge.PairedCandidates{Paired: *r.Job.Paired, Except: Exclusions(before, onPaired, r)}
	p.Before = nil
	for _, b := range before {
		if b.Job.Step.Paired == r.Job.Step.Paired {
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
