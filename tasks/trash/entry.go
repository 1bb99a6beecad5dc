package trash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Entry is what the trash keeps of one relation, for one task of a run.
type Entry struct {
	ID      int64
	Run     string
	Task    string
	Kind    Kind
	Root    string // quoted, with its schema: where the rows belong
	Name    string // of the table in Schema
	Columns []column
	Rows    int64 // now in the trash
	Bytes   int64 // with the indexes of a dropped table
	Created time.Time
	Expires *time.Time // nil until its run ends
	// Table is Root as a schema and a name. For a dropped partition, Parent is the table that it was a partition of, and
	// Top the root of the partition tree, which may be Parent; otherwise both are nil.
	Table, Parent, Top []string
	// Gone is set if the rows' table no longer exists under that name.
	Gone bool
}

// Of reports whether the entry's rows are from a table or one of its partitions, named with or without its schema.
func (e Entry) Of(table string) bool {
	is := func(name []string) bool {
		return name != nil && campaign.Names(table, name[0], name[1])
	}
	return is(e.Table) || is(e.Parent) || is(e.Top)
}

// IsOf reports whether the entry is of a relation, or of a partition of it.
func (e Entry) IsOf(schema, name string) bool {
	table := []string{schema, name}
	return slices.Equal(e.Table, table) || slices.Equal(e.Parent, table) || slices.Equal(e.Top, table)
}

// Belongs is the quoted name of the table to which the rows belong. For a dropped partition it is the root of the
// partition tree.
func (e Entry) Belongs() string {
	if e.Top != nil {
		return quoted(e.Top...)
	}
	return e.Root
}

// RowsLeft is the SQL of how many rows of an entry, a row of cleanupd.trash, are in the trash.
const RowsLeft = "rows_trashed - rows_restored - rows_purged - rows_expired"

// selectEntries selects the entries of the run $1, or of all runs if it is "".
const selectEntries = `SELECT id, run_id::text, task, kind, root, name, columns, ` + RowsLeft + `,
  COALESCE(pg_total_relation_size(to_regclass('cleanupd_trash.' || name)), 0), create_time, expire_time,
  parse_ident(root), parse_ident(relation ->> 'parent'), parse_ident(relation ->> 'top'),
  kind = 'ROWS' AND to_regclass(root) IS NULL
FROM cleanupd.trash WHERE end_time IS NULL AND ($1::text = '' OR run_id::text = $1)`

// Entries returns the entries of a run, or of all runs if run is "", in the order of deletion.
func Entries(ctx context.Context, db campaign.Querier, run string) ([]Entry, error) {
	rows, _ := db.Query(ctx, selectEntries+" ORDER BY id", run)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
}

// Due returns the expired entries, by the clock of the database.
func Due(ctx context.Context, db campaign.Querier) ([]Entry, error) {
	rows, _ := db.Query(ctx, selectEntries+" AND expire_time <= clock_timestamp() ORDER BY id", "")
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
}

// List returns a page of the entries of a run, or of all runs if run is "", the last deletion first, and the token of
// the next page, "" on the last page. It leaves out tables from which a run has deleted no row. For an invalid token it
// fails with pagetoken.ErrInvalid.
func List(ctx context.Context, db campaign.Querier, run string, size int, token string) ([]Entry, string, error) {
	before, err := pagetoken.Parse[int64](token)
	if err != nil {
		return nil, "", err
	}
	rows, _ := db.Query(ctx, selectEntries+` AND (kind <> 'ROWS' OR rows_trashed > 0) AND ($2::bigint = 0 OR id < $2)
		ORDER BY id DESC LIMIT $3`, run, before, size+1)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	if err != nil {
		return nil, "", err
	}
	list, next := pagetoken.Cut(list, size, func(e Entry) int64 { return e.ID })
	return list, next, nil
}

// Found is where a row is in the trash.
type Found struct {
	Entry
	// Key names the row in Restore.Keys. It is "" if its table has no unique key, or was dropped with the row: only the
	// whole entry can be restored then. KeyIsText is set if Key has a text, which may be an address or a secret, such as
	// the key of a session.
	Key       string
	KeyIsText bool
}

