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

// Each reads each row of the query into the variables, and then calls fn.
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

// Counts runs a query that selects a key and a number, and returns the sums of the numbers by key.
func (t *Transaction) Counts(ctx context.Context, query string, a Args) (map[string]int64, error) {
	counts := map[string]int64{}
	var key any
	var n int64
	err := t.Each(ctx, query, a, []any{&key, &n}, func() { counts[Text(key)] += n })
	return counts, err
}

// Delete deletes the rows of the table that satisfy the condition, and counts them by key. The condition and the key
// refer to the table as r. The statement that deletes has the whole condition.
func (t *Transaction) Delete(ctx context.Context, table, condition, key string, a Args) (map[string]int64, error) {
	return t.delete(ctx, t, table, condition, key, a)
}

// LockReferences keeps other sessions from adding references to documents until the transaction ends, where the
// locks of LockClause do not prevent that.
func (t *Transaction) LockReferences(ctx context.Context) error { return t.lockReferences(ctx, t) }
