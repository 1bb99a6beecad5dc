package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/gds"
)

// sweep deletes stale documents: those whose sessions all name a task or form data that does not exist. It returns
// failed as true if some could not be deleted.
func (e *erasure) sweep(ctx context.Context) (failed bool, err error) {
	if e.InDatabase {
		return e.sweepDatabase(ctx)
	}
	return e.sweepFolder(ctx)
}

func (e *erasure) sweepDatabase(ctx context.Context) (failed bool, err error) {
	var documents map[string][]string
	var o observation
	if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		documents, o, err = observeDatabase(ctx, tx)
		return err
	}); err != nil {
		return false, err
	}
	confirmed, err := e.confirm(ctx, o)
	if err != nil {
		return false, err
	}
	ids := slices.Sorted(maps.Keys(onlyOf(documents, confirmed)))
	for chunk := range slices.Chunk(ids, documentsPerTransaction) {
		problem := e.change(ctx, forms.MaxTries, func(tx *forms.Transaction) (*entry, error) {
			return deleteStale(ctx, tx, false, chunk, confirmed)
		})
		if problem == nil {
			continue
		}
		if e.interrupts(ctx, problem) {
			return false, problem
		}
		failed = true
		if err := e.report(
			ctx,
			errorf("the documents from %s to %s are retained: %s", chunk[0], chunk[len(chunk)-1],
				sqlstate.Explain(problem)),
		); err != nil {
			return false, err
		}
	}
	return failed, e.reportRetained(ctx, func() (event Event, err error) {
		err = e.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
			sessions, err := tx.AllReferences(ctx)
			if err == nil {
				event, err = retainedInDatabase(ctx, tx, sessions, nil)
			}
			return err
		})
		return event, err
	})
}

// observeDatabase observes the sessions of all documents in the database, and returns these sessions by document.
func observeDatabase(
	ctx context.Context, tx *forms.Transaction,
) (documents map[string][]string, o observation, err error) {
	if documents, err = tx.AllReferences(ctx); err == nil {
		o, err = observe(ctx, tx, slices.Concat(slices.Collect(maps.Values(documents))...))
	}
	return documents, o, err
}

const documentsPerTransaction = 100

// deleteStale deletes documents whose sessions are all dead, or counts them in a dry run.
func deleteStale(
	ctx context.Context, tx *forms.Transaction, dryRun bool, ids []string, confirmed map[string]bool,
) (*entry, error) {
	remover := forms.NewRemover(tx, dryRun)
	all, err := remover.References(ctx, ids)
	if err != nil {
		return nil, err
	}
	documents, err := onlyDead(ctx, tx, all, confirmed)
	if err != nil {
		return nil, err
	}
	rows, err := remover.WithReferences(ctx, documents)
	if err != nil {
		return nil, err
	}
	entry := &entry{Rows: forms.Rows{}}
	for _, id := range slices.Sorted(maps.Keys(documents)) {
		entry.Rows.Add(rows[id])
		slices.Sort(documents[id])
		entry.Events = append(entry.Events, Event{Document: &DocumentErased{
			ID:       id,
			Sessions: slices.Compact(documents[id]),
			Rows:     rows[id],
		}})
	}
	return entry, nil
}

func (m *Manager) previewDatabaseSweep(ctx context.Context) (events []Event, err error) {
	err = m.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		documents, o, err := observeDatabase(ctx, tx)
		if err != nil {
			return err
		}
		confirmed, unconfirmed, err := confirmedSessions(ctx, m.Record, m.Forms.Identity(), o)
		if err != nil {
			return err
		}
		ids := slices.Sorted(maps.Keys(onlyOf(documents, confirmed)))
		for chunk := range slices.Chunk(ids, documentsPerTransaction) {
			entry, err := deleteStale(ctx, tx, true, chunk, confirmed)
			if err != nil {
				return err
			}
			events = append(events, entry.Events...)
		}
		retained, err := retainedInDatabase(ctx, tx, documents, ids)
		events = append(append(events, unconfirmed...), retained)
		return err
	})
	return events, err
}

// minFileAge protects younger documents, since they may belong to a task that is not stored yet.
const minFileAge = 24 * time.Hour

