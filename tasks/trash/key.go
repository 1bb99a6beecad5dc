package trash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// uniqueKey has the quoted names of the columns of a unique key. A row of the trash is named by its values:
// VALUE of the first unique key of one column, or COLUMN=VALUE,COLUMN=VALUE of a longer one.
type uniqueKey []string

// uniqueSQL selects the columns of the unique keys of the table $1.
const uniqueSQL = `SELECT ARRAY(
    SELECT quote_ident(a.attname) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (n, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.place)
FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
  AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts
ORDER BY NOT i.indisprimary, i.indexrelid`

// uniqueKeys returns the unique keys of a table, the primary key first.
func uniqueKeys(ctx context.Context, db campaign.Querier, table string) ([]uniqueKey, error) {
	rows, _ := db.Query(ctx, uniqueSQL, table)
	return pgx.CollectRows(rows, pgx.RowTo[uniqueKey])
}

// named returns the unique keys by which rows of the entry can be named: the first one of a single column, if any, and
// all of several columns. The first in the result names rows.
func (e *Entry) named(keys []uniqueKey) (found []uniqueKey) {
	for _, k := range keys {
		switch {
		case !e.has(k):
		case len(k) > 1:
			found = append(found, k)
		case len(found) == 0 || len(found[0]) > 1:
			found = slices.Insert(found, 0, k)
		}
	}
	return found
}

// name returns how a row with these values is named; "" if one of them is NULL.
func (k uniqueKey) name(values []*string) string {
	var parts []string
	for i, v := range values {
		switch {
		case v == nil:
			return ""
		case len(k) == 1:
			return *v
		}
		parts = append(parts, flags.Unquote(k[i])+"="+*v)
	}
	return strings.Join(parts, ",")
}

// values returns the values in the name of a row; nil if the name lacks a column of the key. Text after a comma belongs
// to the value before it unless it begins with another column.
func (k uniqueKey) values(name string) []string {
	if len(k) == 1 {
		return []string{name}
	}
	parts, last := make([][]string, len(k)), -1 // of each value, between commas
	for part := range strings.SplitSeq(name, ",") {
		column, value, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(k, func(quoted string) bool { return flags.Unquote(quoted) == strings.TrimSpace(column) })
		switch {
		case i >= 0 && parts[i] == nil:
			parts[i], last = []string{value}, i
		case last < 0:
			return nil
		default:
			parts[last] = append(parts[last], part)
		}
	}
	var values []string
	for _, p := range parts {
		if p == nil {
			return nil
		}
		values = append(values, strings.Join(p, ","))
	}
	return values
}

// namedRows are rows named by the values of one unique key.
type namedRows struct {
	key    uniqueKey
	names  []string
	values [][]string // by column
}

// parse fails with a failure.Violations if the rows of the entry cannot be named so.
func (e *Entry) parse(keys []uniqueKey, names []string) (all []namedRows, err error) {
	keys = e.named(keys)
	for _, k := range slices.Backward(keys) { // the first may be of one column, of which any text is a value
		of := namedRows{key: k, values: make([][]string, len(k))}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			row := k.values(name)
			for c, v := range row {
				of.values[c] = append(of.values[c], v)
			}
			if row != nil {
				of.names = append(of.names, name)
			}
			return row != nil
		})
		if of.names != nil {
			all = append(all, of)
		}
	}
	if len(names) > 0 {
		return nil, failure.Field("keys", e.unnamed(keys, names[0]))
	}
	return all, nil
}

// table returns them as a table k with the columns name, c0, c1 and so on, and its parameters, from $first.
func (n namedRows) table(first int) (sql string, args []any) {
	parameters, columns := []string{fmt.Sprintf("$%d::text[]", first)}, []string{"name"}
	args = []any{n.names}
	for c, v := range n.values {
		args = append(args, v)
		parameters = append(parameters, fmt.Sprintf("$%d::text[]", first+c+1))
		columns = append(columns, fmt.Sprintf("c%d", c))
	}
	return fmt.Sprintf("unnest(%s) AS k (%s)", strings.Join(parameters, ", "), strings.Join(columns, ", ")), args
}

// same is the condition that a row t of the entry has the values of k.
func (n namedRows) same(e *Entry) string {
	var same []string
	for i, name := range n.key {
		same = append(same, equals(name, e.column(name).Kept, fmt.Sprintf("k.c%d", i)))
	}
	return strings.Join(same, " AND ")
}

// equals is the condition that a column of a row t has a value, which is a text: as a type that PostgreSQL comes with
// compares them, or if there is none, by their texts.
func equals(column, typ, value string) string {
	if typ == "" {
		return fmt.Sprintf("pg_catalog.num_nulls(t.%[1]s) = 0 AND pg_catalog.format('%%s', t.%[1]s) = %[2]s", column, value)
	}
	return fmt.Sprintf("t.%s OPERATOR(pg_catalog.=) %s::text::%s", column, value, typ)
}

// among returns the condition that a row t has one of the names, and its parameters, from $3.
func (e *Entry) among(keys []uniqueKey, names []string) (condition string, args []any, err error) {
	all, err := e.parse(keys, names)
	conditions := []string{"false"}
	for _, n := range all {
		values, more := n.table(len(args) + 3)
		args = append(args, more...)
		conditions = append(conditions, fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s)", values, n.same(e)))
	}
	return "(" + strings.Join(conditions, " OR ") + ")", args, err
}

// Missing returns those of the names that no row of the entries has, all of one table. It fails with a
// failure.Violations if the rows cannot be named so. There is no index: each entry may take up to limit.
func Missing(
	ctx context.Context, pool *pgxpool.Pool, entries []Entry, names []string, limit time.Duration,
) (missing []string, err error) {
	missing = names
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = %d",
			limit.Milliseconds()))
		for i := 0; i < len(entries) && err == nil; i++ {
			missing, err = entries[i].without(ctx, tx, missing)
		}
		return err
	})
	return missing, err
}

// without returns those of the names that no row of the entry has.
func (e *Entry) without(ctx context.Context, tx pgx.Tx, names []string) (missing []string, err error) {
	keys, err := uniqueKeys(ctx, tx, e.Root)
	if err != nil {
		return nil, err
	}
	all, err := e.parse(keys, names)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		values, args := n.table(1)
		typed := make([]string, len(n.key))
		for i, name := range n.key {
			typed[i] = fmt.Sprintf("k.c%d::%s", i, e.column(name).Kept)
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("SELECT %s FROM %s", strings.Join(typed, ", "), values), args...)
		switch {
		case strings.HasPrefix(sqlstate.Of(err), "22"):
			return nil, failure.Field("keys", "has a value that its column cannot have: "+purge.Message(err))
		case err != nil:
			return nil, err
		}
		rows, _ := tx.Query(ctx, fmt.Sprintf("SELECT k.name FROM %s WHERE NOT EXISTS (SELECT FROM %s AS t WHERE %s)", values,
			e.table(), n.same(e)), args...)
		more, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		missing = append(missing, more...)
	}
	return missing, nil
}

// unnamed returns the error for a name that fits no key. It says how rows are named.
func (e *Entry) unnamed(keys []uniqueKey, name string) string {
	if len(keys) == 0 {
		return fmt.Sprintf("cannot be used: %s has no unique key", e.Root)
	}
	var forms []string
	for _, k := range keys {
		var columns []string
		for _, c := range k {
			columns = append(columns, flags.Unquote(c)+"=VALUE")
		}
		forms = append(forms, strings.Join(columns, ","))
	}
	return fmt.Sprintf("cannot parse %q as a row of %s: write %s", name, e.Root, strings.Join(forms, " or "))
}
