package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// ErrNoStorage says that the document storage is not known, so that there is nothing to sweep.
var ErrNoStorage = errors.New("the document storage (GDS) is not known here: start the server with --forms-gds-dir or --forms-gds-in-database")

// DocumentErased says that a stale document in the database was deleted, or would be.
type DocumentErased struct {
	ID       string
	Sessions []string
	Rows     Rows
}

// ofTask is the session id of a document that belongs to a task, or to form data.
var ofTask = regexp.MustCompile(`^_wf(attach|task|taskformid)([1-9][0-9]{0,18})$`)

// dead are those of some sessions that name a task or form data that does not exist. A session of another form is none of them.
func dead(ctx context.Context, tx *transaction, sessions []string) (map[string]bool, error) {
	named := map[string]map[int64]bool{"tb_task": {}, "tb_form_data": {}} // ids that sessions name, and whether they exist
	of := func(session string) (table string, id int64) {
		m := ofTask.FindStringSubmatch(session)
		if m == nil {
			return "", 0
		}
		id, err := strconv.ParseInt(m[2], 10, 64)
		switch {
		case err != nil: // too large for an id
			return "", 0
		case m[1] == "attach":
			return "tb_task", id
		}
		return "tb_form_data", id
	}
	for _, s := range sessions {
		if table, id := of(s); table != "" {
			named[table][id] = false
		}
	}
	for table, ids := range named {
		for some := range slices.Chunk(slices.Sorted(maps.Keys(ids)), idsAtOnce) {
			var id int64
			if err := tx.each(ctx, "SELECT id FROM "+table+" WHERE id IN (@ids)", args{"ids": some}, []any{&id}, func() { ids[id] = true }); err != nil {
				return nil, err
			}
		}
	}
	out := map[string]bool{}
	for _, s := range sessions {
		if table, id := of(s); table != "" && !named[table][id] {
			out[s] = true
		}
	}
	return out, nil
}

// onlyDead are those of some documents whose every session is dead, with their sessions.
func onlyDead(ctx context.Context, tx *transaction, documents map[string][]string) (map[string][]string, error) {
	gone, err := dead(ctx, tx, slices.Concat(slices.Collect(maps.Values(documents))...))
	stale := maps.Clone(documents)
	maps.DeleteFunc(stale, func(_ string, sessions []string) bool {
		return slices.ContainsFunc(sessions, func(s string) bool { return !gone[s] })
	})
	return stale, err
}

// references are the sessions of documents in the database, by document: of all documents, or of some. An unknown session is an empty one.
func references(ctx context.Context, tx *transaction, condition string, a args) (map[string][]string, error) {
	documents := map[string][]string{}
	var document, session string
	err := tx.each(ctx, "SELECT r.documentid, COALESCE(r.sessionid, '') FROM tb_dm_session_reference AS r WHERE r.documentid IS NOT NULL"+condition, a, []any{&document, &session}, func() {
		documents[document] = append(documents[document], session)
	})
	return documents, err
}

// stale returns the stale documents in the database, in order, and the sessions of all documents.
func stale(ctx context.Context, tx *transaction) (ids []string, all map[string][]string, err error) {
	if all, err = references(ctx, tx, "", nil); err != nil {
		return nil, nil, err
	}
	documents, err := onlyDead(ctx, tx, all)
	return slices.Sorted(maps.Keys(documents)), all, err
}

// sweep removes those of some documents from the database that are stale, by what is true in this transaction, and returns what went.
func (r *remover) sweep(ctx context.Context, ids []string) (*entry, error) {
	if !r.dry {
		if err := r.tx.lockReferences(ctx, r.tx); err != nil {
			return nil, err
		}
	}
	all, err := references(ctx, r.tx, " AND "+r.tx.among("r.documentid", "@ids")+r.locking(), args{"ids": ids})
	if err != nil {
		return nil, err
	}
	documents, err := onlyDead(ctx, r.tx, all)
	if err != nil {
		return nil, err
	}
	list := slices.Sorted(maps.Keys(documents))
	a := args{"documents": list, "sessions": slices.Concat(slices.Collect(maps.Values(documents))...)}
	references, err := r.remove(ctx, doomed{"tb_dm_session_reference", r.tx.among("r.documentid", "@documents") + " AND " + r.tx.among("r.sessionid", "@sessions"), "r.documentid"}, a)
	if err != nil {
		return nil, err
	}
	chunks, err := r.unreferenced(ctx, list)
	if err != nil {
		return nil, err
	}
	done := &entry{Rows: Rows{}}
	for _, id := range list {
		rows := Rows{}
		for table, n := range map[string]int64{"tb_dm_session_reference": references[id], "tb_dm_chunk": chunks[id]} {
			if n > 0 {
				rows[table] = n
			}
		}
		done.Rows.add(rows)
		slices.Sort(documents[id])
		done.Events = append(done.Events, Event{Document: &DocumentErased{id, slices.Compact(documents[id]), rows}})
	}
	return done, nil
}

