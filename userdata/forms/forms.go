// Package forms accesses the database of an AEM Forms server, in PostgreSQL or MySQL: its transactions, tables and
// process instances, and the service's own tables there, which hold the ledger of erasures. The other packages of
// userdata write statements that both databases understand, with @names as arguments; a dialect provides the rest.
package forms

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Database is the database of a Forms server.
type Database struct {
	dialect
	db       *sql.DB
	close    func()
	identity string
}

// ErrNotForms means that tables of AEM Forms are missing in the database.
var ErrNotForms = failure.New(failure.Precondition, "this is not an AEM Forms database")

func (d *Database) Close() {
	_ = d.db.Close()
	d.close()
}

// Identity returns the id that Migrate gave to this database. An erasure is carried out only in the database for
// which it was requested.
func (d *Database) Identity() string { return d.identity }

// Snapshot runs fn in a read-only transaction that sees one state of the database.
func (d *Database) Snapshot(ctx context.Context, fn func(tx *Transaction) error) error {
	return d.begin(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, nil, fn)
}

// Change runs fn in a transaction that may erase, and commits it.
func (d *Database) Change(ctx context.Context, fn func(tx *Transaction) error) error {
	return d.begin(ctx, &sql.TxOptions{Isolation: d.isolation()}, d.settings(), fn)
}

// LockTimeout is how long a statement waits for a lock of the Forms server.
const LockTimeout = 5 * time.Second

func (d *Database) begin(
	ctx context.Context, options *sql.TxOptions, settings []string, fn func(tx *Transaction) error,
) error {
	tx, err := d.db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range settings {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := fn(&Transaction{d.dialect, tx}); err != nil {
		return err
	}
	return tx.Commit()
}

// MaxTries is how often a transaction is tried.
const MaxTries = 6

// Retry calls fn until it succeeds, fails with an error that is not transient, or has been tried tries times.
func Retry(ctx context.Context, tries uint, transient func(error) bool, fn func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := fn()
		if err != nil && !transient(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxTries(tries))
	return err
}

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

func (t *Transaction) texts(ctx context.Context, query string, a Args) (list []string, err error) {
	var text string
	err = t.Each(ctx, query, a, []any{&text}, func() { list = append(list, text) })
	return list, err
}

// counts runs a query that selects a key and a number, and returns the sums of the numbers by key.
func (t *Transaction) counts(ctx context.Context, query string, a Args) (map[string]int64, error) {
	counts := map[string]int64{}
	var key any
	var n int64
	err := t.Each(ctx, query, a, []any{&key, &n}, func() { counts[Text(key)] += n })
	return counts, err
}

// Args are the values of the @names in a statement. Lists of ids and texts become literals, other values parameters.
type Args map[string]any

var argument = regexp.MustCompile(`@[a-z]+`)

// expand replaces the @names in a statement by literals and parameters. An empty list becomes NULL, and IN (NULL) is
// never true.
func expand(d dialect, statement string, a Args) (string, []any) {
	var values []any
	text := argument.ReplaceAllStringFunc(statement, func(name string) string {
		value, ok := a[name[1:]]
		if !ok {
			panic("no argument " + name)
		}
		var list []string
		switch v := value.(type) {
		case []int64:
			for _, id := range v {
				list = append(list, strconv.FormatInt(id, 10))
			}
		case []string:
			for _, s := range v {
				list = append(list, d.literal(s))
			}
		default:
			values = append(values, value)
			return d.parameter(len(values))
		}
		if list == nil {
			return "NULL"
		}
		return strings.Join(list, ", ")
	})
	return text, values
}

// Text returns a value as text, with floating-point numbers written without an exponent.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// idPattern matches an id as columns of different types return it.
var idPattern = regexp.MustCompile(`^([0-9]{1,19})(\.0*)?$`)

// ID returns 0 if the value is not an id.
func ID(value any) int64 {
	m := idPattern.FindStringSubmatch(strings.TrimRight(Text(value), " "))
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil { // too large
		return 0
	}
	return n
}

// dialect covers the differences between the databases that a Forms server may use. To support another one, such as
// Oracle, it must be known how to compare texts exactly, how to delete rows and learn their keys, what to lock so
// that other sessions cannot add a reference to a document, and which tables and columns exist.
type dialect interface {
	// parameter returns the placeholder of the n-th parameter, counted from 1.
	parameter(n int) string
	literal(text string) string
	Quote(name string) string
	// ownTable returns the full name of one of the service's own tables.
	ownTable(table string) string
	// schema returns the statements that create the service's own tables if they do not exist.
	schema() []string

	// in returns the condition that a text column exactly equals an element of the list. same returns the condition
	// that two text columns are exactly equal.
	in(column, list string) string
	same(a, b string) string
	// HasID returns the condition that a column of any type holds one of the ids.
	HasID(c Column, ids []int64) string
	// Contains returns a condition that rows with @user in the column satisfy. The condition may be too wide, so the
	// caller must compare the returned value again. ok is false for columns that cannot be searched.
	Contains(c Column) (condition, value string, ok bool)

	// Before returns the condition that the date in a column of r is before @cutoff, in seconds since 1970. Dates
	// before 1970 count as no date. Seconds returns the expression of the date in such seconds.
	Before(c Column) string
	Seconds(c Column) string

	// missing returns the tables that do not exist.
	missing(ctx context.Context, tx *Transaction, tables []string) ([]string, error)
	// tablesLike returns the tables whose names in lower case are among names, in the schema of tb_process_instance.
	tablesLike(ctx context.Context, tx *Transaction, names []string) ([]string, error)
	// columns returns the columns of existing tables in the schema of tb_process_instance, in order.
	columns(ctx context.Context, tx *Transaction, tables []string) ([]Column, error)

	// settings returns the statements that begin a transaction that erases, whose isolation level is isolation.
	settings() []string
	isolation() sql.IsolationLevel
	// delete deletes the rows that satisfy the condition, and counts them by key. The condition and the key refer to
	// the table as r. The statement that deletes has the whole condition.
	delete(ctx context.Context, tx *Transaction, table, condition, key string, a Args) (map[string]int64, error)
	// lockClause returns the end of a query whose result decides what to delete. It keeps other sessions from adding
	// rows to that result until the transaction ends. lockReferences does the same for references to documents where
	// the clause is not enough.
	lockClause() string
	lockReferences(ctx context.Context, tx *Transaction) error

	// Transient reports whether a transaction that failed may succeed when it is tried again.
	Transient(err error) bool
	// Lost reports whether a database (Forms or the record of erasures) is currently unusable.
	Lost(err error) bool
	// duplicate reports whether another session has just created or inserted the same thing.
	duplicate(err error) bool
}
