package execute

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/jackc/pgx/v5"
)

// foundRow is a row that is explained.
type foundRow struct {
	*Explainer
	tx       pgx.Tx
	table    *campaign.Table
	relation string          // that it is in
	key      purge.Condition // which one it is
	zero     bool            // it is the zero record
}

// equal is one column of a key with its value.
type equal struct{ column, value string }

// parseKey reads a key.
func parseKey(t *campaign.Table, key string) (all []equal, err error) {
	if !strings.Contains(key, "=") {
		if t.Key == "" {
			return nil, fmt.Errorf(
				"%w: %s has no single integer key: give COLUMN=VALUE, several of them with commas",
				ErrKey,
				t.Name,
			)
		}
		return []equal{{t.Key, key}}, nil
	}
	for part := range strings.SplitSeq(key, ",") {
		column, value, ok := strings.Cut(part, "=")
		if column = strings.ToLower(strings.TrimSpace(column)); !ok || !t.Has(column) {
			if last := len(all) - 1; last >= 0 { // a text may have commas itself
				all[last].value += "," + part
				continue
			}
			return nil, fmt.Errorf("%w: %.64q names no column of %s", ErrKey, part, t.Name)
		}
		all = append(all, equal{column, value})
	}
	return all, nil
}

// find returns the row with a key, which an index finds; nil if there is none. It calls byText first if the key is a
// text.
func (e *Explainer) find(ctx context.Context, tx pgx.Tx, key string, byText func() error) (*foundRow, error) {
	t, texts := e.table, 0
	columns, err := parseKey(t, key)
	if err != nil {
		return nil, err
	}
	r := &foundRow{Explainer: e, tx: tx, table: t}
	var conditions []string
	for _, c := range columns {
		var sqlType string
		if err := tx.QueryRow(ctx, "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1 AND "+
			"attname = $2 AND NOT attisdropped", t.OID, c.column).
			Scan(&sqlType); err != nil {
			return nil, err
		}
		switch {
		case slices.Contains([]string{"smallint", "integer", "bigint"}, sqlType):
			n, err := strconv.ParseInt(strings.TrimSpace(c.value), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%w: %s is an integer, and %.64q is none", ErrKey, c.column, c.value)
			}
			r.key.Args = append(r.key.Args, n)
			conditions = append(
				conditions,
				fmt.Sprintf("r.%s = $%d::bigint", pgx.Identifier{c.column}.Sanitize(), len(r.key.Args)),
			)
			r.zero = r.zero || (c.column == t.Key && n == 0)
		case slices.Contains([]string{"character varying", "text", "character"}, sqlType):
			texts++
			r.key.Args = append(r.key.Args, c.value)
			conditions = append(
				conditions,
				fmt.Sprintf("r.%s = $%d::text", pgx.Identifier{c.column}.Sanitize(), len(r.key.Args)),
			)
		case slices.Contains([]string{"timestamp with time zone", "timestamp without time zone"}, sqlType):
			at, err := time.Parse(time.RFC3339, c.value)
			if err != nil {
				return nil, fmt.Errorf(
					"%w: %s is a moment, as 2026-02-28T12:00:00.123Z, and %.64q is none",
					ErrKey,
					c.column,
					c.value,
				)
			}
			r.key.Args = append(r.key.Args, at)
			conditions = append(
				conditions,
				fmt.Sprintf("r.%s = $%d::timestamptz", pgx.Identifier{c.column}.Sanitize(), len(r.key.Args)),
			)
		default:
			return nil, fmt.Errorf(
				"%w: %s is a %s: an integer, a text or a moment is expected",
				ErrKey,
				c.column,
				sqlType,
			)
		}
	}
	r.key.Where = strings.Join(conditions, " AND ")
	if err := r.indexed(ctx, columns); err != nil {
		return nil, err
	}
	if texts > 0 {
		if len(columns) > 1 {
			return nil, fmt.Errorf("%w: a text may only be the whole key", ErrKey)
		}
		if err := byText(); err != nil {
			return nil, err
		}
	}
	rows, err := tx.Query(
		ctx,
		"SELECT r.tableoid::bigint FROM "+t.Quoted()+" AS r WHERE "+r.key.Where+" LIMIT 2",
		r.key.Args...)
	if err != nil {
		return nil, err
	}
	oids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	switch {
	case err != nil || len(oids) == 0:
		return nil, err
	case len(oids) > 1:
		return nil, fmt.Errorf("%w: several rows of %s have it", ErrKey, t.Name)
	}
	r.relation = t.Quoted()
	for _, leaf := range t.Leaves {
		if int64(leaf.OID) == oids[0] {
			r.relation = leaf.Quoted()
		}
	}
	return r, nil
}

// indexed fails with a RefusedError if no index begins with a column of the key, and with ErrKey if the columns are not
// those of a unique key: by other columns a caller could search for people. Where there is no unique key, and no
// recipient, any columns will do. A table that is elsewhere may have its indexes there: then only its own key will do.
func (r *foundRow) indexed(ctx context.Context, columns []equal) error {
	var names []string
	for _, c := range columns {
		names = append(names, c.column)
	}
	slices.Sort(names)
	own := len(names) == 1 && names[0] == r.table.Key
	if r.table.Elsewhere != "" {
		if !own {
			return notUnique(r.table)
		}
		return nil
	}
	var some bool
	if err := r.tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
		AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND a.attname = ANY ($2))`, r.table.OID, names).
		Scan(&some); err != nil {
		return err
	}
	if !some {
		return noIndex(r.table.Quoted(), r.table.Name+" has none that begins with a column of the key")
	}
	if own {
		return nil
	}
	var none bool
	if err := r.tx.QueryRow(ctx, `SELECT COALESCE(bool_or($2 = ARRAY(SELECT a.attname::text
		FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
		  WHERE k.place <= i.indnkeyatts ORDER BY a.attname::text COLLATE "C")), false), count(*) = 0
		FROM pg_index i WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
			AND i.indexprs IS NULL`, r.table.OID, names).
		Scan(&some, &none); err != nil {
		return err
	}
	if !some && (!none || r.table.Has("iRecipientId")) {
		return notUnique(r.table)
	}
	return nil
}

func notUnique(t *campaign.Table) error {
	return fmt.Errorf("%w: its columns must be those of a unique key of %s", ErrKey, t.Name)
}

// ask asks something about the row, as SQL over r, whose parameters come before those of the key.
func (r *foundRow) ask(ctx context.Context, dest any, sql string, args []any) error {
	return r.tx.QueryRow(
		ctx,
		fmt.Sprintf("SELECT %s FROM ONLY %s AS r WHERE %s", sql, r.relation, r.key.NumberedAfter(len(args))),
		slices.Concat(args, r.key.Args)...,
	).
		Scan(dest)
}
