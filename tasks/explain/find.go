package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// row is a row of a relation.
type row struct {
	table *campaign.Table
	// relation is the quoted name of the table, or of the partition that has the row.
	relation string
	key      sqlexpr.Expr
	// zero is true for the zero record.
	zero bool
}

// keyColumn is one column of a key with its value.
type keyColumn struct{ name, value string }

// parseKey parses a key of a table.
func parseKey(t *campaign.Table, key string) (columns []keyColumn, err error) {
	if !strings.Contains(key, "=") {
		if t.Key == "" {
			return nil, fmt.Errorf(
				"%w: %s has no single integer key: give COLUMN=VALUE, several of them with commas", ErrKey, t.Name,
			)
		}
		return []keyColumn{{t.Key, key}}, nil
	}
	for part := range strings.SplitSeq(key, ",") {
		name, value, ok := strings.Cut(part, "=")
		if name = strings.ToLower(strings.TrimSpace(name)); !ok || !t.Has(name) {
			if last := len(columns) - 1; last >= 0 { // a text may have commas itself
				columns[last].value += "," + part
				continue
			}
			return nil, fmt.Errorf("%w: %.64q names no column of %s", ErrKey, part, t.Name)
		}
		columns = append(columns, keyColumn{name, value})
	}
	return columns, nil
}

// find returns the row with a key, which an index finds, or nil. It calls onText first if the key is a
// text.
func find(ctx context.Context, tx pgx.Tx, t *campaign.Table, key string, onText func() error) (*row, error) {
	columns, err := parseKey(t, key)
	if err != nil {
		return nil, err
	}
	r := &row{table: t, relation: t.Quoted()}
	hasText := false
	for _, c := range columns {
		value, sqlType, err := c.parse(ctx, tx, t)
		if err != nil {
			return nil, err
		}
		is := sqlexpr.Format("r.%s = %s", pgx.Identifier{c.name}.Sanitize(), sqlexpr.Arg(value, sqlType))
		r.key = sqlexpr.Join(" AND ", r.key, is)
		hasText = hasText || sqlType == "text"
		r.zero = r.zero || (c.name == t.Key && value == int64(0))
	}
	if err := checkIndexed(ctx, tx, t, columns); err != nil {
		return nil, err
	}
	if hasText {
		if len(columns) > 1 {
			return nil, fmt.Errorf("%w: a text may only be the whole key", ErrKey)
		}
		if err := onText(); err != nil {
			return nil, err
		}
	}
	oids, err := sqlexpr.Format(
		"SELECT r.tableoid::bigint FROM %s AS r WHERE %s LIMIT 2", t.Quoted(), r.key,
	).IDs(ctx, tx)
	switch {
	case err != nil || len(oids) == 0:
		return nil, err
	case len(oids) > 1:
		return nil, fmt.Errorf("%w: several rows of %s have it", ErrKey, t.Name)
	}
	for _, leaf := range t.Leaves {
		if int64(leaf.OID) == oids[0] {
			r.relation = leaf.Quoted()
		}
	}
	return r, nil
}

// parse returns the value of a column of a key, and the SQL type to compare it as: bigint, text or timestamptz.
func (c keyColumn) parse(ctx context.Context, tx pgx.Tx, t *campaign.Table) (value any, sqlType string, err error) {
	if err := tx.QueryRow(ctx, "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1 AND "+
		"attname = $2 AND NOT attisdropped", t.OID, c.name).
		Scan(&sqlType); err != nil {
		return nil, "", err
	}
	if t.HasInteger(c.name) {
		sqlType = "bigint"
	}
	switch sqlType {
	case "bigint":
		n, err := strconv.ParseInt(strings.TrimSpace(c.value), 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is an integer, and %.64q is none", ErrKey, c.name, c.value)
		}
		return n, "bigint", nil
	case "character varying", "text", "character":
		return c.value, "text", nil
	case "timestamp with time zone", "timestamp without time zone":
		at, err := time.Parse(time.RFC3339, c.value)
		if err != nil {
			return nil, "", fmt.Errorf(
				"%w: %s is a moment, as 2026-02-28T12:00:00.123Z, and %.64q is none", ErrKey, c.name, c.value,
			)
		}
		return at, "timestamptz", nil
	}
	return nil, "", fmt.Errorf("%w: %s is a %s: an integer, a text or a moment is expected", ErrKey, c.name, sqlType)
}

// checkIndexed fails with a refused.Error if no index begins with a column of the key, and with ErrKey if the columns
// are not the ones of a unique key: by other columns a caller could search for people. Without a unique key, and
// without a recipient, it accepts any columns. A table that is elsewhere may have its indexes there: it accepts only
// its own key.
func checkIndexed(ctx context.Context, tx pgx.Tx, t *campaign.Table, columns []keyColumn) error {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	slices.Sort(names)
	ownKey := len(names) == 1 && names[0] == t.Key
	if t.Elsewhere != "" {
		if !ownKey {
			return notUnique(t)
		}
		return nil
	}
	var indexed bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
		AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND a.attname = ANY ($2))`, t.OID, names).
		Scan(&indexed); err != nil {
		return err
	}
	if !indexed {
		return noIndex(t.Quoted(), t.Name+" has none that begins with a column of the key")
	}
	if ownKey {
		return nil
	}
	var unique, noUniqueKey bool
	if err := tx.QueryRow(ctx, `SELECT COALESCE(bool_or($2 = ARRAY(SELECT a.attname::text
		FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
		  WHERE k.place <= i.indnkeyatts ORDER BY a.attname::text COLLATE "C")), false), count(*) = 0
		FROM pg_index i WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
			AND i.indexprs IS NULL`, t.OID, names).
		Scan(&unique, &noUniqueKey); err != nil {
		return err
	}
	if !unique && (!noUniqueKey || t.Has("iRecipientId")) {
		return notUnique(t)
	}
	return nil
}

func notUnique(t *campaign.Table) error {
	return fmt.Errorf("%w: its columns must be those of a unique key of %s", ErrKey, t.Name)
}
