package userdata

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// Preview calls tell for each event of what an erasure would do, by one snapshot, and changes nothing. The last event
// is the receipt. tell may be slow: the snapshot has ended by then.
func (d *Database) Preview(ctx context.Context, r Request, tell func(Event) error) error {
	said, err := d.settle(ctx, &r)
	if err != nil {
		return err
	}
	out := &Receipt{
		RequestedBy: r.RequestedBy,
		CreateTime:  time.Now(),
		DryRun:      true,
		Sweep:       r.Sweep,
		Succeeded:   true,
		Instances:   r.Instances,
		Tasks:       r.Tasks,
		Rows:        Rows{},
	}
	sequence := int64(0)
	emit := func(events ...Event) error {
		for _, e := range events {
			sequence++
			e.Sequence, e.Time = sequence, time.Now()
			switch {
			case e.Instance != nil:
				out.Rows.add(e.Instance.Rows)
			case e.Task != nil:
				out.Rows.add(e.Task.Rows)
			case e.File != "":
				out.Files = append(out.Files, e.File)
			case e.Log != nil && e.Log.Level != severity.Info:
				out.Problems = append(out.Problems, e.Log.Message)
				out.Succeeded = out.Succeeded && e.Log.Level != severity.Error
			}
			if err := tell(e); err != nil {
				return err
			}
		}
		return nil
	}
	if err := emit(said...); err != nil {
		return err
	}
	if r.Sweep {
		events, rows, err := d.foretellSweep(ctx)
		if err != nil {
			return err
		}
		out.Rows = rows
		if err := emit(events...); err != nil {
			return err
		}
		out.EndTime = new(time.Now())
		return emit(Event{Receipt: out, Ended: true})
	}
	earlier, err := d.sameUser(ctx, r)
	if err != nil {
		return err
	}
	left, err := d.leftovers(ctx, d.Record, r, earlier, "")
	if err != nil {
		return err
	}
	var earlierSessions []string
	for _, l := range left {
		earlierSessions = append(earlierSessions, l.Session)
	}
	sessions := slices.Clone(earlierSessions)
	var events []Event
	err = d.Forms.snapshot(ctx, func(tx *transaction) error {
		remover := newRemover(tx, true)
		for chunk := range slices.Chunk(r.Instances, atOnce) {
			there, err := readInstances(ctx, tx, chunk, "")
			if err != nil {
				return err
			}
			if d.Manager != nil { // the Forms server purges only what it knows
				chunk = slices.DeleteFunc(slices.Clone(chunk), func(id int64) bool {
					unknown := there[id] != nil && there[id].Invocation == ""
					if unknown {
						events = append(events, failed(anInstance, id, errNoInvocation))
					}
					return unknown
				})
			}
			gone, err := remover.instances(ctx, chunk, d.InDatabase)
			if err != nil {
				return err
			}
			for _, s := range gone.sessions {
				// the Forms server deletes its documents itself
				if d.Manager == nil || (there[s.Item] != nil && d.Folder != "") {
					sessions = append(sessions, s.ID)
				}
			}
			for _, id := range chunk {
				events = append(events, d.erased(id, there[id], gone.rows[id])...)
			}
		}
		orphans, _, others, err := remover.sort(ctx, r.Tasks, "")
		if err != nil {
			return err
		}
		events = append(events, others...)
		gone, err := remover.orphans(ctx, orphans, false)
		if err != nil {
			return err
		}
		if d.InDatabase {
			if err := remover.documents(ctx, gone, append(ofNone(earlierSessions), gone.sessions...)); err != nil {
				return err
			}
			out.Rows.add(gone.rows[0])
		}
		for _, s := range gone.sessions {
			sessions = append(sessions, s.ID)
		}
		for _, o := range orphans {
			events = append(events, Event{Task: &TaskErased{o.id, gone.rows[o.id]}})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := emit(events...); err != nil {
		return err
	}
	switch {
	case d.Folder != "":
		events, err := wouldGo(ctx, d.Folder, sessions)
		if err != nil {
			events = []Event{unreadable(err)}
		}
		if err := emit(events...); err != nil {
			return err
		}
	case !d.InDatabase && len(sessions) > 0:
		slices.Sort(sessions)
		if err := emit(unknown(sessions)); err != nil {
			return err
		}
	}
	out.EndTime = new(time.Now())
	return emit(Event{Receipt: out, Ended: true})
}

// wouldGo are the events about the files in a folder that an erasure of sessions would delete.
func wouldGo(ctx context.Context, folder string, sessions []string) ([]Event, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	documents, looked, err := walk(ctx, root, sessions)
	return append([]Event{looked}, filesOf(documents)...), err
}

// filesOf are the events about the files of documents that would be deleted.
func filesOf(documents []document) (events []Event) {
	for _, d := range documents {
		if d.strange {
			events = append(events, d.stays())
			continue
		}
		for _, f := range d.files {
			events = append(events, deleted(f.name))
		}
	}
	return events
}
