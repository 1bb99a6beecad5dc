package trash

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// uniqueKey has the quoted names of the columns of a unique key. A row of the trash is named by its values as text:
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
		parts = append(parts, unquoted(k[i])+"="+*v)
	}
	return strings.Join(parts, ",")
}

// values returns the values in the name of a row; nil if the name lacks a column of the key. Text after a comma belongs
// to the value before it unless it begins with another column.
func (k uniqueKey) values(name string) []string {
	if len(k) == 1 {
		return []string{name}
	}
	values, last := make([]string, len(k)), -1
	var seen []int
	for _, part := range strings.Split(name, ",") {
		column, value, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(k, func(quoted string) bool { return unquoted(quoted) == strings.TrimSpace(column) })
		switch {
		case i >= 0 && !slices.Contains(seen, i):
			values[i], last, seen = value, i, append(seen, i)
		case last < 0:
			return nil
		default:
			values[last] += "," + part
		}
	}
	if len(seen) < len(k) {
		return nil
	}
	return values
}

func unquoted(name string) string {
	if inner, ok := strings.CutPrefix(name, `"`); ok {
		return strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `""`, `"`)
	}
	return name
}

// CheckNames fails if Restore.Keys cannot have one of the names.
func (e *Entry) CheckNames(ctx context.Context, db campaign.Querier, names []string) error {
	keys, err := uniqueKeys(ctx, db, e.Root)
	if err == nil {
		_, _, err = e.among(keys, names)
	}
	return err
}

// among returns the condition that a row t has one of the names, and its parameters, from $3.
func (e *Entry) among(keys []uniqueKey, names []string) (condition string, args []any, err error) {
	keys = e.named(keys)
	conditions := []string{"false"}
	for _, k := range slices.Backward(keys) { // the first may be of one column, of which any text is a value
		values := make([][]string, len(k)) // by column
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			row := k.values(name)
			for c, v := range row {
				values[c] = append(values[c], v)
			}
			return row != nil
		})
		if values[0] == nil {
			continue
		}
		var columns, parameters []string
		for c, v := range values {
			args = append(args, v)
			columns = append(columns, "t."+k[c]+"::text")
			parameters = append(parameters, fmt.Sprintf("$%d::text[]", len(args)+2))
		}
		conditions = append(conditions, fmt.Sprintf("(%s) IN (SELECT * FROM unnest(%s))", strings.Join(columns, ", "),
			strings.Join(parameters, ", ")))
	}
	if len(names) > 0 {
		return "", nil, failure.Field("keys", e.unnamed(keys, names[0]))
	}
	return "(" + strings.Join(conditions, " OR ") + ")", args, nil
}

// unnamed returns the error for a name that fits no key. It says how rows are named.
func (e *Entry) unnamed(keys []uniqueKey, name string) string {
	if len(keys) == 0 {
		return fmt.Sprintf("cannot be given: %s has no unique key", e.Root)
	}
	var forms []string
	for _, k := range keys {
		var columns []string
		for _, c := range k {
			columns = append(columns, unquoted(c)+"=VALUE")
		}
		forms = append(forms, strings.Join(columns, ","))
	}
	return fmt.Sprintf("has %q, but a row of %s is %s", name, e.Root, strings.Join(forms, " or "))
}