// sweep deletes the documents whose every session names a task or form data that does not exist.
func (e *erasure) sweep(ctx context.Context) (failed bool, err error) {
	if e.InDatabase {
		return e.sweepDatabase(ctx)
	}
	return e.sweepFolder(ctx)
}

func (e *erasure) sweepDatabase(ctx context.Context) (failed bool, err error) {
	var ids []string
	if err := e.Forms.snapshot(ctx, func(tx *transaction) (err error) {
		ids, _, err = stale(ctx, tx)
		return err
	}); err != nil {
		return false, err
	}
	for some := range slices.Chunk(ids, documentsAtOnce) {
		problem := e.change(ctx, maxTries, func(tx *transaction) (*entry, error) { return newRemover(tx, false).sweep(ctx, some) })
		if problem == nil {
			continue
		}
		if e.endsWork(ctx, problem) {
			return false, problem
		}
		failed = true
		if err := e.tell(ctx, logged(severity.Error, fmt.Sprintf("the documents from %s to %s stay: %s", some[0], some[len(some)-1], sqlstate.Explain(problem)))); err != nil {
			return false, err
		}
	}
	return failed, e.reportRetained(ctx, func() (event Event, err error) {
		err = e.Forms.snapshot(ctx, func(tx *transaction) error {
			sessions, err := references(ctx, tx, "", nil)
			if err == nil {
				event, err = retainedInDatabase(ctx, tx, sessions, nil)
			}
			return err
		})
		return event, err
	})
}

// reportRetained reports what the sweep leaves. That it cannot be counted does not fail the sweep.
func (e *erasure) reportRetained(ctx context.Context, count func() (Event, error)) error {
	event, err := count()
	if e.endsWork(ctx, err) {
		return err
	}
	if err != nil {
		event = logged(severity.Warning, "the retained documents could not be counted: "+sqlstate.Explain(err))
	}
	return e.tell(ctx, event)
}

func (e *erasure) sweepFolder(ctx context.Context) (failed bool, err error) {
	root, err := e.openFolder(ctx)
	if err != nil || root == nil {
		return root == nil, err
	}
	defer func() { _ = root.Close() }()
	documents, err := e.staleFiles(ctx, root)
	if e.endsWork(ctx, err) {
		return false, err
	}
	if err != nil {
		return true, e.tellUnreadable(ctx, err)
	}
	stuck, err := e.removeAll(ctx, root, documents)
	if err != nil {
		return false, err
	}
	return len(stuck) > 0, e.reportRetained(ctx, func() (Event, error) { return retainedInFolder(ctx, root, nil) })
}

// staleFiles are the stale documents in a folder.
func (d *Database) staleFiles(ctx context.Context, root *os.Root) (list []document, err error) {
	named := map[string]bool{}
	if err := eachFile(ctx, root, func(_ string, entry fs.DirEntry) {
		if _, session, ok := marker(entry.Name()); ok {
			named[session] = true
		}
	}); err != nil {
		return nil, err
	}
	var gone map[string]bool
	if err := d.Forms.snapshot(ctx, func(tx *transaction) (err error) {
		gone, err = dead(ctx, tx, slices.Sorted(maps.Keys(named)))
		return err
	}); err != nil {
		return nil, err
	}
	documents, _, err := walk(ctx, root, slices.Sorted(maps.Keys(gone)))
	return slices.DeleteFunc(documents, func(d document) bool { return d.kept }), err
}

// foretellSweep are the events about what a sweep would delete.
func (d *Database) foretellSweep(ctx context.Context) (events []Event, rows Rows, err error) {
	rows = Rows{}
	if d.InDatabase {
		err := d.Forms.snapshot(ctx, func(tx *transaction) error {
			ids, all, err := stale(ctx, tx)
			if err != nil {
				return err
			}
			for some := range slices.Chunk(ids, documentsAtOnce) {
				done, err := newRemover(tx, true).sweep(ctx, some)
				if err != nil {
					return err
				}
				events = append(events, done.Events...)
				rows.add(done.Rows)
			}
			retained, err := retainedInDatabase(ctx, tx, all, ids)
			events = append(events, retained)
			return err
		})
		return events, rows, err
	}
	root, err := os.OpenRoot(d.Folder)
	if err != nil {
		return []Event{unreadable(err)}, rows, nil
	}
	defer func() { _ = root.Close() }()
	documents, err := d.staleFiles(ctx, root)
	if err != nil {
		return nil, rows, err
	}
	var paths []string
	for _, d := range documents {
		paths = append(paths, d.name)
	}
	retained, err := retainedInFolder(ctx, root, paths)
	return append(filesOf(documents), retained), rows, err
}
