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

// optionalTables are the tables about tasks that some versions lack.
var optionalTables = []string{"tb_task_acl", "tb_task_attachment"}

// tasks removes locked tasks with everything that depends on them. items has the item of each task: its process
// instance, or itself for an orphan. instances are the values of process_instance_id in tb_task.
func (r *Remover) tasks(ctx context.Context, g *Removal, items map[int64]int64, instances []int64) error {
	ids := slices.Sorted(maps.Keys(items))
	itemOf := func(task int64) int64 { return items[task] }
	tables, err := r.tx.Existing(ctx, optionalTables)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := r.removeItems(
			ctx,
			g,
			itemOf,
			forms.Selection{Table: table, Where: "r.task_id IN (@ids)", Key: "r.task_id"},
			forms.Args{"ids": ids},
		); err != nil {
			return err
		}
	}
	if err := r.formData(ctx, g, items); err != nil {
		return err
	}
	if err := r.removeItems(ctx, g, itemOf, forms.Selection{
		Table: "tb_assignment",
		Where: "r.task_id IN (@ids) AND (r.process_instance_id IN (@counted)) IS NOT TRUE",
		Key:   "r.task_id",
	}, forms.Args{"ids": ids, "counted": r.counted.instances}); err != nil {
		return err
	}
	if r.dry {
		r.counted.tasks = append(r.counted.tasks, ids...)
	}
	return r.removeItems(ctx, g, itemOf, forms.Selection{
		Table: "tb_task",
		Where: "r.id IN (@ids) AND r.process_instance_id IN (@instances)",
		Key:   "r.id",
	}, forms.Args{"ids": ids, "instances": instances})
}

// formData removes the form data of tasks, and adds the sessions of the tasks' documents: for the form data, exactly of
// the rows that were deleted.
func (r *Remover) formData(ctx context.Context, g *Removal, items map[int64]int64) error {
	ids := slices.Sorted(maps.Keys(items))
	counts, err := r.remove(ctx, forms.Selection{
		Table: "tb_form_data",
		Where: "r.task_id IN (@ids)",
		Key:   "concat(r.id, ' ', r.task_id)",
	}, forms.Args{"ids": ids})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		data, task, _ := strings.Cut(key, " ")
		item := items[forms.ID(task)]
		g.add("tb_form_data", item, counts[key])
		g.Sessions = append(
			g.Sessions,
			report.Session{ID: "_wftask" + data, Item: item},
			report.Session{ID: "_wftaskformid" + data, Item: item},
		)
	}
	for _, task := range ids { // attachments need no form data
		g.Sessions = append(g.Sessions, report.Session{ID: fmt.Sprintf("_wfattach%d", task), Item: items[task]})
	}
	return nil
}
