package forms

import (
	"context"
	"database/sql"
)

// dialect has the differences between the databases that a Forms server may use. Another one, such as Oracle, needs
// another implementation: how to compare texts exactly, how to delete rows and learn their keys, what to lock so that
// other sessions cannot add a reference to a document, and which tables and columns exist.
type dialect interface {
	// parameter returns the nth parameter of a statement, from 1.
	parameter(n int) string
	// literal quotes a text.
	literal(text string) string
	// Quote quotes the name of a table or column.
	Quote(name string) string
	// OwnTable returns the name of one of the service's own tables.
	OwnTable(table string) string
	// schema returns the statements that create the service's own tables if they do not exist.
	schema() []string

	// In returns the condition that a text column equals one of a list, exactly; Same that two columns are equal.
	In(column, list string) string
	Same(a, b string) string
	// HasID returns the condition that a column of any type holds one of the ids.
	HasID(c Column, ids []int64) string
	// Contains returns a condition that rows with @user in a column satisfy, and the value that must be compared again,
	// since the condition may be too wide. ok is false for columns that cannot be searched.
	Contains(c Column) (condition, value string, ok bool)

	// Before returns the condition that the date in a column of r is before @cutoff, in seconds since 1970. Dates
	// before 1970 stand for no date. Seconds returns the date in these seconds.
	Before(c Column) string
	Seconds(c Column) string

	// missing returns the tables that do not exist.
	missing(ctx context.Context, tx *Transaction, tables []string) ([]string, error)
	// tablesLike returns the tables where tb_process_instance is whose names in lower case are some names.
	tablesLike(ctx context.Context, tx *Transaction, names []string) ([]string, error)
	// columns returns the columns of the tables that exist where tb_process_instance does, in order.
	columns(ctx context.Context, tx *Transaction, tables []string) ([]Column, error)

	// settings returns the statements that begin a transaction that erases, after isolation.
	settings() []string
	isolation() sql.IsolationLevel
	// delete deletes rows and counts them by key.
	delete(ctx context.Context, tx *Transaction, table, condition, key string, a Args) (map[string]int64, error)
	// LockClause ends a query whose result decides what to delete, so that other sessions cannot add rows to it until
	// the transaction ends. lockReferences does the same for references to documents where the clause is not enough.
	LockClause() string
	lockReferences(ctx context.Context, tx *Transaction) error

	// Transient reports whether a transaction may succeed when it is tried again.
	Transient(err error) bool
	// Lost reports whether a database, Forms or the record of erasures, is currently unusable.
	Lost(err error) bool
	// duplicate reports whether another session has just created or inserted the same.
	duplicate(err error) bool
}
