package userdata

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Sessions returns the sessions whose documents the erasure must still delete.
func (e record) sessions(ctx context.Context, db external.Querier) ([]string, error) {
	const query = "SELECT session_id FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid ORDER BY session_id"
	rows, _ := db.Query(ctx, query, e.ID)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// addSessions adds sessions to the erasure. A session of an earlier erasure is moved to this one.
func (e record) addSessions(ctx context.Context, tx pgx.Tx, kind string, sessions []forms.Session) error {
	var ids []string
	var items []int64
	for _, s := range sessions {
		ids, items = append(ids, s.ID), append(items, s.Item)
	}
	_, err := e.exec(ctx, tx, `INSERT INTO cleanupd.erasure_session (session_id, erasure_id, kind, item_id, forms_id)
			SELECT s, $1::text::uuid, $2, i, $5 FROM unnest($3::text[], $4::bigint[]) AS u (s, i)
		ON CONFLICT (forms_id, session_id) DO UPDATE SET erasure_id = EXCLUDED.erasure_id`, kind, ids, items, e.FormsID)
	return err
}

// RemoveSessions removes sessions, whose documents have been deleted, except those in except.
func (e record) removeSessions(ctx context.Context, tx pgx.Tx, sessions, except []string) error {
	_, err := e.exec(ctx, tx, `DELETE FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid
		AND session_id = ANY ($2) AND session_id <> ALL ($3)`, sessions, append([]string{}, except...))
	return err
}

// Files returns the files that the erasure is about to delete.
func (e record) files(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, _ := tx.Query(ctx, "SELECT DISTINCT name FROM cleanupd.erasure_file WHERE erasure_id = $1::text::uuid", e.ID)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name []byte
		err := row.Scan(&name)
		return string(name), err
	})
}

// AddFiles records files before they are deleted, so that each is reported once, even after a crash.
func (e record) addFiles(ctx context.Context, tx pgx.Tx, names []string) error {
	const insert = "INSERT INTO cleanupd.erasure_file (erasure_id, name) SELECT $1::text::uuid, unnest($2::bytea[])"
	_, err := e.exec(ctx, tx, insert, asBytes(names))
	return err
}

// SettleFiles records that the files are no longer about to be deleted, with events that say what happened to them.
func (e record) settleFiles(ctx context.Context, tx pgx.Tx, names []string, events []Event) error {
	const settle = "DELETE FROM cleanupd.erasure_file WHERE erasure_id = $1::text::uuid AND name = ANY ($2)"
	if _, err := e.exec(ctx, tx, settle, asBytes(names)); err != nil {
		return err
	}
	return e.appendEvents(ctx, tx, events...)
}

// asBytes converts file names for a column of bytes, since they may not be valid UTF-8, as a text column requires.
func asBytes(names []string) [][]byte {
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = []byte(name)
	}
	return list
}