func (e *erasure) sweepFolder(ctx context.Context) (failed bool, err error) {
	root, err := e.openFolder(ctx)
	if err != nil || root == nil {
		return root == nil, err
	}
	defer func() { _ = root.Close() }()
	fail := func(err error) (bool, error) {
		if e.interrupts(ctx, err) {
			return false, err
		}
		return true, e.report(ctx, unreadableEvent(err))
	}
	o, err := e.observeFolder(ctx, root)
	if err != nil {
		return fail(err)
	}
	confirmed, err := e.confirm(ctx, o)
	if err != nil {
		return false, err
	}
	documents, young, err := staleDocuments(ctx, root, confirmed)
	if err != nil {
		return fail(err)
	}
	if err := e.report(ctx, young...); err != nil {
		return false, err
	}
	stuck, err := e.deleteFiles(ctx, root, documents)
	if err != nil {
		return false, err
	}
	return len(stuck) > 0, e.reportRetained(ctx,
		func() (Event, error) { return retainedInFolder(ctx, root, nil) })
}

func (m *Manager) observeFolder(ctx context.Context, root *os.Root) (o observation, err error) {
	sessions := map[string]bool{}
	if err := gds.EachFile(ctx, root, func(_ string, entry fs.DirEntry) {
		if _, session, ok := gds.ParseMarker(entry.Name()); ok {
			sessions[session] = true
		}
	}); err != nil {
		return o, err
	}
	err = m.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		o, err = observe(ctx, tx, slices.Collect(maps.Keys(sessions)))
		return err
	})
	return o, err
}

// staleDocuments returns the documents whose sessions are all confirmed. If some documents are too young, it also
// returns an event about them.
func staleDocuments(
	ctx context.Context, root *os.Root, confirmed map[string]bool,
) (stale []gds.Document, young []Event, err error) {
	documents, _, err := gds.Search(ctx, root, slices.Collect(maps.Keys(confirmed)))
	if err != nil {
		return nil, nil, err
	}
	retained := 0
	for _, d := range documents {
		switch {
		case d.Retained:
		case d.YoungerThan(root, minFileAge):
			retained++
		default:
			stale = append(stale, d)
		}
	}
	if retained > 0 {
		young = append(young,
			warningf(
				"%d documents without a task or form data are retained: one of their files is younger than a day",
				retained))
	}
	return stale, young, nil
}

func (m *Manager) previewFolderSweep(ctx context.Context) ([]Event, error) {
	root, err := os.OpenRoot(m.Folder)
	if err != nil {
		return []Event{unreadableEvent(err)}, nil
	}
	defer func() { _ = root.Close() }()
	o, err := m.observeFolder(ctx, root)
	if err != nil {
		return nil, err
	}
	confirmed, unconfirmed, err := confirmedSessions(ctx, m.Record, m.Forms.Identity(), o)
	if err != nil {
		return nil, err
	}
	documents, young, err := staleDocuments(ctx, root, confirmed)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, d := range documents {
		paths = append(paths, d.Path)
	}
	retained, err := retainedInFolder(ctx, root, paths)
	return append(slices.Concat(documentEvents(documents), unconfirmed, young), retained), err
}

// confirmAfter is how long the owner of a session must have been missing, since a Forms server stores documents
// before it commits the transaction that stores their task.
const confirmAfter = time.Hour

// observation is what a sweep sees in the Forms database when it begins.
type observation struct {
	dead    map[string]owner // sessions whose owners do not exist, with these owners
	highest map[string]int64 // the highest ids by table
}

func observe(ctx context.Context, tx *forms.Transaction, sessions []string) (o observation, err error) {
	o.highest = map[string]int64{}
	for _, table := range []string{"tb_task", "tb_form_data"} {
		var id int64
		query := "SELECT COALESCE(MAX(id), 0) FROM " + table
		if err := tx.Each(ctx, query, nil, []any{&id}, func() { o.highest[table] = id }); err != nil {
			return o, err
		}
	}
	o.dead, err = deadSessions(ctx, tx, sessions)
	return o, err
}

// isAbove reports whether the id of the session's owner is higher than all known ids. Such an owner may be about to
// be stored.
func (o observation) isAbove(session string) bool {
	owner := o.dead[session]
	return owner.id > o.highest[owner.table]
}

// confirm stores the observation, reports sessions that are not confirmed, and returns the confirmed ones.
func (e *erasure) confirm(ctx context.Context, o observation) (confirmed map[string]bool, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		if err := o.store(ctx, tx, e.formsID); err != nil {
			return err
		}
		var events []Event
		if confirmed, events, err = confirmedSessions(ctx, tx, e.formsID, o); err != nil {
			return err
		}
		return e.appendEvents(ctx, tx, events...)
	})
	return confirmed, err
}

