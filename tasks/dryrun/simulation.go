package dryrun

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/candidates"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Simulation determines the parents of tasks and counts no rows. Explaining a single row is based on it.
type Simulation struct {
	executor *executor
}

func Simulate(ctx context.Context, c pipeline.Config, holds plan.Holds) (*Simulation, error) {
	c.DryRun, c.ContinueOnError, c.Chosen, c.Todo = true, true, c.Pipeline, nil
	x := newExecutor(ctx, c, pipeline.DiscardJournal(holds))
	x.setsOnly = true
	x.run.Database.OnHold.ConditionsOnly = true
	return &Simulation{x}, x.run.Database.Refresh(ctx)
}

func (s *Simulation) Database() *pipeline.Database { return s.executor.run.Database }

// Do simulates tasks in the order of the pipeline. A task that fails becomes ineffective.
func (s *Simulation) Do(ctx context.Context, tasks []plan.Task) error {
	s.executor.run.Config.Todo = tasks
	err := s.executor.run.Tasks(ctx, s.executor)
	if errors.Is(err, pipeline.ErrLost) || sqlstate.Lost(err) || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	return nil
}

func (s *Simulation) Ineffective(task string) (problem string, ineffective bool) {
	return s.executor.found.problems[task], s.executor.found.ineffective[task]
}

func (s *Simulation) Candidates(ctx context.Context, relations map[string]bool) ([]candidates.Set, error) {
	chosen := s.executor.found.chosen
	p, err := s.Database().Compile(chosen[len(chosen)-1])
	if err != nil {
		return nil, err
	}
	return lookahead{s.executor.run, s.executor.found, s.Attempt(p)}.candidates(ctx, relations)
}

// Attempt returns an attempt that sees its tables as the tasks before it would have left them.
func (s *Simulation) Attempt(p *plan.Plan) *pipeline.Attempt { return s.executor.run.NewAttempt(p) }

// Concerning returns the tasks that match a filter, and those on whose outcome they depend, in the order of the
// pipeline.
func (s *Simulation) Concerning(filter func(*plan.Plan) bool) ([]plan.Task, error) {
	concerns := map[string]bool{}
	all := s.executor.found.chosen
	for _, t := range slices.Backward(all) { // tasks depend on earlier ones
		p, err := s.Database().Compile(t)
		if err != nil {
			return nil, err
		}
		if !filter(p) && !concerns[t.Name] {
			continue
		}
		concerns[t.Name] = true
		for _, name := range p.DependsOn() {
			concerns[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t plan.Task) bool { return !concerns[t.Name] }), nil
}
