package removal

import (
	"context"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Instances removes process instances with their rows in the tables of workflows and their tasks. The process
// instances must have ended, and must be locked unless this is a dry run. With inDatabase, it also removes their
// documents.
func (r *Remover) Instances(ctx context.Context, ids []int64, inDatabase bool) (*Removal, error) {
	g := newRemoval()
	if len(ids) == 0 {
		return g, nil
	}
	if err := r.variables(ctx, g, ids); err != nil {
		return nil, err
	}
	tasks, err := r.tasksOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	if err := r.tasks(ctx, g, tasks, ids); err != nil {
		return nil, err
	}
	if inDatabase {
		if err := r.Documents(ctx, g, g.Sessions); err != nil {
			return nil, err
		}
	}
	unlessTaskCounted := "r.process_instance_id IN (@ids) AND (r.task_id IN (@tasks)) IS NOT TRUE"
	a := forms.Args{"ids": ids, "tasks": r.counted.tasks}
	if err := r.removeItems(
		ctx, g, itself, "tb_assignment", unlessTaskCounted, "r.process_instance_id", a,
	); err != nil {
		return nil, err
	}
	if err := r.removeItems(ctx, g, itself, forms.InstanceTable, "r.id IN (@ids)", "r.id", a); err != nil {
		return nil, err
	}
	if r.dry {
		r.counted.instances = append(r.counted.instances, ids...)
	}
	return g, nil
}

// variables removes the rows of the process instances in the tables of workflows. It fails if they have rows in a
// table that may belong to a workflow but whose name is ambiguous.
func (r *Remover) variables(ctx context.Context, g *Removal, ids []int64) error {
	columns, _, err := r.tx.WorkflowColumns(ctx, func(string) bool { return true })
	if err != nil {
		return err
	}
	for _, c := range columns {
		if !c.Instance {
			continue
		}
		if c.Ambiguous {
			if err := r.requireNone(ctx, c, ids); err != nil {
				return err
			}
			continue
		}
		counts, err := r.remove(ctx, c.Quoted, r.tx.HasID(c, ids), "r."+r.tx.Quote(c.Name), nil)
		if err != nil {
			return err
		}
		for key, n := range counts {
			g.add(c.Table, forms.ID(key), n)
		}
	}
	return nil
}

// errAmbiguous means that several tables match the name of a workflow's table, so that the right one is unknown.
var errAmbiguous = failure.New(
	failure.Precondition,
	"several tables have the name of a workflow's table, in upper and lower case; write it in omd_object_type as the "+
		"table of the workflow is spelled",
)

func (r *Remover) requireNone(ctx context.Context, c forms.Column, ids []int64) error {
	rows, err := r.tx.Counts(ctx, "SELECT 1, count(*) FROM "+c.Quoted+" AS r WHERE "+r.tx.HasID(c, ids), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Quoted, err)
	}
	if n := rows["1"]; n > 0 {
		return fmt.Errorf("%d rows of it are in %s: %w", n, c.Quoted, errAmbiguous)
	}
	return nil
}

// tasksOf locks the tasks of the process instances, and returns the process instance of each.
func (r *Remover) tasksOf(ctx context.Context, instances []int64) (map[int64]int64, error) {
	lock := " FOR UPDATE"
	if r.dry {
		lock = ""
	}
	tasks := map[int64]int64{}
	var task, instance int64
	query := "SELECT id, process_instance_id FROM tb_task WHERE process_instance_id IN (@ids) ORDER BY id" + lock
	read := func() { tasks[task] = instance }
	return tasks, r.tx.Each(ctx, query, forms.Args{"ids": instances}, []any{&task, &instance}, read)
}
