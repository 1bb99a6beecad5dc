package forms

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Remover removes rows in one transaction; in a dry run, it only counts the rows that it would delete.
type Remover struct {
	tx  *Transaction
	dry bool
	// counted is what a dry run has already counted: the rows still exist, but must not be counted again.
	counted struct{ instances, tasks []int64 }
	// sessions are those whose documents were removed.
	sessions map[string]bool
}

func NewRemover(tx *Transaction, dryRun bool) *Remover {
	return &Remover{tx: tx, dry: dryRun, sessions: map[string]bool{}}
}

// ErrKept means that a row was not deleted.
var ErrKept = errors.New("a trigger or rule of its table prevents its deletion")

// Rows are deleted rows by table.
type Rows map[string]int64

func (r Rows) Add(other Rows) {
	for table, n := range other {
		r[table] += n
	}
}

// Session is a session and the process instance or orphan task that its documents belong to.
type Session struct {
	ID   string `json:"ID"`
	Item int64  `json:"Item"`
}

// Removal is what was removed for items, which are process instances or orphan tasks.
type Removal struct {
	Rows     map[int64]Rows // rows by item
	Sessions []Session      // the sessions of the items' documents
}

func newRemoval() *Removal { return &Removal{Rows: map[int64]Rows{}} }

func (g *Removal) add(table string, item, n int64) {
	if g.Rows[item] == nil {
		g.Rows[item] = Rows{}
	}
	g.Rows[item][table] += n
}

