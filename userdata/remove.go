package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// remover deletes rows, or counts what it would delete.
type remover struct {
	tx  *transaction
	dry bool
	// counted is what a dry run has counted: it still exists and must not be counted again.
	counted struct{ instances, tasks []int64 }
	// sessions are those whose documents it has been told to delete.
	sessions map[string]bool
}

func newRemover(tx *transaction, dry bool) *remover {
	return &remover{tx: tx, dry: dry, sessions: map[string]bool{}}
}

// session is a session id, and the process instance or orphan task that its documents belong to.
type session struct {
	ID   string `json:"ID"`
	Item int64  `json:"Item"`
}

// removal is what goes of some process instances or orphan tasks.
type removal struct {
	rows     map[int64]Rows // by item
	sessions []session      // whose documents must go, too
}

// add adds rows of a table to those of an item.
func (g *removal) add(table string, item, n int64) {
	if g.rows[item] == nil {
		g.rows[item] = Rows{}
	}
	g.rows[item][table] += n
}

// items are the items that have rows.
func (g *removal) items() (ids []int64) {
	for id, rows := range g.rows {
		if len(rows) > 0 && id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// total is all of its rows.
func (g *removal) total() Rows {
	total := Rows{}
	for _, rows := range g.rows {
		total.add(rows)
	}
	return total
}

// doomed says which rows of a table, whose alias is r, go, and by which of its columns they are counted.
type doomed struct{ table, where, key string }

// remove deletes the rows that it says, and counts them by their key.
func (r *remover) remove(ctx context.Context, m doomed, a args) (counts map[string]int64, err error) {
	if r.dry {
		counts, err = r.tx.counts(
			ctx,
			fmt.Sprintf("SELECT %[1]s, count(*) FROM %[2]s AS r WHERE %[3]s GROUP BY %[1]s", m.key, m.table, m.where),
			a,
		)
	} else {
		counts, err = r.tx.remove(ctx, r.tx, m, a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.table, err)
	}
	return counts, nil
}

// removeFor is remove where the key is an id; of says of which item it is.
func (r *remover) removeFor(ctx context.Context, g *removal, of func(id int64) int64, m doomed, a args) error {
	counts, err := r.remove(ctx, m, a)
	for key, n := range counts {
		g.add(m.table, of(idOf(key)), n)
	}
	return err
}

// itself is an id that is that of an item.
func itself(id int64) int64 { return id }

// optional are the tables about tasks that not every version has.
var optional = []string{"tb_task_acl", "tb_task_attachment"}

// there are the tables of some that exist.
func there(ctx context.Context, tx *transaction, tables []string) ([]string, error) {
	missing, err := tx.lacking(ctx, tx, tables)
	return slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return slices.Contains(missing, t) }), err
}

// tasks removes locked tasks with everything that depends on them. items says of which process instance each task is,
// or that it is an orphan, by its own id; instances are what tb_task says.
func (r *remover) tasks(ctx context.Context, g *removal, items map[int64]int64, instances []int64) error {
	ids := slices.Sorted(maps.Keys(items))
	of := func(task int64) int64 { return items[task] }
	tables, err := there(ctx, r.tx, optional)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := r.removeFor(
			ctx,
			g,
			of,
			doomed{table, "r.task_id IN (@ids)", "r.task_id"},
			args{"ids": ids},
		); err != nil {
			return err
		}
	}
	if err := r.formData(ctx, g, items); err != nil {
		return err
	}
	if err := r.removeFor(
		ctx,
		g,
		of,
		doomed{
			"tb_assignment",
			"r.task_id IN (@ids) AND (r.process_instance_id IN (@counted)) IS NOT TRUE",
			"r.task_id",
		},
		args{"ids": ids, "counted": r.counted.instances},
	); err != nil {
		return err
	}
	if r.dry {
		r.counted.tasks = append(r.counted.tasks, ids...)
	}
	return r.removeFor(
		ctx,
		g,
		of,
		doomed{"tb_task", "r.id IN (@ids) AND r.process_instance_id IN (@instances)", "r.id"},
		args{"ids": ids, "instances": instances},
	)
}

