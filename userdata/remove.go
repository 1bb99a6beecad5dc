package userdata

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// remover deletes rows, or counts what it would delete.
type remover struct {
	tx  pgx.Tx
	dry bool
	// counted is what a dry run has counted: it still exists and must not be counted again.
	counted struct{ instances, tasks []int64 }
	// sessions are those whose documents it should delete.
	sessions []string
}

// session is a session id, and the process instance or orphan task that its documents belong to.
type session struct {
	id   string
	item int64
}

// removal is what goes of some process instances or orphan tasks.
type removal struct {
	rows     map[int64]Rows // by item
	sessions []session      // whose documents must go, too
}

// add adds rows of a table, counted by item.
func (g *removal) add(table string, counts map[int64]int64) {
	for item, n := range counts {
		if g.rows[item] == nil {
			g.rows[item] = Rows{}
		}
		g.rows[item][table] += n
	}
}

// total is all of its rows.
func (g *removal) total() Rows {
	total := Rows{}
	for _, rows := range g.rows {
		total.add(rows)
	}
	return total
}

// doomed says which rows of a table go, and by which number they are counted. The table's alias is r; it is joined with another
// relation unless with is empty.
type doomed struct{ table, with, where, key string }

// remove deletes the rows that it says, and counts them by their key.
func (r *remover) remove(ctx context.Context, m doomed, args ...any) (map[int64]int64, error) {
	from, also := m.table+" AS r", ""
	if m.with != "" {
		from, also = from+", "+m.with, " USING "+m.with
	}
	sql := fmt.Sprintf("SELECT %s AS key FROM %s WHERE %s", m.key, from, m.where)
	if !r.dry {
		sql = fmt.Sprintf("DELETE FROM %s AS r%s WHERE %s RETURNING %s AS key", m.table, also, m.where, m.key)
	}
	rows, err := r.tx.Query(ctx, "WITH gone AS ("+sql+") SELECT COALESCE(key, 0), count(*) FROM gone GROUP BY key", args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.table, err)
	}
	counts := map[int64]int64{}
	var key, n int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		counts[key] += n
		return nil
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", m.table, err)
	}
	return counts, nil
}

// optional are the tables about tasks that not every version has.
var optional = []string{"tb_task_acl", "tb_task_attachment"}

// there are the tables of some that exist.
func there(ctx context.Context, tx pgx.Tx, tables []string) ([]string, error) {
	return collect(ctx, tx, pgx.RowTo[string], "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NOT NULL", tables)
}

// tasks removes locked tasks with everything that depends on them. items says of which process instance each task is, or that it is
// an orphan, by its own id; instances are what tb_task says.
func (r *remover) tasks(ctx context.Context, g *removal, items map[int64]int64, instances []int64) error {
	ids := slices.Sorted(maps.Keys(items))
	remove := func(m doomed, args ...any) error {
		byTask, err := r.remove(ctx, m, args...)
		for task, n := range byTask {
			g.add(m.table, map[int64]int64{items[task]: n})
		}
		return err
	}
	tables, err := there(ctx, r.tx, optional)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := remove(doomed{table: table, where: "r.task_id = ANY ($1)", key: "r.task_id::bigint"}, ids); err != nil {
			return err
		}
	}
	if err := r.formData(ctx, g, items); err != nil {
		return err
	}
	if err := remove(doomed{table: "tb_assignment", where: "r.task_id = ANY ($1) AND (r.process_instance_id <> ALL ($2)) IS NOT FALSE", key: "r.task_id::bigint"}, ids, r.counted.instances); err != nil {
		return err
	}
	if r.dry {
		r.counted.tasks = append(r.counted.tasks, ids...)
	}
	return remove(doomed{table: "tb_task", where: "r.id = ANY ($1) AND r.process_instance_id = ANY ($2)", key: "r.id::bigint"}, ids, instances)
}

// formData removes the form data of tasks, and adds the sessions of their documents. It deletes exactly what it has read: form data
// that came a moment later would otherwise be deleted without its documents.
func (r *remover) formData(ctx context.Context, g *removal, items map[int64]int64) error {
	sql := "SELECT task_id::bigint AS task, id::bigint AS id FROM tb_form_data AS r WHERE task_id = ANY ($1)"
	if !r.dry {
		sql = "DELETE FROM tb_form_data AS r WHERE task_id = ANY ($1) RETURNING task_id::bigint AS task, id::bigint AS id"
	}
	ids := slices.Sorted(maps.Keys(items))
	rows, err := r.tx.Query(ctx, sql, ids)
	if err != nil {
		return fmt.Errorf("tb_form_data: %w", err)
	}
	var task, id int64
	if _, err := pgx.ForEachRow(rows, []any{&task, &id}, func() error {
		g.add("tb_form_data", map[int64]int64{items[task]: 1})
		g.sessions = append(g.sessions, session{fmt.Sprintf("_wftask%d", id), items[task]}, session{fmt.Sprintf("_wftaskformid%d", id), items[task]})
		return nil
	}); err != nil {
		return fmt.Errorf("tb_form_data: %w", err)
	}
	for _, task := range ids { // attachments need no form data
		g.sessions = append(g.sessions, session{fmt.Sprintf("_wfattach%d", task), items[task]})
	}
	return nil
}

