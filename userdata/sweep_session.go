package userdata

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/cleanupd/cleanupd/userdata/forms"
)

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

const idsPerQuery = 1000

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

// onlyDead returns the documents whose sessions are all confirmed and whose owners do not exist in this transaction
// either, with these sessions.
func onlyDead(
	ctx context.Context, tx *forms.Transaction, documents map[string][]string, confirmed map[string]bool,
) (map[string][]string, error) {
	stale := onlyOf(documents, confirmed)
	dead, err := deadSessions(ctx, tx, slices.Concat(slices.Collect(maps.Values(stale))...))
	return onlyOf(stale, dead), err
}
