package removal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/report"
)

// optionalTables are tables about tasks that some versions of Forms lack.
var optionalTables = []string{"tb_task_acl", "tb_task_attachment"}

// tasks removes locked tasks with everything that depends on them. items has the item of each task: its process
// instance, or the task itself if it is an orphan. instances are the allowed values of process_instance_id in
// tb_task.
func (r *Remover) tasks(ctx context.Context, g *Removal, items map[int64]int64, instances []int64) error {
	ids := slices.Sorted(maps.Keys(items))
	itemOf := func(task int64) int64 { return items[task] }
	tables, err := r.tx.Existing(ctx, optionalTables)
	if err != nil {
		return err
	}
	a := forms.Args{"ids": ids, "instances": instances, "counted": r.counted.instances}
	for _, table := range tables {
		if err := r.removeItems(ctx, g, itemOf, table, "r.task_id IN (@ids)", "r.task_id", a); err != nil {
			return err
		}
	}
	if err := r.formData(ctx, g, items); err != nil {
		return err
	}
	unlessCounted := "r.task_id IN (@ids) AND (r.process_instance_id IN (@counted)) IS NOT TRUE"
	if err := r.removeItems(ctx, g, itemOf, "tb_assignment", unlessCounted, "r.task_id", a); err != nil {
		return err
	}
	if r.dry {
		r.counted.tasks = append(r.counted.tasks, ids...)
	}
	ofInstances := "r.id IN (@ids) AND r.process_instance_id IN (@instances)"
	return r.removeItems(ctx, g, itemOf, "tb_task", ofInstances, "r.id", a)
}

// formData removes the tasks' form data, and adds the sessions of the tasks' documents. For form data, these are
// exactly the sessions of the rows that were deleted.
func (r *Remover) formData(ctx context.Context, g *Removal, items map[int64]int64) error {
	ids := slices.Sorted(maps.Keys(items))
	const key = "concat(r.id, ' ', r.task_id)"
	counts, err := r.remove(ctx, "tb_form_data", "r.task_id IN (@ids)", key, forms.Args{"ids": ids})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		data, task, _ := strings.Cut(key, " ")
		item := items[forms.ID(task)]
		g.add("tb_form_data", item, counts[key])
		g.Sessions = append(g.Sessions, report.Session{ID: "_wftask" + data, Item: item},
			report.Session{ID: "_wftaskformid" + data, Item: item})
	}
	for _, task := range ids { // attachments need no form data
		g.Sessions = append(g.Sessions, report.Session{ID: fmt.Sprintf("_wfattach%d", task), Item: items[task]})
	}
	return nil
}
