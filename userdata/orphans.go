package userdata

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

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

// sort finds out which tasks are orphans, and reports why the others stay. A dry run passes over what it has counted.
func (r *remover) sort(ctx context.Context, ids []int64, lock string) (orphans []orphan, events []Event, err error) {
	here, err := r.instancesOf(ctx, "SELECT id::bigint, process_instance_id::bigint FROM tb_task WHERE id = ANY ($1) AND id <> ALL ($2) ORDER BY id"+lock, ids, append([]int64{}, r.counted.tasks...))
	if err != nil {
		return nil, nil, err
	}
	gone, err := r.leftOf(ctx, slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { _, there := here[id]; return there }))
	if err != nil {
		return nil, nil, err
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
			events = append(events, logged(severity.Warning, fmt.Sprintf("task %d stays: it is not known whether it belongs to a process instance", id)))
			continue
		case *instance != 0:
			events = append(events, logged(severity.Warning, fmt.Sprintf("task %d stays: it belongs to process instance %d", id, *instance)))
			continue
		case left:
			events = append(events, logged(severity.Info, fmt.Sprintf("task %d is gone itself; the rows that are left of it go", id)))
		}
		orphans = append(orphans, orphan{id, there})
	}
	return orphans, events, nil
}

// leftOf returns of which process instances the tasks are, as instancesOf does, that are gone themselves and have left rows.
func (r *remover) leftOf(ctx context.Context, ids []int64) (map[int64]*int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	tables, err := there(ctx, r.tx, optional)
	if err != nil {
		return nil, err
	}
	rows := []string{"SELECT task_id::bigint AS task, process_instance_id::bigint AS instance FROM tb_assignment WHERE task_id = ANY ($1) AND (process_instance_id <> ALL ($2)) IS NOT FALSE"}
	for _, table := range append(tables, "tb_form_data") {
		rows = append(rows, "SELECT task_id::bigint, 0 FROM "+table+" WHERE task_id = ANY ($1)")
	}
	return r.instancesOf(ctx, "SELECT task, CASE WHEN NOT bool_or(instance IS NULL) THEN COALESCE(max(instance) FILTER (WHERE instance <> 0), 0) END FROM ("+strings.Join(rows, " UNION ALL ")+") AS l GROUP BY task",
		ids, append([]int64{}, r.counted.instances...))
}

// instancesOf reads of which process instances tasks are: 0 for none, nil where that is not known.
func (r *remover) instancesOf(ctx context.Context, sql string, args ...any) (map[int64]*int64, error) {
	rows, err := r.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	out := map[int64]*int64{}
	var task int64
	var instance *int64
	_, err = pgx.ForEachRow(rows, []any{&task, &instance}, func() error {
		out[task] = instance
		return nil
	})
	return out, err
}
