package forms

import (
	"context"
	"database/sql"
)

// The differences between the databases that a Forms server may use. Another one, such as Oracle, needs another
// implementation: how to compare texts exactly, how to delete rows and learn their keys, what to lock so that other
// sessions cannot add a reference to a document, and which tables and columns exist.
type dialect interface {
	// From 1.
	parameter(n int) string
	literal(text string) string
	Quote(name string) string
	// One of the service's own tables.
	OwnTable(table string) string
	// Creates the service's own tables if they do not exist.
	schema() []string

	// In is the condition that a text column equals one of a list, exactly; Same that two columns are equal.
	In(column, list string) string
	Same(a, b string) string
	// The condition that a column of any type holds one of the ids.
	HasID(c Column, ids []int64) string
	// A condition that rows with @user in a column satisfy, and the value that must be compared again, since the condition
	// may be too wide. ok is false for columns that cannot be searched.
	Contains(c Column) (condition, value string, ok bool)

	// Before is the condition that the date in a column of r is before @cutoff, in seconds since 1970. Dates before 1970
	// stand for no date. Seconds is the date in these seconds.
	Before(c Column) string
	Seconds(c Column) string

	// Tables that do not exist.
	missing(ctx context.Context, tx *Transaction, tables []string) ([]string, error)
	// Tables where tb_process_instance is whose names in lower case are some names.
	tablesLike(ctx context.Context, tx *Transaction, names []string) ([]string, error)
	// Of tables that exist where tb_process_instance does, in order.
	columns(ctx context.Context, tx *Transaction, tables []string) ([]Column, error)

	// These begin a transaction that erases, after isolation.
	settings() []string
	isolation() sql.IsolationLevel
	// Rows are counted by key.
	delete(ctx context.Context, tx *Transaction, table, condition, key string, a Args) (map[string]int64, error)
	// LockClause ends a query whose result decides what to delete, so that other sessions cannot add rows to it until the
	// transaction ends. lockReferences does the same for references to documents where the clause is not enough.
	LockClause() string
	lockReferences(ctx context.Context, tx *Transaction) error

	// A transaction may succeed when it is tried again.
	Transient(err error) bool
	// A database, Forms or the record of erasures, is currently unusable.
	Lost(err error) bool
	// Another session has just created or inserted the same.
	duplicate(err error) bool
}
