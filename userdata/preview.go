package userdata

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Preview reports what an erasure would delete, and changes nothing. The last event is the receipt. fn may be slow,
// since it is called after the snapshot of the database has ended.
func (m *Manager) Preview(ctx context.Context, r Request, fn func(Event) error) error {
	events, err := m.resolve(ctx, &r)
	if err != nil {
		return err
	}
	p := &previewer{m: m, request: r, emit: fn, receipt: &Receipt{
		RequestedBy: connection.Text(r.RequestedBy),
		CreateTime:  time.Now(),
		DryRun:      true,
		Sweep:       r.Sweep,
		Succeeded:   true,
		Instances:   r.Instances,
		Tasks:       r.Tasks,
		Rows:        forms.Rows{},
	}}
	if err := p.report(events...); err != nil {
		return err
	}
	if r.Sweep {
		err = p.sweep(ctx)
	} else {
		err = p.erase(ctx)
	}
	if err != nil {
		return err
	}
	p.receipt.EndTime = new(time.Now())
	return p.report(Event{Receipt: p.receipt, Ended: true})
}

// previewer finds, numbers and emits the events of a preview, and makes its receipt.
type previewer struct {
	m        *Manager
	request  Request // its query is replaced by ids
	emit     func(Event) error
	sequence int64
	receipt  *Receipt
}

func (p *previewer) report(events ...Event) error {
	for _, e := range events {
		p.sequence++
		e.Sequence, e.Time = p.sequence, time.Now()
		switch {
		case e.Instance != nil:
			p.receipt.Rows.Add(e.Instance.Rows)
		case e.Task != nil:
			p.receipt.Rows.Add(e.Task.Rows)
		case e.Document != nil:
			p.receipt.Rows.Add(e.Document.Rows)
		case e.File != "":
			p.receipt.Files = append(p.receipt.Files, e.File)
		case e.Log != nil && e.Log.Level != message.Info:
			p.receipt.Problems = append(p.receipt.Problems, e.Log.Message)
			p.receipt.Succeeded = p.receipt.Succeeded && e.Log.Level != message.Error
		}
		if err := p.emit(e); err != nil {
			return err
		}
	}
	return nil
}

func (p *previewer) sweep(ctx context.Context) error {
	preview := p.m.previewFolderSweep
	if p.m.InDatabase {
		preview = p.m.previewDatabaseSweep
	}
	events, err := preview(ctx)
	if err != nil {
		return err
	}
	return p.report(events...)
}

func (p *previewer) erase(ctx context.Context) error {
	earlier, err := p.leftoverSessions(ctx)
	if err != nil {
		return err
	}
	sessions := slices.Clone(earlier)
	var events []Event
	err = p.m.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		remover := forms.NewRemover(tx, true)
		for ids := range slices.Chunk(p.request.Instances, itemsPerTransaction) {
			chunkEvents, chunkSessions, err := p.instances(ctx, tx, remover, ids)
			if err != nil {
				return err
			}
			events, sessions = append(events, chunkEvents...), append(sessions, chunkSessions...)
		}
		tasks, err := remover.FindTasks(ctx, p.request.Tasks, "")
		if err != nil {
			return err
		}
		orphans, _, orphanEvents := orphansOf(tasks)
		events = append(events, orphanEvents...)
		removed, err := remover.Orphans(ctx, orphans, false)
		if err != nil {
			return err
		}
		if p.m.InDatabase {
			documents := append(withoutItem(earlier), removed.Sessions...)
			if err := remover.Documents(ctx, removed, documents); err != nil {
				return err
			}
			p.receipt.Rows.Add(removed.Rows[0])
		}
		for _, s := range removed.Sessions {
			sessions = append(sessions, s.ID)
		}
		for _, o := range orphans {
			events = append(events, Event{Task: &TaskErased{ID: o.ID, Rows: removed.Rows[o.ID]}})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.report(events...); err != nil {
		return err
	}
	return p.report(p.files(ctx, sessions)...)
}

// leftoverSessions returns sessions whose documents earlier erasures of the same user or items could not delete.
func (p *previewer) leftoverSessions(ctx context.Context) (sessions []string, err error) {
	var earlier []string
	if p.request.Query != nil {
		if earlier, err = p.m.failedErasuresOf(ctx, p.request.Query.UserID); err != nil {
			return nil, err
		}
	}
	leftovers, err := p.m.leftovers(ctx, p.m.Record, p.request, earlier, "")
	for _, l := range leftovers {
		sessions = append(sessions, l.Session)
	}
	return sessions, err
}

// instances returns the events about process instances, and the sessions whose documents would be deleted from the
// folder.
func (p *previewer) instances(
	ctx context.Context, tx *forms.Transaction, remover *forms.Remover, ids []int64,
) (events []Event, sessions []string, err error) {
	instances, err := tx.Instances(ctx, ids, "")
	if err != nil {
		return nil, nil, err
	}
	if p.m.Server != nil {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
			unknown := instances[id] != nil && instances[id].Invocation == ""
			if unknown {
				events = append(events, failedEvent(kindInstance, id, errNoInvocation))
			}
			return unknown
		})
	}
	removed, err := remover.Instances(ctx, ids, p.m.InDatabase)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range removed.Sessions {
		// the Forms server deletes documents itself
		if p.m.Server == nil || (instances[s.Item] != nil && p.m.Folder != "") {
			sessions = append(sessions, s.ID)
		}
	}
	for _, id := range ids {
		events = append(events, p.m.instanceEvents(id, instances[id], removed.Rows[id])...)
	}
	return events, sessions, nil
}

// files returns the events about the documents of the sessions that would be deleted from the folder.
func (p *previewer) files(ctx context.Context, sessions []string) []Event {
	switch {
	case p.m.Folder != "":
		root, err := os.OpenRoot(p.m.Folder)
		if err != nil {
			return []Event{unreadableEvent(err)}
		}
		defer func() { _ = root.Close() }()
		documents, summary, err := searchFolder(ctx, root, sessions)
		if err != nil {
			return []Event{unreadableEvent(err)}
		}
		return append([]Event{summary}, documentEvents(documents)...)
	case !p.m.InDatabase && len(sessions) > 0:
		return []Event{unknownStorageEvent(slices.Sorted(slices.Values(sessions)))}
	}
	return nil
}