// formData removes the form data of tasks, and adds the sessions of the documents of just that, whatever came a moment
// before.
func (r *remover) formData(ctx context.Context, g *removal, items map[int64]int64) error {
	ids := slices.Sorted(maps.Keys(items))
	counts, err := r.remove(
		ctx,
		doomed{"tb_form_data", "r.task_id IN (@ids)", "concat(r.id, ' ', r.task_id)"},
		args{"ids": ids},
	)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		fd, task, _ := strings.Cut(key, " ")
		item := items[idOf(task)]
		g.add("tb_form_data", item, counts[key])
		g.sessions = append(g.sessions, session{"_wftask" + fd, item}, session{"_wftaskformid" + fd, item})
	}
	for _, task := range ids { // attachments need no form data
		g.sessions = append(g.sessions, session{fmt.Sprintf("_wfattach%d", task), items[task]})
	}
	return nil
}

// locking is how a statement ends that reads what decides what is deleted.
func (r *remover) locking() string {
	if r.dry {
		return ""
	}
	return r.tx.locking()
}

// sessionsAtOnce is how many sessions' documents are removed by one statement.
const sessionsAtOnce = 1000

// documents removes the documents of sessions from the storage in the database, unless another session refers to them.
// Meanwhile nobody can add such a reference. One that several items share is counted with the last of these.
func (r *remover) documents(ctx context.Context, g *removal, sessions []session) error {
	for some := range slices.Chunk(sessions, sessionsAtOnce) {
		if err := r.documentsOf(ctx, g, some); err != nil {
			return err
		}
	}
	return nil
}

func (r *remover) documentsOf(ctx context.Context, g *removal, sessions []session) error {
	of := map[string]int64{} // the item of a session
	for _, s := range sessions {
		of[s.ID] = max(of[s.ID], s.Item)
		r.sessions[s.ID] = true
	}
	ids := slices.Sorted(maps.Keys(of))
	if !r.dry {
		if err := r.tx.lockReferences(ctx, r.tx); err != nil {
			return err
		}
	}
	docs := map[string]int64{} // the documents, with the item that they are counted with
	var document, id string
	if err := r.tx.each(
		ctx,
		"SELECT r.documentid, r.sessionid FROM tb_dm_session_reference AS r WHERE "+r.tx.among(
			"r.sessionid",
			"@ids",
		)+" AND r.documentid IS NOT NULL"+r.locking(),
		args{"ids": ids},
		[]any{&document, &id},
		func() { docs[document] = max(docs[document], of[id]) },
	); err != nil {
		return fmt.Errorf("tb_dm_session_reference: %w", err)
	}
	var other sql.NullString
	kept := map[string]bool{} // by sessions that stay
	if err := r.tx.each(
		ctx,
		"SELECT r.documentid, r.sessionid FROM tb_dm_session_reference AS r WHERE "+r.tx.among(
			"r.documentid",
			"@docs",
		)+r.locking(),
		args{"docs": slices.Sorted(maps.Keys(docs))},
		[]any{
			&document,
			&other,
		},
		func() { kept[document] = kept[document] || !other.Valid || !r.sessions[other.String] },
	); err != nil {
		return fmt.Errorf("tb_dm_session_reference: %w", err)
	}
	free := slices.DeleteFunc(slices.Sorted(maps.Keys(docs)), func(doc string) bool { return kept[doc] })
	remove := func(m doomed, list []string, of map[string]int64) error {
		counts, err := r.remove(ctx, m, args{"list": list})
		for key, n := range counts {
			g.add(m.table, of[key], n)
		}
		return err
	}
	if err := remove(
		doomed{"tb_dm_session_reference", r.tx.among("r.sessionid", "@list"), "r.sessionid"},
		ids,
		of,
	); err != nil {
		return err
	}
	counts, err := r.unreferenced(ctx, free)
	if err != nil {
		return err
	}
	for document, n := range counts {
		g.add("tb_dm_chunk", docs[document], n)
	}
	return remove(doomed{"tb_dm_deletion", r.tx.among("r.sessionid", "@list"), "r.sessionid"}, ids, of)
}

