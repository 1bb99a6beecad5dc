package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type row struct {
	table *campaign.Table
	// relation is the quoted name of the table, or of the row's partition.
	relation string
	key      sqlexpr.Expr
	zero     bool
}

// KeyColumn is a column of a key with its value.
type KeyColumn struct {
	// Column may be in upper or lower case; it is empty for the table's own integer key.
	Column string
	// Value is an integer, a UUID, a time as in RFC 3339, a day as 2026-02-28, or a text.
	Value string
}

func resolve(t *campaign.Table, key []KeyColumn) (columns []KeyColumn, err error) {
	for _, c := range key {
		name := strings.TrimSpace(c.Column)
		own, _ := t.SingleKey()
		switch {
		case name == "" && len(key) == 1 && cmp.Or(t.Key, own.Name) != "":
			name = cmp.Or(t.Key, own.Name)
		case name == "":
			return nil, fmt.Errorf("%w: give the columns of a unique key of %s with their values", ErrKey, t.Name)
		case !t.Has(name):
			return nil, fmt.Errorf("%w: %s has no column %.64q", ErrKey, t.Name, c.Column)
		}
		columns = append(columns, KeyColumn{t.Stored(name), c.Value})
	}
	return columns, nil
}

// find finds a row by its key, and returns nil if there is none. If the key is a text, it first calls onText.
func find(ctx context.Context, tx pgx.Tx, t *campaign.Table, key []KeyColumn, onText func() error) (*row, error) {
	if len(key) == 0 {
		return nil, missingKey(ctx, tx, t)
	}
	columns, err := resolve(t, key)
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
		is := sqlexpr.Format("r.%s = %s", pgx.Identifier{c.Column}.Sanitize(), sqlexpr.Arg(value, sqlType))
		r.key = sqlexpr.Join(" AND ", r.key, is)
		hasText = hasText || sqlType == "text"
		r.zero = r.zero || (c.Column == t.Key && value == int64(0))
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
	oids, err := sqlexpr.Format("SELECT r.tableoid::bigint FROM %s AS r WHERE %s LIMIT 2", t.Quoted(), r.key).IDs(ctx,
		tx)
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

var errNoKey = failure.Field("key", "is missing")

// missingKey returns errNoKey with the keys of the table.
func missingKey(ctx context.Context, tx pgx.Tx, t *campaign.Table) error {
	rows, _ := tx.Query(ctx, `SELECT string_agg(a.attname, ',' ORDER BY k.place)
		FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place), pg_attribute a
		WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
			AND k.place <= i.indnkeyatts AND a.attrelid = i.indrelid AND a.attnum = k.number
		GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indisprimary DESC, 1`, t.OID) // an error of the query is in rows
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if t.Key != "" && !slices.Contains(keys, t.Key) {
		keys = slices.Insert(keys, 0, t.Key)
	}
	for i, key := range keys {
		keys[i] = strings.ReplaceAll(key, ",", "=…,") + "=…"
	}
	if len(keys) == 0 {
		return fmt.Errorf("%w: %s has no unique key: give columns that an index begins with", errNoKey, t.Name)
	}
	return fmt.Errorf("%w: of %s give %s", errNoKey, t.Name, strings.Join(slices.Compact(keys), ", or "))
}

// parse converts the value of a key. sqlType is the type in which it is compared: bigint, uuid, date, timestamptz or
// text.
func (c KeyColumn) parse(ctx context.Context, tx pgx.Tx, t *campaign.Table) (value any, sqlType string, err error) {
	if err := tx.QueryRow(ctx, "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1 AND "+
		"attname = $2 AND NOT attisdropped", t.OID, c.Column).
		Scan(&sqlType); err != nil {
		return nil, "", err
	}
	if t.HasInteger(c.Column) {
		sqlType = "bigint"
	}
	switch sqlType {
	case "bigint":
		n, err := strconv.ParseInt(strings.TrimSpace(c.Value), 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is an integer, and %.64q is none", ErrKey, c.Column, c.Value)
		}
		return n, "bigint", nil
	case "uuid":
		id, err := uuid.Parse(strings.TrimSpace(c.Value))
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is a UUID, and %.64q is none", ErrKey, c.Column, c.Value)
		}
		return id.String(), "uuid", nil
	case "date":
		day, err := time.Parse(time.DateOnly, strings.TrimSpace(c.Value))
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is a day, as 2026-02-28, and %.64q is none", ErrKey, c.Column, c.Value)
		}
		return day.Format(time.DateOnly), "date", nil
	case "character varying", "text", "character":
		return c.Value, "text", nil
	case "timestamp with time zone", "timestamp without time zone":
		at, err := time.Parse(time.RFC3339, c.Value)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is a time, as 2026-02-28T12:00:00.123Z, and %.64q is none", ErrKey,
				c.Column, c.Value)
		}
		return at, "timestamptz", nil
	}
	return nil, "", fmt.Errorf("%w: %s is a %s: an integer, a UUID, a text, a day or a time is expected", ErrKey, c.Column,
		sqlType)
}

// checkIndexed fails with a refused.Error if no index begins with a column of the key, and with ErrKey if the
// columns are not those of a unique key: with other columns, a caller could search for people. If a table has
// neither a unique key nor a recipient, any columns are accepted. For a table whose rows are on another server,
// where its indexes may be, only the table's own key is accepted.
func checkIndexed(ctx context.Context, tx pgx.Tx, t *campaign.Table, columns []KeyColumn) error {
	var names []string
	for _, c := range columns {
		names = append(names, c.Column)
	}
	slices.Sort(names)
	ownKey := len(names) == 1 && names[0] == t.Key
	if t.Location != "" {
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
