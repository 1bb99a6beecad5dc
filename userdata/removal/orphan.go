package removal

import (
	"context"
	"database/sql"
	"slices"

	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/report"
)

// Orphan is a task that belongs to no process instance.
type Orphan struct {
	ID     int64
	Exists bool // in tb_task; otherwise only dependent rows are left
}

// Orphans removes orphan tasks. With inDatabase, it also removes their documents.
func (r *Remover) Orphans(ctx context.Context, orphans []Orphan, inDatabase bool) (*Removal, error) {
	g := newRemoval()
	items := map[int64]int64{}
	for _, o := range orphans {
		items[o.ID] = o.ID
		g.Rows[o.ID] = report.Rows{}
	}
	if err := r.tasks(ctx, g, items, []int64{0}); err != nil || !inDatabase {
		return g, err
	}
	return g, r.Documents(ctx, g, g.Sessions)
}

// FindOrphans returns which tasks are orphans and which are retained, with events that explain why. The clause lock
// locks the tasks. A dry run ignores tasks that it has already counted.
func (r *Remover) FindOrphans(
	ctx context.Context, ids []int64, lock string,
) (orphans []Orphan, retained []int64, events []report.Event, err error) {
	existing := map[int64]*int64{}
	query := "SELECT id, process_instance_id FROM tb_task WHERE id IN (@ids) AND (id IN (@counted)) IS NOT TRUE ORDER " +
		"BY id"
	a := forms.Args{"ids": ids, "counted": r.counted.tasks}
	if err := r.readInstances(ctx, existing, query+lock, a); err != nil {
		return nil, nil, nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { _, exists := existing[id]; return exists })
	leftovers, err := r.leftovers(ctx, missing)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, id := range ids {
		instance, exists := existing[id]
		if !exists {
			var hasRows bool
			if instance, hasRows = leftovers[id]; !hasRows {
				events = append(events, report.Infof("task %d does not exist", id))
				continue
			}
		}
		switch {
		case instance == nil:
			retained = append(retained, id)
			events = append(events,
				report.Errorf("task %d is retained: it is unknown whether it belongs to a process instance", id))
			continue
		case *instance != 0:
			retained = append(retained, id)
			events = append(events,
				report.Errorf("task %d is retained: it belongs to process instance %d", id, *instance))
			continue
		case !exists:
			events = append(events, report.Infof("task %d no longer exists; its remaining rows are deleted", id))
		}
		orphans = append(orphans, Orphan{id, exists})
	}
	return orphans, retained, events, nil
}

// leftovers returns the process instances of tasks that no longer exist but have left dependent rows, in the form of
// readInstances.
func (r *Remover) leftovers(ctx context.Context, ids []int64) (map[int64]*int64, error) {
	instances := map[int64]*int64{}
	if len(ids) == 0 {
		return instances, nil
	}
	tables, err := r.tx.Existing(ctx, optionalTables)
	if err != nil {
		return nil, err
	}
	for _, table := range append(tables, "tb_form_data") {
		query := "SELECT DISTINCT task_id, 0 FROM " + table + " WHERE task_id IN (@ids)"
		if err := r.readInstances(ctx, instances, query, forms.Args{"ids": ids}); err != nil {
			return nil, err
		}
	}
	query := "SELECT DISTINCT task_id, process_instance_id FROM tb_assignment WHERE task_id IN (@ids) AND " +
		"(process_instance_id IN (@counted)) IS NOT TRUE"
	a := forms.Args{"ids": ids, "counted": r.counted.instances}
	return instances, r.readInstances(ctx, instances, query, a)
}

// readInstances sets the process instance of each task that the query returns: 0 for an orphan, nil if unknown. If
// the query returns several for a task, the greatest one counts.
func (r *Remover) readInstances(ctx context.Context, instances map[int64]*int64, query string, a forms.Args) error {
	var task int64
	var instance sql.NullInt64
	return r.tx.Each(ctx, query, a, []any{&task, &instance}, func() {
		known, exists := instances[task]
		switch {
		case !instance.Valid:
			instances[task] = nil
		case !exists || (known != nil && *known < instance.Int64):
			instances[task] = new(instance.Int64)
		}
	})
}
