package dryrun

import (
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type results struct {
	chosen []plan.Task
	// state is what later tasks depend on.
	state   binding.DryRun
	parents map[string][]int64
	// ineffective are the tasks that would change nothing, since they failed or were not run. problems are the
	// reasons.
	ineffective map[string]bool
	problems    map[string]string
	// tallies are the rows found, by the keys of jobs. Some of these belong to tasks that have not begun.
	tallies map[string]purge.Tally
	// dropped are quoted names of work tables.
	dropped map[string]bool
	// removed are the quoted names of partitions that would be dropped or detached.
	removed map[string]bool
	// deleted are the rows that the tasks before the current one would delete or update, by table.
	deleted map[string]int64
	tables  tables
}

func newResults(chosen []plan.Task) *results {
	return &results{
		chosen: chosen,
		state: binding.DryRun{
			Deleted:   map[string][]int64{},
			Processed: map[string][]int64{},
			RolledUp:  map[string]*time.Time{},
		},
		parents:     map[string][]int64{},
		ineffective: map[string]bool{},
		problems:    map[string]string{},
		tallies:     map[string]purge.Tally{},
		dropped:     map[string]bool{},
		removed:     map[string]bool{},
		deleted:     map[string]int64{},
	}
}

func (r *results) resume(t plan.Task, done preview.Task) {
	if t.ParentSet != nil {
		r.parents[t.Name] = done.Parents
		r.state.Processed[t.Name] = binding.Without(done.Parents, done.Untouched)
		r.state.Deleted[t.Name] = binding.Without(done.Parents, done.Retained)
	}
	if done.RolledUpFrom != nil {
		r.state.RolledUp[t.Name] = done.RolledUpFrom
	}
	for _, name := range done.Dropped {
		r.dropped[name] = true
	}
	for _, table := range done.Tables {
		r.deleted[table.Table] += table.Rows
	}
}

// predecessors returns the tasks up to and including the named one, without ineffective tasks.
func (r *results) predecessors(name string) (tasks []plan.Task) {
	for _, t := range r.chosen {
		if !r.ineffective[t.Name] {
			tasks = append(tasks, t)
		}
		if t.Name == name {
			break
		}
	}
	return tasks
}

func (r *results) follows(task, other string) bool {
	place := func(name string) int {
		return slices.IndexFunc(r.chosen, func(t plan.Task) bool { return t.Name == name })
	}
	return place(task) > place(other)
}

// recordParents records what would become of a task's parents, for later tasks.
func (r *results) recordParents(task string, p binding.Parents) {
	r.state.Processed[task], r.state.Deleted[task] = p.IDs, p.Own()
}

func (r *results) recordDrops(mask, rule string, dropped []campaign.WorkTable) {
	if len(dropped) == 0 {
		return
	}
	t := r.tables.at(mask, preview.Drop, rule)
	for _, w := range dropped {
		r.dropped[w.Quoted()] = true
		t.addDropped(w)
	}
}

func (r *results) task(task string) *preview.Task {
	p := &preview.Task{
		Parents:   r.parents[task],
		Untouched: binding.Without(r.parents[task], r.state.Processed[task]),
		Retained:  binding.Without(r.parents[task], r.state.Deleted[task]),
	}
	if from := r.state.RolledUp[task]; from != nil {
		if from.Before(time.Time{}) { // JSON does not have such years
			from = &time.Time{}
		}
		p.RolledUpFrom = from
	}
	return p
}
