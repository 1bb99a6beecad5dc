package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// orphan is a task that belongs to no process instance.
type orphan struct {
	id    int64
	there bool // its row in tb_task exists
}

// orphans removes orphan tasks.
func (r *remover) orphans(ctx context.Context, orphans []orphan, inDatabase bool) (*removal, error) {
	g := &removal{rows: map[int64]Rows{}}
	items := map[int64]int64{}
	for _, o := range orphans {
		items[o.id] = o.id
		g.rows[o.id] = Rows{}
	}
	if err := r.tasks(ctx, g, items, []int64{0}); err != nil || !inDatabase {
		return g, err
	}
	return g, r.documents(ctx, g, g.sessions)
}

// sort finds out which tasks are orphans and which are kept, and reports why. A dry run passes over what it has
// counted.
func (r *remover) sort(
	ctx context.Context,
	ids []int64,
	lock string,
) (orphans []orphan, kept []int64, events []Event, err error) {
	here := map[int64]*int64{}
	if err := r.instancesOf(
		ctx,
		here,
		"SELECT id, process_instance_id FROM tb_task WHERE id IN (@ids) AND (id IN (@counted)) IS NOT TRUE ORDER BY id"+lock,
		args{"ids": ids, "counted": r.counted.tasks},
	); err != nil {
		return nil, nil, nil, err
	}
	gone, err := r.leftOf(
		ctx,
		slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { _, there := here[id]; return there }),
	)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, id := range ids {
		instance, there := here[id]
		left := false
		if !there {
			instance, left = gone[id]
		}
		switch {
		case !there && !left:
			events = append(events, logged(severity.Info, fmt.Sprintf("there is no task %d", id)))
			continue
		case instance == nil:
			kept = append(kept, id)
			events = append(
				events,
				logged(
					severity.Error,
					fmt.Sprintf("task %d stays: it is not known whether it belongs to a process instance", id),
				),
			)
			continue
		case *instance != 0:
			kept = append(kept, id)
			events = append(
				events,
				logged(severity.Error, fmt.Sprintf("task %d stays: it belongs to process instance %d", id, *instance)),
			)
			continue
		case left:
			events = append(
				events,
				logged(severity.Info, fmt.Sprintf("task %d is gone itself; the rows that are left of it go", id)),
			)
		}
		orphans = append(orphans, orphan{id, there})
	}
	return orphans, kept, events, nil
}

// leftOf returns of which process instances the tasks are that are gone themselves and have left rows: 0 for none, nil
// where that is not known.
func (r *remover) leftOf(ctx context.Context, ids []int64) (map[int64]*int64, error) {
	out := map[int64]*int64{}
	if len(ids) == 0 {
		return out, nil
	}
	tables, err := there(ctx, r.tx, optional)
	if err != nil {
		return nil, err
	}
	for _, table := range append(tables, "tb_form_data") {
		if err := r.instancesOf(
			ctx,
			out,
			"SELECT DISTINCT task_id, 0 FROM "+table+" WHERE task_id IN (@ids)",
			args{"ids": ids},
		); err != nil {
			return nil, err
		}
	}
	return out, r.instancesOf(
		ctx,
		out,
		"SELECT DISTINCT task_id, process_instance_id FROM tb_assignment WHERE task_id IN (@ids) AND "+
			"(process_instance_id IN (@counted)) IS NOT TRUE",
		args{"ids": ids, "counted": r.counted.instances},
	)
}

// instancesOf reads of which process instances tasks are: 0 for none, nil where that is not known. Of several the
// greatest counts.
func (r *remover) instancesOf(ctx context.Context, of map[int64]*int64, statement string, a args) error {
	var task int64
	var instance sql.NullInt64
	return r.tx.each(ctx, statement, a, []any{&task, &instance}, func() {
		known, there := of[task]
		switch {
		case !instance.Valid:
			of[task] = nil
		case !there || (known != nil && *known < instance.Int64):
			of[task] = new(instance.Int64)
		}
	})
}
