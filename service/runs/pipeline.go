package runs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Pipeline is every task that there is, in the order of a run: those of package tasks, and then those on other
// databases.
type Pipeline struct {
	Tasks []plan.Task
	// Outside are the tasks on other databases, by their names.
	Outside map[string]outside.Task
}

// Pipeline returns the tasks as they are now.
func (m *Manager) Pipeline(ctx context.Context) (Pipeline, error) { return m.pipeline(ctx, m.calls) }

func (m *Manager) pipeline(ctx context.Context, db campaign.Querier) (Pipeline, error) {
	p := Pipeline{Tasks: slices.Clone(tasks.Pipeline), Outside: map[string]outside.Task{}}
	if m.outside == nil {
		return p, nil
	}
	more, err := m.outside.Tasks(ctx, db)
	for _, t := range more {
		p.Tasks, p.Outside[t.Name] = append(
			p.Tasks,
			plan.Task{Name: t.Name, Title: t.Title, Description: t.Description},
		), t
	}
	return p, err
}

// names are those of the tasks, in order.
func (p Pipeline) names() (names []string) {
	for _, t := range p.Tasks {
		names = append(names, t.Name)
	}
	return names
}

// chosen are the names of the tasks that a request is for.
func (p Pipeline) chosen(r Request) (names []string) {
	for _, name := range p.names() {
		usual := len(r.Tasks) == 0 && !p.Outside[name].Disabled
		if (usual || slices.Contains(r.Tasks, name)) && !slices.Contains(r.SkipTasks, name) {
			names = append(names, name)
		}
	}
	return names
}

// known are patterns, as of LIKE, of the names of all tasks that this replica can do: those on other databases whatever
// they are called.
func (m *Manager) known() []string {
	names := tasks.Names()
	if m.outside != nil {
		names = append(names, m.outside.Prefix+"%")
	}
	return names
}

// mayKnow reports whether there is a task of a name, or may have been.
func (m *Manager) mayKnow(name string) bool {
	return slices.Contains(tasks.Names(), name) || (m.outside != nil && strings.HasPrefix(name, m.outside.Prefix))
}

// find returns the task of a name; ok is false if there is none.
func (p Pipeline) find(name string) (t plan.Task, ok bool) {
	i := slices.IndexFunc(p.Tasks, func(t plan.Task) bool { return t.Name == name })
	if i < 0 {
		return t, false
	}
	return p.Tasks[i], true
}

// of returns the tasks of a run, by their names. One on another database that was removed since the run was requested
// has nothing to do.
func (m *Manager) of(ctx context.Context, names []string) (chosen []plan.Task, p Pipeline, err error) {
	if p, err = m.pipeline(ctx, m.pool); err != nil {
		return nil, p, fmt.Errorf("%w: %w", pipeline.ErrLost, err)
	}
	for _, name := range names {
		t, ok := p.find(name)
		if !ok && m.mayKnow(name) {
			t, ok = plan.Task{Name: name}, true
			p.Outside[name] = outside.Task{Name: name}
		}
		if !ok {
			return nil, p, fmt.Errorf("this version does not know the task %s", name)
		}
		chosen = append(chosen, t)
	}
	return chosen, p, nil
}
