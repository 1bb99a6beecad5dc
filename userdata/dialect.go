package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// dialect is what differs between the databases that a Forms server may have. A further one, such as Oracle, is a
// further file: it says how to compare a text exactly, how to delete rows and learn which, what to lock so that nobody
// adds a reference to a document, and which tables and columns there are.
type dialect interface {
	// parameter is the nth parameter of a statement, from 1.
	parameter(n int) string
	// literal is a text in a statement, whatever it holds.
	literal(text string) string
	// quote is the name of a table or column in a statement.
	quote(name string) string
	// own is the name of a table of the service's own in the Forms database.
	own(table string) string
	// schema are the statements that create the service's own tables, where these do not exist.
	schema() []string

	// among is the condition that a column of texts holds one of a list, exactly, and same that two columns hold the
	// same.
	among(column, list string) string
	same(a, b string) string
	// ids is the condition that a column, of whatever type, holds one of some ids.
	ids(c column, ids []int64) string
	// holds is the condition that a column may hold @user, by its type, and the value to compare once more; ok reports
	// whether it can be searched.
	holds(c column) (condition, value string, ok bool)

	// before is the condition that a column of dates of r is before @cutoff, in seconds since 1970, and not before
	// then: such a date is none. seconds is its value as such.
	before(c column) string
	seconds(c column) string

	// lacking are the tables of some that do not exist.
	lacking(ctx context.Context, tx *transaction, tables []string) ([]string, error)
	// columns are those of the tables of a list that exist where tb_process_instance does, in their order.
	columns(ctx context.Context, tx *transaction, tables []string) ([]column, error)

	// settings are statements that a transaction that erases begins with, after isolation.
	settings() []string
	isolation() sql.IsolationLevel
	// remove deletes rows, and returns how many had each key.
	remove(ctx context.Context, tx *transaction, m doomed, a args) (map[string]int64, error)
	// locking is how a statement ends that reads what decides what is deleted, so that nobody adds to it until the
	// transaction ends, and lockReferences does the same for the references to documents where that is not enough.
	locking() string
	lockReferences(ctx context.Context, tx *transaction) error

	// transient reports whether a transaction may succeed when it is tried again, and lost whether an error means that
	// a database, this or that of the record, is currently unusable.
	transient(err error) bool
	lost(err error) bool
	// duplicate reports whether another session has just created or inserted the same.
	duplicate(err error) bool
}

// column is a column of a workflow's table.
type column struct {
	Table  string // as stored
	Quoted string // the table's name in a statement
	Name   string // as stored
	Type   string
	Cast   string // the type to compare an id in
	Number bool   // it holds numbers
	Date   bool   // it holds dates
}

// instancesTable is the table of the process instances.
const instancesTable = "tb_process_instance"

// instanceColumn is the column that says which process instance a row of a workflow's table is of.
const instanceColumn = "process_instance_id"

// args are the arguments of a statement by name. Lists are written into it as literals; other values are parameters.
type args map[string]any

var argument = regexp.MustCompile(`@[a-z]+`)

// expand replaces the @names in a statement by its arguments. An empty list holds nothing: IN (NULL) is not true.
func expand(d dialect, statement string, a args) (string, []any) {
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

// transaction is one in the Forms database.
type transaction struct {
	*sql.Tx
	dialect
}

// exec executes a statement, and returns how many rows it changed.
func (t *transaction) exec(ctx context.Context, statement string, a args) (int64, error) {
	text, values := expand(t.dialect, statement, a)
	result, err := t.ExecContext(ctx, text, values...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// each calls fn for each row of a query, after it was read into variables.
func (t *transaction) each(ctx context.Context, statement string, a args, into []any, fn func()) error {
	text, values := expand(t.dialect, statement, a)
	rows, err := t.QueryContext(ctx, text, values...)
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

// texts are the rows of a query of one column.
func (t *transaction) texts(ctx context.Context, statement string, a args) (list []string, err error) {
	var text string
	err = t.each(ctx, statement, a, []any{&text}, func() { list = append(list, text) })
	return list, err
}

// counts reads rows of a key and a number of rows.
func (t *transaction) counts(ctx context.Context, statement string, a args) (map[string]int64, error) {
	counts := map[string]int64{}
	var key any
	var n int64
	err := t.each(ctx, statement, a, []any{&key, &n}, func() { counts[textOf(key)] += n })
	return counts, err
}

// textOf is a value of a column as a text; floating-point numbers without an exponent.
func textOf(value any) string {
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

// id is a number as columns of whatever type hold it.
var id = regexp.MustCompile(`^([0-9]{1,19})(\.0*)?$`)

// idOf is the id that a column holds; 0 if it holds none.
func idOf(value any) int64 {
	m := id.FindStringSubmatch(strings.TrimRight(textOf(value), " "))
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil { // too large
		return 0
	}
	return n
}