// unreferenced removes the chunks of documents whose references were removed, unless there are others by now, and
// counts them by document.
func (r *remover) unreferenced(ctx context.Context, documents []string) (map[string]int64, error) {
	const table = "tb_dm_chunk"
	where, a := r.tx.among("r.documentid", "@documents"), args{"documents": documents}
	if !r.dry {
		where += " AND NOT EXISTS (SELECT 1 FROM tb_dm_session_reference AS o WHERE " + r.tx.same(
			"o.documentid",
			"r.documentid",
		) + ")"
	}
	counts, err := r.remove(ctx, doomed{table, where, "r.documentid"}, a)
	if err != nil || r.dry {
		return counts, err
	}
	left, err := r.tx.texts(ctx, "SELECT r.documentid FROM "+table+" AS r WHERE "+where+" LIMIT 1", a)
	if err == nil && len(left) > 0 { // without its references nobody would find it again
		err = errKept
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	return counts, nil
}

// workflowTable is what the names of workflows' tables look like. No other one is touched, whatever the data says.
var workflowTable = regexp.MustCompile(`^tb_[0-9]+$`)

// workflowColumns are the columns of the tables of workflows whose names match, in a database that has them: no name
// from data is used that is not in the catalog. known reports whether a name does.
func workflowColumns(
	ctx context.Context,
	tx *transaction,
	match func(name string) bool,
) (columns []column, known bool, err error) {
	var name, table string
	var tables []string
	if err := tx.each(
		ctx,
		"SELECT name, database_table FROM omd_object_type WHERE name IS NOT NULL AND database_table IS NOT NULL",
		nil,
		[]any{&name, &table},
		func() {
			matches := match(name)
			known = known || matches
			if matches && workflowTable.MatchString(table) && !slices.Contains(tables, table) {
				tables = append(tables, table)
			}
		},
	); err != nil {
		return nil, false, err
	}
	columns, err = tx.columns(ctx, tx, tables)
	has := map[string]bool{}
	for _, c := range columns {
		has[c.Table] = has[c.Table] || c.Name == instanceColumn
	}
	return slices.DeleteFunc(columns, func(c column) bool { return !has[c.Table] }), known, err
}

// instances removes process instances that have ended and are locked: their rows in the workflows' tables, their tasks,
// and themselves.
func (r *remover) instances(ctx context.Context, ids []int64, inDatabase bool) (*removal, error) {
	g := &removal{rows: map[int64]Rows{}}
	if len(ids) == 0 {
		return g, nil
	}
	columns, _, err := workflowColumns(ctx, r.tx, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	for _, c := range columns {
		if c.Name != instanceColumn {
			continue
		}
		counts, err := r.remove(ctx, doomed{c.Quoted, r.tx.ids(c, ids), "r." + r.tx.quote(c.Name)}, nil)
		if err != nil {
			return nil, err
		}
		for key, n := range counts {
			g.add(c.Table, idOf(key), n)
		}
	}
	items := map[int64]int64{}
	var task, instance int64
	lock := " FOR UPDATE"
	if r.dry {
		lock = ""
	}
	if err := r.tx.each(
		ctx,
		"SELECT id, process_instance_id FROM tb_task WHERE process_instance_id IN (@ids) ORDER BY id"+lock,
		args{"ids": ids},
		[]any{&task, &instance},
		func() {
			items[task] = instance
		},
	); err != nil {
		return nil, err
	}
	if err := r.tasks(ctx, g, items, ids); err != nil {
		return nil, err
	}
	if inDatabase {
		if err := r.documents(ctx, g, g.sessions); err != nil {
			return nil, err
		}
	}
	if err := r.removeFor(
		ctx,
		g,
		itself,
		doomed{
			"tb_assignment",
			"r.process_instance_id IN (@ids) AND (r.task_id IN (@tasks)) IS NOT TRUE",
			"r.process_instance_id",
		},
		args{"ids": ids, "tasks": r.counted.tasks},
	); err != nil {
		return nil, err
	}
	if err := r.removeFor(
		ctx,
		g,
		itself,
		doomed{"tb_process_instance", "r.id IN (@ids)", "r.id"},
		args{"ids": ids},
	); err != nil {
		return nil, err
	}
	if r.dry {
		r.counted.instances = append(r.counted.instances, ids...)
	}
	return g, nil
}