func (g *Removal) Items() (ids []int64) {
	for id, rows := range g.Rows {
		if len(rows) > 0 && id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (g *Removal) Total() Rows {
	total := Rows{}
	for _, rows := range g.Rows {
		total.Add(rows)
	}
	return total
}

// Instances removes process instances with their rows in the tables of workflows and their tasks. The process
// instances must have ended, and must be locked unless this is a dry run. With inDatabase, it also removes their
// documents.
func (r *Remover) Instances(ctx context.Context, ids []int64, inDatabase bool) (*Removal, error) {
	g := newRemoval()
	if len(ids) == 0 {
		return g, nil
	}
	if err := r.variables(ctx, g, ids); err != nil {
		return nil, err
	}
	tasks, err := r.tasksOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	if err := r.tasks(ctx, g, tasks, ids); err != nil {
		return nil, err
	}
	if inDatabase {
		if err := r.Documents(ctx, g, g.Sessions); err != nil {
			return nil, err
		}
	}
	unlessTaskCounted := "r.process_instance_id IN (@ids) AND (r.task_id IN (@tasks)) IS NOT TRUE"
	a := Args{"ids": ids, "tasks": r.counted.tasks}
	if err := r.removeItems(
		ctx, g, itself, "tb_assignment", unlessTaskCounted, "r.process_instance_id", a,
	); err != nil {
		return nil, err
	}
	if err := r.removeItems(ctx, g, itself, InstanceTable, "r.id IN (@ids)", "r.id", a); err != nil {
		return nil, err
	}
	if r.dry {
		r.counted.instances = append(r.counted.instances, ids...)
	}
	return g, nil
}

// variables removes the rows of the process instances in the tables of workflows. It fails if they have rows in a
// table that may belong to a workflow but whose name is ambiguous.
func (r *Remover) variables(ctx context.Context, g *Removal, ids []int64) error {
	columns, _, err := r.tx.WorkflowColumns(ctx, func(string) bool { return true })
	if err != nil {
		return err
	}
	for _, c := range columns {
		if !c.Instance {
			continue
		}
		if c.Ambiguous {
			if err := r.requireNone(ctx, c, ids); err != nil {
				return err
			}
			continue
		}
		counts, err := r.remove(ctx, c.Quoted, r.tx.HasID(c, ids), "r."+r.tx.Quote(c.Name), nil)
		if err != nil {
			return err
		}
		for key, n := range counts {
			g.add(c.Table, ID(key), n)
		}
	}
	return nil
}

// errAmbiguous means that several tables match the name of a workflow's table, so that the right one is unknown.
var errAmbiguous = failure.New(
	failure.Precondition,
	"several tables have the name of a workflow's table, in upper and lower case; write it in omd_object_type as the "+
		"table of the workflow is spelled",
)

func (r *Remover) requireNone(ctx context.Context, c Column, ids []int64) error {
	rows, err := r.tx.counts(ctx, "SELECT 1, count(*) FROM "+c.Quoted+" AS r WHERE "+r.tx.HasID(c, ids), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Quoted, err)
	}
	if n := rows["1"]; n > 0 {
		return fmt.Errorf("%d rows of it are in %s: %w", n, c.Quoted, errAmbiguous)
	}
	return nil
}

// tasksOf locks the tasks of the process instances, and returns the process instance of each.
func (r *Remover) tasksOf(ctx context.Context, instances []int64) (map[int64]int64, error) {
	lock := " FOR UPDATE"
	if r.dry {
		lock = ""
	}
	tasks := map[int64]int64{}
	var task, instance int64
	query := "SELECT id, process_instance_id FROM tb_task WHERE process_instance_id IN (@ids) ORDER BY id" + lock
	read := func() { tasks[task] = instance }
	return tasks, r.tx.Each(ctx, query, Args{"ids": instances}, []any{&task, &instance}, read)
}

// Task is a task that is to be removed if it is an orphan: if it belongs to no process instance.
type Task struct {
	ID     int64
	Exists bool // in tb_task
	Left   bool // rows that depend on it are left although it does not exist
	// Instance is 0 if the task is an orphan, and nil if it is unknown whether it belongs to a process instance.
	Instance *int64
}

// Orphans removes orphan tasks. With inDatabase, it also removes their documents.
func (r *Remover) Orphans(ctx context.Context, orphans []Task, inDatabase bool) (*Removal, error) {
	g := newRemoval()
	items := map[int64]int64{}
	for _, o := range orphans {
		items[o.ID] = o.ID
		g.Rows[o.ID] = Rows{}
	}
	if err := r.tasks(ctx, g, items, []int64{0}); err != nil || !inDatabase {
		return g, err
	}
	return g, r.Documents(ctx, g, g.Sessions)
}

// FindTasks returns whether the tasks are orphans. The clause lock locks them. A dry run ignores tasks that it has
// already counted.
func (r *Remover) FindTasks(ctx context.Context, ids []int64, lock string) (tasks []Task, err error) {
	existing := map[int64]*int64{}
	query := "SELECT id, process_instance_id FROM tb_task WHERE id IN (@ids) AND (id IN (@counted)) IS NOT TRUE ORDER " +
		"BY id"
	a := Args{"ids": ids, "counted": r.counted.tasks}
	if err := r.readInstances(ctx, existing, query+lock, a); err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { _, exists := existing[id]; return exists })
	leftovers, err := r.leftovers(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		task := Task{ID: id}
		if task.Instance, task.Exists = existing[id]; !task.Exists {
			task.Instance, task.Left = leftovers[id]
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// leftovers returns the process instances of tasks that no longer exist but have left dependent rows, in the form of
// readInstances.
func (r *Remover) leftovers(ctx context.Context, ids []int64) (map[int64]*int64, error) {
	instances := map[int64]*int64{}
	if len(ids) == 0 {
		return instances, nil
	}
	tables, err := r.tx.existing(ctx, optionalTables)
	if err != nil {
		return nil, err
	}
	for _, table := range append(tables, "tb_form_data") {
		query := "SELECT DISTINCT task_id, 0 FROM " + table + " WHERE task_id IN (@ids)"
		if err := r.readInstances(ctx, instances, query, Args{"ids": ids}); err != nil {
			return nil, err
		}
	}
	query := "SELECT DISTINCT task_id, process_instance_id FROM tb_assignment WHERE task_id IN (@ids) AND " +
		"(process_instance_id IN (@counted)) IS NOT TRUE"
	a := Args{"ids": ids, "counted": r.counted.instances}
	return instances, r.readInstances(ctx, instances, query, a)
}

// readInstances sets the process instance of each task that the query returns: 0 for an orphan, nil if unknown. If
// the query returns several for a task, the greatest one counts.
func (r *Remover) readInstances(ctx context.Context, instances map[int64]*int64, query string, a Args) error {
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

// optionalTables are tables about tasks that some versions of Forms lack.
var optionalTables = []string{"tb_task_acl", "tb_task_attachment"}

// tasks removes locked tasks with everything that depends on them. items has the item of each task: its process
// instance, or the task itself if it is an orphan. instances are the allowed values of process_instance_id in
// tb_task.
func (r *Remover) tasks(ctx context.Context, g *Removal, items map[int64]int64, instances []int64) error {
	ids := slices.Sorted(maps.Keys(items))
	itemOf := func(task int64) int64 { return items[task] }
	tables, err := r.tx.existing(ctx, optionalTables)
	if err != nil {
		return err
	}
	a := Args{"ids": ids, "instances": instances, "counted": r.counted.instances}
	for _, table := range tables {
		if err := r.removeItems(ctx, g, itemOf, table, "r.task_id IN (@ids)", "r.task_id", a); err != nil {
			return err
		}
	}
	if err := r.formData(ctx, g, items); err != nil {
		return err
	}
	unlessCounted := "r.task_id IN (@ids) AND (r.process_instance_id IN (@counted)) IS NOT TRUE"
	if err := r.removeItems(ctx, g, itemOf, "tb_assignment", unlessCounted, "r.task_id", a); err != nil {
		return err
	}
	if r.dry {
		r.counted.tasks = append(r.counted.tasks, ids...)
	}
	ofInstances := "r.id IN (@ids) AND r.process_instance_id IN (@instances)"
	return r.removeItems(ctx, g, itemOf, "tb_task", ofInstances, "r.id", a)
}

// formData removes the tasks' form data, and adds the sessions of the tasks' documents. For form data, these are
// exactly the sessions of the rows that were deleted.
func (r *Remover) formData(ctx context.Context, g *Removal, items map[int64]int64) error {
	ids := slices.Sorted(maps.Keys(items))
	const key = "concat(r.id, ' ', r.task_id)"
	counts, err := r.remove(ctx, "tb_form_data", "r.task_id IN (@ids)", key, Args{"ids": ids})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		data, task, _ := strings.Cut(key, " ")
		item := items[ID(task)]
		g.add("tb_form_data", item, counts[key])
		g.Sessions = append(g.Sessions, Session{ID: "_wftask" + data, Item: item},
			Session{ID: "_wftaskformid" + data, Item: item})
	}
	for _, task := range ids { // attachments need no form data
		g.Sessions = append(g.Sessions, Session{ID: fmt.Sprintf("_wfattach%d", task), Item: items[task]})
	}
	return nil
}

// remove deletes rows, or only counts them in a dry run. It returns how many there were, by key.
func (r *Remover) remove(
	ctx context.Context, table, condition, key string, a Args,
) (counts map[string]int64, err error) {
	if r.dry {
		query := "SELECT %[1]s, count(*) FROM %[2]s AS r WHERE %[3]s GROUP BY %[1]s"
		counts, err = r.tx.counts(ctx, fmt.Sprintf(query, key, table, condition), a)
	} else {
		counts, err = r.tx.delete(ctx, r.tx, table, condition, key, a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	return counts, nil
}

// removeItems removes rows whose key is an id, and counts them for the item that itemOf returns for the id.
func (r *Remover) removeItems(
	ctx context.Context, g *Removal, itemOf func(id int64) int64, table, condition, key string, a Args,
) error {
	counts, err := r.remove(ctx, table, condition, key, a)
	for key, n := range counts {
		g.add(table, itemOf(ID(key)), n)
	}
	return err
}

func itself(id int64) int64 { return id }

// lockClause returns the end of a query whose result decides which rows are deleted.
func (r *Remover) lockClause() string {
	if r.dry {
		return ""
	}
	return r.tx.lockClause()
}

func (r *Remover) lockReferences(ctx context.Context) error {
	if r.dry {
		return nil
	}
	return r.tx.lockReferences(ctx, r.tx)
}

const (
	chunkTable     = "tb_dm_chunk"
	referenceTable = "tb_dm_session_reference"
)

const sessionsPerStatement = 1000

// Documents removes the documents of sessions, except those that other sessions refer to, and keeps such references
// from being added. It counts a document that several items share for the item with the highest id.
func (r *Remover) Documents(ctx context.Context, g *Removal, sessions []Session) error {
	for chunk := range slices.Chunk(sessions, sessionsPerStatement) {
		if err := r.documentsOf(ctx, g, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (r *Remover) documentsOf(ctx context.Context, g *Removal, sessions []Session) error {
	itemOf := map[string]int64{} // items by session
	for _, s := range sessions {
		itemOf[s.ID] = max(itemOf[s.ID], s.Item)
		r.sessions[s.ID] = true
	}
	ids := slices.Sorted(maps.Keys(itemOf))
	if err := r.lockReferences(ctx); err != nil {
		return err
	}
	items, err := r.unreferenced(ctx, ids, itemOf)
	if err != nil {
		return err
	}
	if err := r.sessionRows(ctx, g, referenceTable, ids, itemOf); err != nil {
		return err
	}
	counts, err := r.chunks(ctx, slices.Sorted(maps.Keys(items)))
	if err != nil {
		return err
	}
	for document, n := range counts {
		g.add(chunkTable, items[document], n)
	}
	return r.sessionRows(ctx, g, "tb_dm_deletion", ids, itemOf)
}

// unreferenced returns the documents that only removed sessions refer to, with the item for which each is counted.
func (r *Remover) unreferenced(
	ctx context.Context, sessions []string, itemOf map[string]int64,
) (items map[string]int64, err error) {
	items = map[string]int64{}
	var document, id string
	if err := r.tx.Each(
		ctx,
		"SELECT r.documentid, r.sessionid FROM tb_dm_session_reference AS r WHERE "+
			r.tx.in("r.sessionid", "@ids")+" AND r.documentid IS NOT NULL"+r.lockClause(),
		Args{"ids": sessions}, []any{&document, &id},
		func() { items[document] = max(items[document], itemOf[id]) },
	); err != nil {
		return nil, fmt.Errorf("%s: %w", referenceTable, err)
	}
	var session sql.NullString
	referenced := map[string]bool{}
	if err := r.tx.Each(
		ctx,
		"SELECT r.documentid, r.sessionid FROM tb_dm_session_reference AS r WHERE "+
			r.tx.in("r.documentid", "@documents")+r.lockClause(),
		Args{"documents": slices.Sorted(maps.Keys(items))}, []any{&document, &session},
		func() { referenced[document] = referenced[document] || !session.Valid || !r.sessions[session.String] },
	); err != nil {
		return nil, fmt.Errorf("%s: %w", referenceTable, err)
	}
	maps.DeleteFunc(items, func(document string, _ int64) bool { return referenced[document] })
	return items, nil
}

func (r *Remover) sessionRows(
	ctx context.Context, g *Removal, table string, sessions []string, itemOf map[string]int64,
) error {
	a := Args{"sessions": sessions}
	counts, err := r.remove(ctx, table, r.tx.in("r.sessionid", "@sessions"), "r.sessionid", a)
	for session, n := range counts {
		g.add(table, itemOf[session], n)
	}
	return err
}

// chunks removes the chunks of documents whose references were removed, unless there are new references by now. It
// counts rows by document.
func (r *Remover) chunks(ctx context.Context, documents []string) (map[string]int64, error) {
	where, a := r.tx.in("r.documentid", "@documents"), Args{"documents": documents}
	if !r.dry {
		where += " AND NOT EXISTS (SELECT 1 FROM tb_dm_session_reference AS o WHERE " +
			r.tx.same("o.documentid", "r.documentid") + ")"
	}
	counts, err := r.remove(ctx, chunkTable, where, "r.documentid", a)
	if err != nil || r.dry {
		return counts, err
	}
	left, err := r.tx.texts(ctx, "SELECT r.documentid FROM "+chunkTable+" AS r WHERE "+where+" LIMIT 1", a)
	if err == nil && len(left) > 0 { // without references, it could not be found again
		err = ErrKept
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", chunkTable, err)
	}
	return counts, nil
}

// References locks and returns the sessions that refer to the given documents in the database, by document. An
// unknown session is "".
func (r *Remover) References(ctx context.Context, documents []string) (map[string][]string, error) {
	if err := r.lockReferences(ctx); err != nil {
		return nil, err
	}
	condition := " AND " + r.tx.in("r.documentid", "@ids") + r.lockClause()
	return r.tx.references(ctx, condition, Args{"ids": documents})
}

// AllReferences returns the sessions that refer to any document, by document. An unknown session is "".
func (t *Transaction) AllReferences(ctx context.Context) (map[string][]string, error) {
	return t.references(ctx, "", nil)
}

func (t *Transaction) references(ctx context.Context, condition string, a Args) (map[string][]string, error) {
	sessions := map[string][]string{}
	var document, session string
	err := t.Each(
		ctx,
		"SELECT r.documentid, COALESCE(r.sessionid, '') FROM tb_dm_session_reference AS r WHERE r.documentid IS NOT "+
			"NULL"+condition,
		a, []any{&document, &session}, func() { sessions[document] = append(sessions[document], session) },
	)
	return sessions, err
}

// WithReferences removes documents together with the given references to them, and counts rows by document.
func (r *Remover) WithReferences(ctx context.Context, documents map[string][]string) (map[string]Rows, error) {
	ids := slices.Sorted(maps.Keys(documents))
	condition := r.tx.in("r.documentid", "@documents") + " AND " + r.tx.in("r.sessionid", "@sessions")
	references, err := r.remove(ctx, referenceTable, condition, "r.documentid", Args{
		"documents": ids,
		"sessions":  slices.Concat(slices.Collect(maps.Values(documents))...),
	})
	if err != nil {
		return nil, err
	}
	chunks, err := r.chunks(ctx, ids)
	if err != nil {
		return nil, err
	}
	rows := map[string]Rows{}
	for _, id := range ids {
		rows[id] = Rows{}
		if n := references[id]; n > 0 {
			rows[id][referenceTable] = n
		}
		if n := chunks[id]; n > 0 {
			rows[id][chunkTable] = n
		}
	}
	return rows, nil
}
