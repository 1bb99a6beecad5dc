package forms

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

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
			r.tx.In("r.sessionid", "@ids")+" AND r.documentid IS NOT NULL"+r.lockClause(),
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
			r.tx.In("r.documentid", "@documents")+r.lockClause(),
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
	counts, err := r.remove(ctx, table, r.tx.In("r.sessionid", "@sessions"), "r.sessionid", a)
	for session, n := range counts {
		g.add(table, itemOf[session], n)
	}
	return err
}

// chunks removes the chunks of documents whose references were removed, unless there are new references by now. It
// counts rows by document.
func (r *Remover) chunks(ctx context.Context, documents []string) (map[string]int64, error) {
	where, a := r.tx.In("r.documentid", "@documents"), Args{"documents": documents}
	if !r.dry {
		where += " AND NOT EXISTS (SELECT 1 FROM tb_dm_session_reference AS o WHERE " +
			r.tx.Same("o.documentid", "r.documentid") + ")"
	}
	counts, err := r.remove(ctx, chunkTable, where, "r.documentid", a)
	if err != nil || r.dry {
		return counts, err
	}
	left, err := r.tx.Texts(ctx, "SELECT r.documentid FROM "+chunkTable+" AS r WHERE "+where+" LIMIT 1", a)
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
	condition := " AND " + r.tx.In("r.documentid", "@ids") + r.lockClause()
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
	condition := r.tx.In("r.documentid", "@documents") + " AND " + r.tx.In("r.sessionid", "@sessions")
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
