package forms

import (
	"context"
	"database/sql"
)

// dialect covers the differences between the databases that a Forms server may use. To support another one, such as
// Oracle, it must be known how to compare texts exactly, how to delete rows and learn their keys, what to lock so
// that other sessions cannot add a reference to a document, and which tables and columns exist.
type dialect interface {
	// parameter returns the placeholder of the n-th parameter, counted from 1.
	parameter(n int) string
	literal(text string) string
	Quote(name string) string
	// OwnTable returns the full name of one of the service's own tables.
	OwnTable(table string) string
	// schema returns the statements that create the service's own tables if they do not exist.
	schema() []string

	// In returns the condition that a text column exactly equals an element of the list. Same returns the condition
	// that two text columns are exactly equal.
	In(column, list string) string
	Same(a, b string) string
	// HasID returns the condition that a column of any type holds one of the ids.
	HasID(c Column, ids []int64) string
	// Contains returns a condition that rows with @user in the column satisfy. The condition may be too wide, so the
	// caller must compare the returned value again. ok is false for columns that cannot be searched.
	Contains(c Column) (condition, value string, ok bool)

	// Before returns the condition that the date in a column of r is before @cutoff, in seconds since 1970. Dates
	// before 1970 count as no date. Seconds returns the expression of the date in such seconds.
	Before(c Column) string
	Seconds(c Column) string

	// missing returns those of the tables that do not exist.
	missing(ctx context.Context, tx *Transaction, tables []string) ([]string, error)
	// tablesLike returns the tables whose names in lower case are among names, in the schema of tb_process_instance.
	tablesLike(ctx context.Context, tx *Transaction, names []string) ([]string, error)
	// columns returns the columns of existing tables in the schema of tb_process_instance, in order.
	columns(ctx context.Context, tx *Transaction, tables []string) ([]Column, error)

	// settings returns the statements that begin a transaction that erases, whose isolation level is isolation.
	settings() []string
	isolation() sql.IsolationLevel
	// delete deletes the rows that satisfy the condition, and counts them by key.
	delete(ctx context.Context, tx *Transaction, table, condition, key string, a Args) (map[string]int64, error)
	// LockClause returns the end of a query whose result decides what to delete. It keeps other sessions from adding
	// rows to that result until the transaction ends. lockReferences does the same for references to documents where
	// the clause is not enough.
	LockClause() string
	lockReferences(ctx context.Context, tx *Transaction) error

	// Transient reports whether a transaction that failed may succeed when it is tried again.
	Transient(err error) bool
	// Lost reports whether a database (Forms or the record of erasures) is currently unusable.
	Lost(err error) bool
	// duplicate reports whether another session has just created or inserted the same thing.
	duplicate(err error) bool
}
