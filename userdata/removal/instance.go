package removal

import (
	"context"

	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Instances removes process instances: their rows in the tables of workflows, their tasks, and their own rows. They must
// have ended, and must be locked unless this is a dry run. With inDatabase, it also removes their documents.
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

// variables removes the rows of process instances in the tables of workflows.
func (r *Remover) variables(ctx context.Context, g *Removal, ids []int64) error {
	columns, _, err := r.tx.WorkflowColumns(ctx, func(string) bool { return true })
	if err != nil {
		return err
	}
	for _, c := range columns {
		if c.Name != forms.InstanceColumn {
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

// tasksOf returns the tasks of process instances, with the process instance of each, and locks them.
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
