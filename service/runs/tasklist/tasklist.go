// Package tasklist lists the tasks of a run: the pipeline of package tasks, and tasks on other databases. Reading the
// latter needs the database. Manager, the scheduler and workers use it.
package tasklist

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// List has all tasks in the order of a run: the ones of package tasks, and then the ones on other databases.
type List struct {
	Tasks []plan.Task
	// External has the tasks on other databases, by name.
	External map[string]external.Task
}

// Names returns the names of the tasks, in order.
func (l List) Names() (names []string) {
	for _, t := range l.Tasks {
		names = append(names, t.Name)
	}
	return names
}

// Choose returns the names of the tasks to run: the given ones, or all that are not disabled if none is given, without
// some to skip.
func (l List) Choose(given, skip []string) (names []string) {
	for _, name := range l.Names() {
		chosen := slices.Contains(given, name) || (len(given) == 0 && !l.External[name].Disabled)
		if chosen && !slices.Contains(skip, name) {
			names = append(names, name)
		}
	}
	return names
}

// Find returns the task with a name; ok is false if it does not exist.
func (l List) Find(name string) (t plan.Task, ok bool) {
	i := slices.IndexFunc(l.Tasks, func(t plan.Task) bool { return t.Name == name })
	if i < 0 {
		return t, false
	}
	return l.Tasks[i], true
}

// Source is where tasks come from.
type Source struct {
	// External has the tasks on other databases; nil if there are none.
	External *external.Source
}

// Read returns the tasks as they are now.
func (s Source) Read(ctx context.Context, db campaign.Querier) (List, error) {
	l := List{Tasks: slices.Clone(tasks.Pipeline), External: map[string]external.Task{}}
	if s.External == nil {
		return l, nil
	}
	more, err := s.External.Tasks(ctx, db)
	for _, t := range more {
		l.Tasks = append(l.Tasks, plan.Task{Name: t.Name, Title: t.Title, Description: t.Description})
		l.External[t.Name] = t
	}
	return l, err
}

// Patterns returns patterns of LIKE for the names of all tasks that this replica can run.
func (s Source) Patterns() []string {
	names := tasks.Names()
	if s.External != nil {
		names = append(names, s.External.Prefix+"%")
	}
	return names
}

// MayExist reports whether there is a task with a name, or may have been.
func (s Source) MayExist(name string) bool {
	return slices.Contains(tasks.Names(), name) ||
		(s.External != nil && strings.HasPrefix(name, s.External.Prefix))
}

// Resolve returns the tasks of a run by their names, and the list. A task on another database that was removed after
// the run was requested has nothing to do.
func (s Source) Resolve(
	ctx context.Context, db campaign.Querier, names []string,
) (chosen []plan.Task, l List, err error) {
	if l, err = s.Read(ctx, db); err != nil {
		return nil, l, fmt.Errorf("%w: %w", pipeline.ErrLost, err)
	}
	for _, name := range names {
		t, ok := l.Find(name)
		if !ok && s.MayExist(name) {
			t, ok = plan.Task{Name: name}, true
			l.External[name] = external.Task{Name: name}
		}
		if !ok {
			return nil, l, fmt.Errorf("this version does not know the task %s", name)
		}
		chosen = append(chosen, t)
	}
	return chosen, l, nil
}