// Find returns where a row of a table, given by its quoted name, is in the trash, the last deletion first. key is a
// condition on the row, named r. complete is false if the trash has more rows of the table than can be searched in five
// seconds.
func Find(ctx context.Context, pool *pgxpool.Pool, table string, key sqlexpr.Expr) (
	found []Found, complete bool, err error,
) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		const of = ` AND kind <> 'VIEW' AND (root = $2 OR to_regclass($2) IN (
			SELECT relid FROM pg_partition_ancestors(to_regclass(relation ->> 'parent')) AS a (relid))) ORDER BY id DESC`
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1s'; SET LOCAL DateStyle = 'ISO'"); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, selectEntries+of, "", table)
		entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
		if err != nil {
			return err
		}
		keys, err := uniqueKeys(ctx, tx, table)
		if err != nil {
			return err
		}
		until := time.Now().Add(5 * time.Second)
		for _, e := range entries {
			var of uniqueKey
			if named := e.named(keys); named != nil {
				of = named[0]
			}
			values, err := e.find(ctx, tx, of, key, time.Until(until))
			if err == nil {
				found = append(found, Found{Entry: e, Key: of.name(values), KeyIsText: slices.ContainsFunc(of, e.isText)})
			} else if !errors.Is(err, pgx.ErrNoRows) && !sqlstate.Is(err, pgerrcode.UndefinedColumn,
				pgerrcode.UndefinedFunction) { // the table was a different one then
				return err
			}
		}
		return nil
	})
	if sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable) && ctx.Err() == nil {
		return found, false, nil
	}
	return found, true, err
}

// find looks for a row by a condition, and returns its values of a key. It fails with pgx.ErrNoRows.
func (e *Entry) find(
	ctx context.Context, tx pgx.Tx, of uniqueKey, key sqlexpr.Expr, limit time.Duration,
) (values []*string, err error) {
	selected := "'{}'::pg_catalog.text[]"
	if of != nil {
		selected = "ARRAY[r." + strings.Join(of, "::pg_catalog.text, r.") + "::pg_catalog.text]"
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		timeout := fmt.Sprintf("SET LOCAL statement_timeout = %d", max(limit.Milliseconds(), 1))
		if _, err := tx.Exec(ctx, timeout); err != nil {
			return err
		}
		return sqlexpr.Format("SELECT "+selected+" FROM %s AS r WHERE %s LIMIT 1", e.table(), key).QueryRow(ctx, tx).
			Scan(&values)
	})
	return values, err
}

// isText reports whether a column, given by its quoted name, is of a text type.
func (e *Entry) isText(name string) bool {
	return slices.Contains([]string{"text", asText, "character varying", "bpchar"}, e.column(name).Kept)
}