// store stores the observation, which later sweeps need.
func (o observation) store(ctx context.Context, tx pgx.Tx, formsID string) error {
	for table, id := range o.highest {
		if err := tx.QueryRow(ctx, `INSERT INTO cleanupd.highest_id AS h (forms_id, relation, id) VALUES ($1, $2, $3)
			ON CONFLICT (forms_id, relation) DO UPDATE SET id = greatest(h.id, EXCLUDED.id) RETURNING id`,
			formsID, table, id).Scan(&id); err != nil {
			return err
		}
		o.highest[table] = id
	}
	below := slices.DeleteFunc(slices.Sorted(maps.Keys(o.dead)), o.isAbove)
	if _, err := tx.Exec(ctx, `DELETE FROM cleanupd.dead_session WHERE forms_id = $1
		AND NOT EXISTS (SELECT FROM unnest($2::text[]) AS dead (id) WHERE dead.id = session_id)`,
		formsID, below); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO cleanupd.dead_session (forms_id, session_id) SELECT $1, unnest($2::text[])
		ON CONFLICT DO NOTHING`, formsID, below)
	return err
}

// confirmedSessions returns the dead sessions of an observation that were already found dead an hour ago or earlier,
// with events about the others.
func confirmedSessions(
	ctx context.Context, db external.Querier, formsID string, o observation,
) (confirmed map[string]bool, events []Event, err error) {
	if err := o.raise(ctx, db, formsID); err != nil {
		return nil, nil, err
	}
	rows, _ := db.Query(ctx, `SELECT session_id FROM cleanupd.dead_session WHERE forms_id = $1
		AND found_time <= clock_timestamp() - $2::bigint * interval '1 microsecond'`, formsID, confirmAfter.Microseconds())
	confirmed = map[string]bool{}
	var session string
	if _, err := pgx.ForEachRow(rows, []any{&session}, func() error {
		if _, dead := o.dead[session]; dead {
			confirmed[session] = true
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	above := 0
	for s := range o.dead {
		if !confirmed[s] && o.isAbove(s) {
			above++
		}
	}
	if recent := len(o.dead) - len(confirmed) - above; recent > 0 {
		events = append(events, warningf(
			"%d sessions name a task or form data that does not exist, but may be about to be stored: their documents are "+
				"retained until a sweep that follows another one, not a dry run, by an hour or more",
			recent,
		))
	}
	if above > 0 {
		events = append(events, warningf(
			"%d sessions name a task or form data with an id that is higher than all that were ever seen: their documents "+
				"are retained",
			above,
		))
	}
	return confirmed, events, nil
}

// raise raises the highest ids to those that earlier sweeps have seen.
func (o observation) raise(ctx context.Context, db external.Querier, formsID string) error {
	rows, _ := db.Query(ctx, "SELECT relation, id FROM cleanupd.highest_id WHERE forms_id = $1", formsID)
	var table string
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&table, &id}, func() error {
		o.highest[table] = max(o.highest[table], id)
		return nil
	})
	return err
}

// owner is the task or form data that a session belongs to.
type owner struct {
	table string
	id    int64
}

// ownedSession matches the ids of sessions of documents that belong to a task or form data.
var ownedSession = regexp.MustCompile(`^_wf(attach|task|taskformid)([1-9][0-9]{0,18})$`)

// ownerOf returns the zero owner for other sessions.
func ownerOf(session string) owner {
	m := ownedSession.FindStringSubmatch(session)
	if m == nil {
		return owner{}
	}
	id, err := strconv.ParseInt(m[2], 10, 64)
	switch {
	case err != nil: // too large for an id
		return owner{}
	case m[1] == "attach":
		return owner{"tb_task", id}
	}
	return owner{"tb_form_data", id}
}

// deadSessions returns the sessions whose owners do not exist, with their owners.
func deadSessions(ctx context.Context, tx *forms.Transaction, sessions []string) (map[string]owner, error) {
	dead, ids := map[string]owner{}, map[string]map[int64]bool{} // ids by table
	for _, s := range sessions {
		if o := ownerOf(s); o != (owner{}) {
			dead[s] = o
			if ids[o.table] == nil {
				ids[o.table] = map[int64]bool{}
			}
			ids[o.table][o.id] = true
		}
	}
	existing := map[owner]bool{}
	for table, ids := range ids {
		for chunk := range slices.Chunk(slices.Sorted(maps.Keys(ids)), idsPerQuery) {
			var id int64
			query := "SELECT id FROM " + table + " WHERE id IN (@ids)"
			read := func() { existing[owner{table, id}] = true }
			if err := tx.Each(ctx, query, forms.Args{"ids": chunk}, []any{&id}, read); err != nil {
				return nil, err
			}
		}
	}
	maps.DeleteFunc(dead, func(_ string, o owner) bool { return existing[o] })
	return dead, nil
}

// onlyOf returns the documents whose sessions are all in the set, with these sessions.
func onlyOf[V any](documents map[string][]string, set map[string]V) map[string][]string {
	only := maps.Clone(documents)
	maps.DeleteFunc(only, func(_ string, sessions []string) bool {
		return slices.ContainsFunc(sessions, func(s string) bool { _, in := set[s]; return !in })
	})
	return only
}

// onlyDead returns the documents whose sessions are all confirmed, and whose owners do not exist in this transaction.
func onlyDead(
	ctx context.Context, tx *forms.Transaction, documents map[string][]string, confirmed map[string]bool,
) (map[string][]string, error) {
	stale := onlyOf(documents, confirmed)
	dead, err := deadSessions(ctx, tx, slices.Concat(slices.Collect(maps.Values(stale))...))
	return onlyOf(stale, dead), err
}

// reportRetained reports the retained documents. If they cannot be counted, the sweep does not fail.
func (e *erasure) reportRetained(ctx context.Context, count func() (Event, error)) error {
	event, err := count()
	if e.interrupts(ctx, err) {
		return err
	}
	if err != nil {
		event = warningf("the retained documents could not be counted: %s", sqlstate.Explain(err))
	}
	return e.report(ctx, event)
}

// retention is why a document is retained, judged by its sessions.
type retention int

const (
	kindOwned  retention = iota // a session names a task or form data
	kindMinus1                  // every session is "-1", which Forms uses for some drafts
	kindOther
	kindNone
)

// kindNames are for people.
var kindNames = [...]string{"of tasks and form data", `of the session "-1"`, "of other sessions", "without a session"}

func kindOf(sessions []string) retention {
	switch {
	case len(sessions) == 0:
		return kindNone
	case slices.ContainsFunc(sessions, ownedSession.MatchString):
		return kindOwned
	case !slices.ContainsFunc(sessions, func(s string) bool { return s != "-1" }):
		return kindMinus1
	}
	return kindOther
}

func retainedEvent(sizes map[string]int64, sessions map[string][]string) Event {
	var documents, bytes [len(kindNames)]int64
	for document, size := range sizes {
		k := kindOf(sessions[document])
		documents[k]++
		bytes[k] += size
	}
	var parts []string
	for k, name := range kindNames {
		parts = append(parts, fmt.Sprintf("%d %s (%d bytes)", documents[k], name, bytes[k]))
	}
	return infof("documents retained: %s", strings.Join(parts, ", "))
}

// retainedInDatabase reports all documents in the database except stale ones. It also reports chunks that belong to
// no document, which no session leads to.
func retainedInDatabase(
	ctx context.Context, tx *forms.Transaction, sessions map[string][]string, stale []string,
) (Event, error) {
	sizes := map[string]int64{}
	var document sql.NullString
	var size, chunks, bytes int64
	query := "SELECT documentid, COALESCE(OCTET_LENGTH(content), 0) FROM tb_dm_chunk"
	err := tx.Each(ctx, query, nil, []any{&document, &size}, func() {
		if document.Valid {
			sizes[document.String] += size
			return
		}
		chunks++
		bytes += size
	})
	for _, document := range stale {
		delete(sizes, document)
	}
	event := retainedEvent(sizes, sessions)
	if chunks > 0 {
		event.Log.Message += fmt.Sprintf("; and %d chunks without a document (%d bytes)", chunks, bytes)
	}
	return event, err
}

// retainedInFolder reports all documents in the folder except the stale ones, which are given by their paths.
func retainedInFolder(ctx context.Context, root *os.Root, stale []string) (Event, error) {
	isStale, sizes, sessions := map[string]bool{}, map[string]int64{}, map[string][]string{}
	for _, name := range stale {
		isStale[name] = true
	}
	err := gds.EachFile(ctx, root, func(name string, entry fs.DirEntry) {
		guid, session, ok := gds.ParseMarker(entry.Name())
		switch info, err := entry.Info(); {
		case ok:
			sessions[guid] = append(sessions[guid], session)
		case err == nil && !isStale[name]:
			sizes[path.Base(name)] += info.Size()
		}
	})
	return retainedEvent(sizes, sessions), err
}
