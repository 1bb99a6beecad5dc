package erasure

import (
	"context"
	"slices"

	"github.com/cleanupd/cleanupd/userdata/claim"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/record"
	"github.com/cleanupd/cleanupd/userdata/removal"
	"github.com/cleanupd/cleanupd/userdata/report"
)

func (x Eraser) eraseInstances(ctx context.Context, e *claim.Erasure, ids []int64) error {
	tries, lock := attempts(ids)
	return e.Change(ctx, tries, func(tx *forms.Transaction) (*report.Entry, error) {
		matches := ids
		var others []int64
		if e.Purge != nil {
			var err error
			if matches, others, err = e.Purge.StillMatching(ctx, tx, ids, lock); err != nil {
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
		removed, err := removal.New(tx, false).Instances(ctx, matches, x.InDatabase)
		if err != nil {
			return nil, err
		}
		events := notMatchingEvents(others)
		for _, id := range matches {
			if instances[id] != nil && removed.Rows[id][forms.InstanceTable] == 0 {
				return nil, removal.ErrKept
			}
			events = append(events, x.Events(id, instances[id], removed.Rows[id])...)
		}
		return x.entry(record.KindInstance, slices.Concat(matches, others), removed, events), nil
	})
}

// eraseOrphans erases orphan tasks. It reports tasks that now belong to a process instance or do not exist.
func (x Eraser) eraseOrphans(ctx context.Context, e *claim.Erasure, ids []int64) error {
	tries, lock := attempts(ids)
	return e.Change(ctx, tries, func(tx *forms.Transaction) (*report.Entry, error) {
		r := removal.New(tx, false)
		orphans, retained, events, err := r.FindOrphans(ctx, ids, lock)
		if err != nil {
			return nil, err
		}
		removed, err := r.Orphans(ctx, orphans, x.InDatabase)
		if err != nil {
			return nil, err
		}
		for _, o := range orphans {
			if o.Exists && removed.Rows[o.ID]["tb_task"] == 0 {
				return nil, removal.ErrKept
			}
			events = append(events, report.Event{Task: &report.TaskErased{ID: o.ID, Rows: removed.Rows[o.ID]}})
		}
		erased := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(retained, id) })
		entry := x.entry(record.KindTask, erased, removed, events)
		entry.Kept = retained
		return entry, nil
	})
}

// entry returns the journal's entry for a transaction that removed items with everything that depends on them.
func (x Eraser) entry(kind string, ids []int64, removed *removal.Removal, events []report.Event) *report.Entry {
	entry := &report.Entry{Kind: kind, Items: ids, Rows: removed.Total(), Events: events}
	if !x.InDatabase {
		entry.Sessions = removed.Sessions
	}
	return entry
}