// column returns a column by its quoted name; nil if the rows do not have it.
func (e *Entry) column(name string) *column {
	i := slices.IndexFunc(e.Columns, func(c column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &e.Columns[i]
}

func (e *Entry) table() string { return quoted(Schema, e.Name) }

// Drop permanently deletes an entry, in a transaction of the caller, and returns how many rows it had. They are counted
// in column, which is rows_purged or rows_expired. The owner of a moved table may have dropped it already, by DROP
// OWNED.
func Drop(ctx context.Context, tx pgx.Tx, e Entry, column string) (rows int64, err error) {
	if e.Kind != View {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '500ms'; DROP TABLE IF EXISTS "+e.table())
		if err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(`UPDATE cleanupd.trash AS t
		SET %[1]s = %[1]s + was.rows, end_time = clock_timestamp()
		FROM (SELECT id, %[2]s AS rows FROM cleanupd.trash WHERE id = $1) AS was
		WHERE t.id = was.id RETURNING was.rows`, column, RowsLeft), e.ID).Scan(&rows)
	return rows, err
}

// Purged counts permanently deleted rows.
type Purged struct {
	Rows   int64
	Tables []string // the quoted names of their tables
	Gone   bool     // nothing of the entry is left
	// Left are the numbers of rows, by their tables, that other runs deleted and that refer to these. They stay, since
	// they may have referred to others that had the same keys.
	Left map[string]int64
}

// Has reports whether the rows of the entry have all of some columns.
func (e Entry) Has(ctx context.Context, db campaign.Querier, columns []string) (has bool, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) = cardinality($2::text[]) FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attname = ANY ($2) AND attnum > 0 AND NOT attisdropped`, e.table(), columns).
		Scan(&has)
	return has, err
}

// Purge permanently deletes the rows of an entry whose columns have the given values, and those of others (Referring)
// that refer to them, directly or through others, and could not come back without them. Without values, it deletes the
// whole entry. Values are compared by the type of the column, or as text if that is not a built-in type with an order.
func (e Entry) Purge(
	ctx context.Context, tx pgx.Tx, values map[string]string, others []Entry,
) (p Purged, err error) {
	if len(values) == 0 {
		p.Rows, err = Drop(ctx, tx, e, "rows_purged")
		return Purged{Rows: p.Rows, Tables: []string{e.Root}, Gone: true}, err
	}
	first, err := e.having(ctx, tx, values)
	if err != nil {
		return p, err
	}
	entries := append([]Entry{e}, others...)
	going, err := withReferring(ctx, tx, entries, first)
	if err != nil {
		return p, err
	}
	if p.Left, err = elsewhere(ctx, tx, entries, going); err != nil {
		return p, err
	}
	for i, rows := range going {
		if len(rows) == 0 {
			continue
		}
		e := entries[i]
		if _, err := tx.Exec(ctx, "DELETE FROM "+e.table()+" WHERE ctid = ANY ($1)", rows); err != nil {
			return p, err
		}
		const count = "UPDATE cleanupd.trash SET rows_purged = rows_purged + $2 WHERE id = $1"
		if _, err := tx.Exec(ctx, count, e.ID, len(rows)); err != nil {
			return p, err
		}
		p.Rows, p.Tables = p.Rows+int64(len(rows)), append(p.Tables, e.Root)
	}
	return p, nil
}

// elsewhere counts, by table, the rows that other runs deleted and that refer to the given rows of each entry, but not
// those that refer to one that their own run deleted.
func elsewhere(ctx context.Context, tx pgx.Tx, entries []Entry, going [][]pgtype.TID) (map[string]int64, error) {
	all, err := Entries(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(e Entry) bool { return e.Kind != Rows })
	left := map[string]int64{}
	for _, other := range all {
		if other.Run == entries[0].Run {
			continue
		}
		rows, _ := tx.Query(ctx, parentsSQL, other.Root)
		keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[reference])
		if err != nil {
			return nil, err
		}
		var refers []string
		var args []any
		for i, e := range entries {
			for _, k := range keys {
				if len(going[i]) == 0 || e.Belongs() != k.Table || !other.has(k.Columns) || !e.has(k.Keys) {
					continue
				}
				args = append(args, going[i])
				to := fmt.Sprintf("EXISTS (SELECT FROM %s AS p WHERE p.ctid = ANY ($%d) AND %s)", e.table(), len(args),
					k.same(other, e))
				for _, own := range all {
					if own.Run == other.Run && own.Belongs() == k.Table && own.has(k.Keys) {
						to += fmt.Sprintf(" AND NOT EXISTS (SELECT FROM %s AS p WHERE %s)", own.table(), k.same(other, own))
					}
				}
				refers = append(refers, to)
			}
		}
		if refers == nil {
			continue
		}
		var n int64
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s AS t WHERE %s", other.table(),
				strings.Join(refers, " OR ")), args...).Scan(&n)
		})
		if err != nil && !sqlstate.Is(err, pgerrcode.UndefinedTable) { // it has expired since
			return nil, err
		}
		if n > 0 {
			left[other.Root] += n
		}
	}
	return left, nil
}

// having returns the rows of an entry whose columns have the given values.
func (e Entry) having(ctx context.Context, tx pgx.Tx, values map[string]string) ([]pgtype.TID, error) {
	names := slices.Sorted(maps.Keys(values))
	rows, _ := tx.Query(ctx, `SELECT a.attname::text, CASE WHEN a.atttypid < 16384 AND EXISTS (SELECT FROM pg_opclass
			WHERE opcintype = a.atttypid AND opcdefault AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'btree'))
			THEN format_type(a.atttypid, -1) ELSE '' END
		FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attname = ANY ($2) AND a.attnum > 0
			AND NOT a.attisdropped`, e.table(), names)
	var where []string
	var args []any
	var name, comparedAs string
	if _, err := pgx.ForEachRow(rows, []any{&name, &comparedAs}, func() error {
		args = append(args, values[name])
		where = append(where, equals(quoted(name), comparedAs, fmt.Sprintf("$%d", len(args))))
		return nil
	}); err != nil || len(where) < len(names) { // a table that lacks one of the columns has no such rows
		return nil, err
	}
	// A table that a task would have dropped still has what its owner gave it, which could keep rows, or hide them.
	var plain bool
	if err := tx.QueryRow(ctx, `SELECT has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'DELETE')
			AND NOT (relhasrules OR relrowsecurity OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal))
		FROM pg_class c WHERE c.oid = to_regclass($1)`, e.table()).Scan(&plain); err != nil {
		return nil, err
	}
	if !plain {
		return nil, failure.New(failure.Precondition, fmt.Sprintf("%s belongs to another role, or has triggers, rules or "+
			"row security, which may keep its rows: purge it as a whole (cleanupd trash purge --run %s --table %[1]s)", e.Root,
			e.Run))
	}
	found, _ := tx.Query(ctx, fmt.Sprintf("SELECT ctid FROM %s AS t WHERE %s", e.table(), strings.Join(where, " AND ")),
		args...)
	having, err := pgx.CollectRows(found, pgx.RowTo[pgtype.TID])
	if strings.HasPrefix(sqlstate.Of(err), "22") {
		err = failure.Field("where", "has a value that its column cannot have: "+purge.Message(err))
	}
	return having, err
}

// link is a foreign key from the rows of an entry to those of another one, by their indexes.
type link struct {
	from, to int
	reference
}

// links returns the foreign keys between the rows of entries of one run.
func links(ctx context.Context, db campaign.Querier, entries []Entry) (all []link, err error) {
	for from, e := range entries {
		if e.Kind != Rows {
			continue
		}
		rows, _ := db.Query(ctx, parentsSQL, e.Root)
		keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[reference])
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			for to, p := range entries {
				if p.Run == e.Run && p.Belongs() == k.Table && e.has(k.Columns) && p.has(k.Keys) {
					all = append(all, link{from, to, k})
				}
			}
		}
	}
	return all, nil
}

// Referring returns those of the entries from which foreign keys lead to rows of the entry, directly or through others.
func (e Entry) Referring(ctx context.Context, db campaign.Querier, entries []Entry) (found []Entry, err error) {
	entries = append([]Entry{e}, slices.DeleteFunc(slices.Clone(entries), func(o Entry) bool { return o.ID == e.ID })...)
	all, err := links(ctx, db, entries)
	reached := []int{0}
	for i := 0; i < len(reached); i++ {
		for _, l := range all {
			if l.to == reached[i] && !slices.Contains(reached, l.from) {
				reached, found = append(reached, l.from), append(found, entries[l.from])
			}
		}
	}
	return found, err
}

// withReferring returns, by entry, the given rows of the first one, and the rows that refer to them by foreign keys,
// directly or through others.
func withReferring(
	ctx context.Context, tx pgx.Tx, entries []Entry, first []pgtype.TID,
) (all [][]pgtype.TID, err error) {
	keys, err := links(ctx, tx, entries)
	all = make([][]pgtype.TID, len(entries))
	all[0] = first
	for next, rows := []int{0}, [][]pgtype.TID{first}; len(next) > 0 && err == nil; next, rows = next[1:], rows[1:] {
		for _, l := range keys {
			if l.to != next[0] {
				continue
			}
			from, to := entries[l.from], entries[l.to]
			found, _ := tx.Query(ctx, fmt.Sprintf("SELECT t.ctid FROM %s AS t WHERE t.ctid <> ALL ($1) AND EXISTS "+
				"(SELECT FROM %s AS p WHERE p.ctid = ANY ($2) AND %s)", from.table(), to.table(), l.same(from, to)),
				append([]pgtype.TID{}, all[l.from]...), rows[0])
			more, err := pgx.CollectRows(found, pgx.RowTo[pgtype.TID])
			if err != nil {
				return nil, err
			}
			if len(more) > 0 {
				all[l.from], next, rows = append(all[l.from], more...), append(next, l.from), append(rows, more)
			}
		}
	}
	return all, err
}
