package userdata

import (
	"context"
	"fmt"

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

// remove deletes the rows of a table, with alias r, that match a condition, and counts them by a key.
func (r *remover) remove(ctx context.Context, table, key, where string, args ...any) (map[int64]int64, error) {
	sql := fmt.Sprintf("SELECT %[2]s AS key FROM %[1]s AS r WHERE %[3]s", table, key, where)
	if !r.dry {
		sql = fmt.Sprintf("DELETE FROM %s AS r WHERE %s RETURNING %s AS key", table, where, key)
	}
	rows, err := r.tx.Query(ctx, "WITH gone AS ("+sql+") SELECT COALESCE(key, 0), count(*) FROM gone GROUP BY key", args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	counts := map[int64]int64{}
	var id, n int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		counts[id] += n
		return nil
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	return counts, nil
}

// session is a session id and the task that it belongs to.
type session struct {
	id   string
	task int64
}

// idsOf are the ids of sessions.
func idsOf(sessions []session) (ids []string) {
	for _, s := range sessions {
		ids = append(ids, s.id)
	}
	return ids
}

// formData removes the form data of tasks, counts it by task, and returns the session ids of its documents. It deletes
// exactly what it has read: form data that came a moment later would otherwise be deleted without its documents.
func (r *remover) formData(ctx context.Context, tasks []int64) (counts map[int64]int64, sessions []session, err error) {
	sql := "SELECT task_id::bigint AS task, id::bigint AS id FROM tb_form_data WHERE task_id = ANY ($1)"
	if !r.dry {
		sql = "DELETE FROM tb_form_data WHERE task_id = ANY ($1) RETURNING task_id::bigint AS task, id::bigint AS id"
	}
	rows, err := r.tx.Query(ctx, "WITH gone AS ("+sql+") SELECT task, array_agg(id ORDER BY id) FROM gone GROUP BY task ORDER BY task", tasks)
	if err != nil {
		return nil, nil, fmt.Errorf("tb_form_data: %w", err)
	}
	counts = map[int64]int64{}
	var (
		task int64
		ids  []int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&task, &ids}, func() error {
		counts[task] = int64(len(ids))
		for _, id := range sessionsOf(task, ids...) {
			sessions = append(sessions, session{id, task})
		}
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("tb_form_data: %w", err)
	}
	return counts, sessions, nil
}

// tasks removes locked tasks of a process instance (0: orphans), with everything that depends on them. The rows of each
// are counted by table. The documents of the returned sessions must be deleted, too.
func (r *remover) tasks(ctx context.Context, instance int64, ids []int64) (counts map[int64]Rows, sessions []session, err error) {
	counts = map[int64]Rows{}
	for _, id := range ids {
		counts[id] = Rows{}
	}
	add := func(table string, gone map[int64]int64) {
		for id, n := range gone {
			counts[id][table] = n
		}
	}
	remove := func(table, key, where string, args ...any) error {
		gone, err := r.remove(ctx, table, key, where, args...)
		add(table, gone)
		return err
	}
	for _, table := range []string{"tb_task_acl", "tb_task_attachment"} {
		var exists bool
		if err := r.tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists); err != nil {
			return nil, nil, err
		}
		if !exists {
			continue
		}
		if err := remove(table, "r.task_id::bigint", "r.task_id = ANY ($1)", ids); err != nil {
			return nil, nil, err
		}
	}
	gone, sessions, err := r.formData(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	add("tb_form_data", gone)
	if err := remove("tb_assignment", "r.task_id::bigint", "r.task_id = ANY ($1) AND (r.process_instance_id <> ALL ($2)) IS NOT FALSE", ids, r.counted.instances); err != nil {
		return nil, nil, err
	}
	if r.dry {
		r.counted.tasks = append(r.counted.tasks, ids...)
	}
	return counts, sessions, remove("tb_task", "r.id::bigint", "r.id = ANY ($1) AND r.process_instance_id = $2", ids, instance)
}

// documents removes the documents of sessions from the storage in the database, unless another session refers to them.
// Meanwhile nobody can add such a reference.
func (r *remover) documents(ctx context.Context, sessions []string) (Rows, error) {
	if len(sessions) == 0 {
		return Rows{}, nil
	}
	if !r.dry {
		if _, err := r.tx.Exec(ctx, "LOCK TABLE tb_dm_session_reference IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return nil, err
		}
	}
	r.sessions = append(r.sessions, sessions...)
	counts := Rows{}
	for _, step := range []struct {
		table, where string
		args         []any
	}{
		{"tb_dm_chunk", `r.documentid IN (SELECT documentid FROM tb_dm_session_reference WHERE sessionid = ANY ($1))
			AND NOT EXISTS (SELECT FROM tb_dm_session_reference AS o WHERE o.documentid = r.documentid AND (o.sessionid <> ALL ($2)) IS NOT FALSE)`, []any{sessions, r.sessions}},
		{"tb_dm_session_reference", "r.sessionid = ANY ($1)", []any{sessions}},
		{"tb_dm_deletion", "r.sessionid = ANY ($1)", []any{sessions}},
	} {
		gone, err := r.remove(ctx, step.table, "0", step.where, step.args...)
		if err != nil {
			return nil, err
		}
		if step.table == "tb_dm_chunk" && !r.dry { // without its references nobody would find it again
			var left bool
			if err := r.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM tb_dm_chunk AS r WHERE "+step.where+")", step.args...).Scan(&left); err != nil {
				return nil, err
			}
			if left {
				return nil, fmt.Errorf("tb_dm_chunk: %w", errKept)
			}
		}
		if gone[0] > 0 {
			counts[step.table] = gone[0]
		}
	}
	return counts, nil
}

// instance removes a process instance that has ended and is locked: its rows in the workflows' tables, its tasks, and
// itself.
func (r *remover) instance(ctx context.Context, id int64, inDatabase bool) (counts Rows, sessions []session, err error) {
	counts = Rows{}
	add := func(name, table, where string, args ...any) error {
		gone, err := r.remove(ctx, table, "0", where, args...)
		if gone[0] > 0 {
			counts[name] += gone[0]
		}
		return err
	}
	type table struct {
		OID                uint32
		Name, Quoted, Type string
	}
	tables, err := collect(ctx, r.tx, pgx.RowToStructByPos[table], workflowTables+" ORDER BY name")
	if err != nil {
		return nil, nil, err
	}
	for _, t := range tables {
		if err := add(t.Name, t.Quoted, "r.process_instance_id = $1::text::"+t.Type, fmt.Sprint(id)); err != nil {
			return nil, nil, err
		}
	}
	lock := " FOR UPDATE"
	if r.dry {
		lock = ""
	}
	ids, err := collect(ctx, r.tx, pgx.RowTo[int64], "SELECT id::bigint FROM tb_task WHERE process_instance_id = $1 ORDER BY id"+lock, id)
	if err != nil {
		return nil, nil, err
	}
	byTask, sessions, err := r.tasks(ctx, id, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, gone := range byTask {
		counts.add(gone)
	}
	if inDatabase {
		gone, err := r.documents(ctx, idsOf(sessions))
		if err != nil {
			return nil, nil, err
		}
		counts.add(gone)
	}
	if err := add("tb_assignment", "tb_assignment", "r.process_instance_id = $1 AND (r.task_id <> ALL ($2)) IS NOT FALSE", id, r.counted.tasks); err != nil {
		return nil, nil, err
	}
	if r.dry {
		r.counted.instances = append(r.counted.instances, id)
	}
	return counts, sessions, add("tb_process_instance", "tb_process_instance", "r.id = $1", id)
}