// documents removes the documents of sessions from the storage in the database, unless another session refers to them.
// Meanwhile nobody can add such a reference. One that several items share is counted with the last of these.
func (r *remover) documents(ctx context.Context, g *removal, sessions []session) error {
	if len(sessions) == 0 {
		return nil
	}
	if !r.dry {
		if _, err := r.tx.Exec(ctx, "LOCK TABLE tb_dm_session_reference IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
	}
	ids, items := make([]string, len(sessions)), make([]int64, len(sessions))
	for i, s := range sessions {
		ids[i], items[i] = s.id, s.item
	}
	r.sessions = append(r.sessions, ids...)
	const (
		given    = "(SELECT id, max(item) AS item FROM unnest($1::text[], $2::bigint[]) AS u (id, item) GROUP BY id) AS s"
		referred = "(SELECT o.documentid, max(s.item) AS item FROM tb_dm_session_reference AS o JOIN " + given + " ON o.sessionid = s.id GROUP BY o.documentid) AS d"
	)
	chunks := doomed{"tb_dm_chunk", referred, `r.documentid = d.documentid
		AND NOT EXISTS (SELECT FROM tb_dm_session_reference AS o WHERE o.documentid = r.documentid AND (o.sessionid <> ALL ($3)) IS NOT FALSE)`, "d.item"}
	gone, err := r.remove(ctx, chunks, ids, items, r.sessions)
	if err != nil {
		return err
	}
	g.add(chunks.table, gone)
	if !r.dry { // without its references nobody would find it again
		var left bool
		if err := r.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM tb_dm_chunk AS r, "+referred+" WHERE "+chunks.where+")", ids, items, r.sessions).Scan(&left); err != nil {
			return err
		}
		if left {
			return fmt.Errorf("tb_dm_chunk: %w", errKept)
		}
	}
	for _, table := range []string{"tb_dm_session_reference", "tb_dm_deletion"} {
		gone, err := r.remove(ctx, doomed{table, given, "r.sessionid = s.id", "s.item"}, ids, items)
		if err != nil {
			return err
		}
		g.add(table, gone)
	}
	return nil
}

// instances removes process instances that have ended and are locked: their rows in the workflows' tables, their tasks, and
// themselves.
func (r *remover) instances(ctx context.Context, ids []int64, inDatabase bool) (*removal, error) {
	g := &removal{rows: map[int64]Rows{}}
	type table struct {
		OID                uint32
		Name, Quoted, Type string
	}
	tables, err := collect(ctx, r.tx, pgx.RowToStructByPos[table], workflowTables+" ORDER BY name")
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
	}
	for _, t := range tables {
		gone, err := r.remove(ctx, doomed{table: t.Quoted, where: "r.process_instance_id = ANY ($1::text[]::" + t.Type + "[])", key: "r.process_instance_id::text::numeric::bigint"}, texts)
		if err != nil {
			return nil, err
		}
		g.add(t.Name, gone)
	}
	lock := " FOR UPDATE"
	if r.dry {
		lock = ""
	}
	rows, err := r.tx.Query(ctx, "SELECT id::bigint, process_instance_id::bigint FROM tb_task WHERE process_instance_id = ANY ($1) ORDER BY id"+lock, ids)
	if err != nil {
		return nil, err
	}
	items := map[int64]int64{}
	var task, instance int64
	if _, err := pgx.ForEachRow(rows, []any{&task, &instance}, func() error {
		items[task] = instance
		return nil
	}); err != nil {
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
	for _, m := range []struct {
		doomed
		args []any
	}{
		{doomed{table: "tb_assignment", where: "r.process_instance_id = ANY ($1) AND (r.task_id <> ALL ($2)) IS NOT FALSE", key: "r.process_instance_id::bigint"}, []any{ids, r.counted.tasks}},
		{doomed{table: "tb_process_instance", where: "r.id = ANY ($1)", key: "r.id::bigint"}, []any{ids}},
	} {
		gone, err := r.remove(ctx, m.doomed, m.args...)
		if err != nil {
			return nil, err
		}
		g.add(m.table, gone)
	}
	if r.dry {
		r.counted.instances = append(r.counted.instances, ids...)
	}
	return g, nil
}
