package userdata

import (
	"context"
	"slices"

	"github.com/cleanupd/cleanupd/userdata/forms"
)

func (x eraser) eraseInstances(ctx context.Context, e *erasure, ids []int64) error {
	tries, lock := attempts(ids)
	return e.change(ctx, tries, func(tx *forms.Transaction) (*entry, error) {
		matches := ids
		var others []int64
		if e.Purge != nil {
			var err error
			if matches, others, err = e.Purge.stillMatching(ctx, tx, ids, lock); err != nil {
				return nil, err
			}
		}
		instances, err := tx.Instances(ctx, matches, lock)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE tb_process_instance SET status = @terminated WHERE id IN (@ids) AND (status IN (@ended)) IS NOT "+
				"TRUE",
			forms.Args{"ids": matches, "terminated": forms.Terminated, "ended": forms.EndedStatuses},
		); err != nil {
			return nil, err
		}
		removed, err := forms.NewRemover(tx, false).Instances(ctx, matches, x.InDatabase)
		if err != nil {
			return nil, err
		}
		events := notMatchingEvents(others)
		for _, id := range matches {
			if instances[id] != nil && removed.Rows[id][forms.InstanceTable] == 0 {
				return nil, forms.ErrKept
			}
			events = append(events, x.instanceEvents(id, instances[id], removed.Rows[id])...)
		}
		return x.entry(kindInstance, slices.Concat(matches, others), removed, events), nil
	})
}

// eraseOrphans erases orphan tasks. It reports tasks that now belong to a process instance or do not exist.
func (x eraser) eraseOrphans(ctx context.Context, e *erasure, ids []int64) error {
	tries, lock := attempts(ids)
	return e.change(ctx, tries, func(tx *forms.Transaction) (*entry, error) {
		r := forms.NewRemover(tx, false)
		tasks, err := r.FindTasks(ctx, ids, lock)
		if err != nil {
			return nil, err
		}
		orphans, retained, events := orphansOf(tasks)
		removed, err := r.Orphans(ctx, orphans, x.InDatabase)
		if err != nil {
			return nil, err
		}
		for _, o := range orphans {
			if o.Exists && removed.Rows[o.ID]["tb_task"] == 0 {
				return nil, forms.ErrKept
			}
			events = append(events, Event{Task: &TaskErased{ID: o.ID, Rows: removed.Rows[o.ID]}})
		}
		erased := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(retained, id) })
		entry := x.entry(kindTask, erased, removed, events)
		entry.Kept = retained
		return entry, nil
	})
}

// Orphans splits tasks into orphans and tasks that are retained, with events that explain what is not simply erased.
func orphansOf(tasks []forms.Task) (orphans []forms.Task, retained []int64, events []Event) {
	for _, t := range tasks {
		switch {
		case !t.Exists && !t.Left:
			events = append(events, infof("task %d does not exist", t.ID))
			continue
		case t.Instance == nil:
			events = append(events,
				errorf("task %d is retained: it is unknown whether it belongs to a process instance", t.ID))
			retained = append(retained, t.ID)
			continue
		case *t.Instance != 0:
			events = append(events,
				errorf("task %d is retained: it belongs to process instance %d", t.ID, *t.Instance))
			retained = append(retained, t.ID)
			continue
		case t.Left:
			events = append(events, infof("task %d no longer exists; its remaining rows are deleted", t.ID))
		}
		orphans = append(orphans, t)
	}
	return orphans, retained, events
}

// entry returns the journal's entry for a transaction that removed items with everything that depends on them.
func (x eraser) entry(kind string, ids []int64, removed *forms.Removal, events []Event) *entry {
	entry := &entry{Kind: kind, Items: ids, Rows: removed.Total(), Events: events}
	if !x.InDatabase {
		entry.Sessions = removed.Sessions
	}
	return entry
}
