package forms

import (
	"context"
	"database/sql"
)

type Transaction struct {
	dialect
	tx *sql.Tx
}

// Exec returns how many rows the statement changed.
func (t *Transaction) Exec(ctx context.Context, statement string, a Args) (int64, error) {
	text, values := expand(t.dialect, statement, a)
	result, err := t.tx.ExecContext(ctx, text, values...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// fn is called after a row was read into the variables.
func (t *Transaction) Each(ctx context.Context, query string, a Args, into []any, fn func()) error {
	text, values := expand(t.dialect, query, a)
	rows, err := t.tx.QueryContext(ctx, text, values...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		fn()
	}
	return rows.Err()
}

func (t *Transaction) Texts(ctx context.Context, query string, a Args) (list []string, err error) {
	var text string
	err = t.Each(ctx, query, a, []any{&text}, func() { list = append(list, text) })
	return list, err
}

// The query has a key and a number, which is summed by key.
func (t *Transaction) Counts(ctx context.Context, query string, a Args) (map[string]int64, error) {
	counts := map[string]int64{}
	var key any
	var n int64
	err := t.Each(ctx, query, a, []any{&key, &n}, func() { counts[Text(key)] += n })
	return counts, err
}

// The table has the alias r in the condition and the key, by which rows are counted. The deleting statement has the
// whole condition.
func (t *Transaction) Delete(ctx context.Context, table, condition, key string, a Args) (map[string]int64, error) {
	return t.delete(ctx, t, table, condition, key, a)
}

// Others cannot add references to documents until the transaction ends, where the locks that reading statements take by
// LockClause do not prevent it.
func (t *Transaction) LockReferences(ctx context.Context) error { return t.lockReferences(ctx, t) }
