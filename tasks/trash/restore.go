package trash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Entry is what a run deleted from one relation.
type Entry struct {
	ID      int64
	Run     string
	Task    string
	Kind    Kind
	Root    string // quoted, with its schema: where the rows belong
	Name    string // of the table in Schema
	Columns []column
	Rows    int64 // now in the trash
	Created time.Time
	Expires *time.Time // nil while its run works
}

// Of reports whether the entry is of a table, named with or without its schema.
func (e Entry) Of(table string) bool {
	return e.Root == table || strings.ReplaceAll(e.Root, `"`, "") == table ||
		strings.HasSuffix(strings.ReplaceAll(e.Root, `"`, ""), "."+table)
}

// Entries returns what a run has in the trash, or all runs if run is "", in the order of deletion.
func Entries(ctx context.Context, db campaign.Querier, run string) ([]Entry, error) {
	rows, _ := db.Query(ctx, `SELECT id, run_id::text, task, kind, root, name, columns,
		rows_trashed - rows_restored - rows_purged - rows_expired, create_time, expire_time
		FROM cleanupd.trash WHERE end_time IS NULL AND ($1::text = '' OR run_id::text = $1)
		ORDER BY id`, run)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
}

func (e *Entry) table() string { return pgx.Identifier{Schema, e.Name}.Sanitize() }

// Into makes the entry's rows come back into a table of another schema, which is made with the same columns and types
// and nothing else unless it is there.
func (e *Entry) Into(ctx context.Context, tx pgx.Tx, schema string) error {
	var name string
	if err := tx.QueryRow(ctx, "SELECT (parse_ident($1))[2]", e.Root).Scan(&name); err != nil {
		return err
	}
	var columns []string
	for _, c := range e.Columns {
		columns = append(columns, c.Name+" "+c.Type)
	}
	e.Root = quoted(schema, name)
	_, err := tx.Exec(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s)", e.Root, strings.Join(columns, ", ")))
	return err
}

// Left drops the entry's table if no row is left in it, in a transaction of the caller.
func (e *Entry) Left(ctx context.Context, tx pgx.Tx) error {
	var rows bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+e.table()+")").Scan(&rows); err != nil || rows {
		return err
	}
	return Drop(ctx, tx, *e, "rows_purged")
}

// Restored is how many rows of an entry came back, and how many stay in the trash by the reason: a row with the same
// key exists again, or the table refuses them.
type Restored struct {
	Rows, Existing, Failed int64
	// Reasons are those of the first rows that failed.
	Reasons []string
}

// reasonsKept is how many reasons a result has.
const reasonsKept = 20

// Restore moves the rows of an entry back into their table. It works in batches: each deletes the rows from the trash
// in the transaction that inserts them, so that an interrupted restore can go on, and each row comes back once.
type Restore struct {
	Engine *purge.Engine
	Entry  Entry
	// Keys are the only values of the table's key, of one column, whose rows come back, as text; nil for all.
	Keys []string

	to     target
	result Restored
}

// target is what the table of an entry is now.
type target struct {
	owner           string   // quoted, if the rows are inserted as the table's owner; empty if as this role
	columns, values []string // of an INSERT
	lost            []string // columns of the entry for which the table has no place
	key             string   // the column of the first unique key with one column
	keys            []string // conditions that a row r of the table has the same unique key as a row t of the trash
	types           map[string]string
}

// Run restores the rows. It may be called again for those that stayed, for example after other entries were restored.
func (r *Restore) Run(ctx context.Context) (Restored, error) {
	if err := r.Engine.Retry(ctx, r.Entry.Root, func() error { return r.read(ctx) }); err != nil {
		return r.result, err
	}
	const width = 64 // blocks
	rows := 1_000
	for from, end := int64(0), int64(0); ; from += width {
		if from >= end {
			const blocks = "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint"
			err := r.Engine.Pool.QueryRow(ctx, blocks, r.Entry.table()).Scan(&end)
			if err != nil || from >= end {
				return r.result, err
			}
		}
		found, err := r.find(ctx, from, from+width)
		if err != nil {
			return r.result, err
		}
		for len(found) > 0 {
			if err := r.Engine.Wait(ctx); err != nil {
				return r.result, err
			}
			some, begun := found[:min(rows, len(found))], time.Now()
			if err := r.Engine.Retry(ctx, r.Entry.Root, func() error { return r.batch(ctx, some) }); err != nil {
				return r.result, err
			}
			found = found[len(some):]
			switch took := time.Since(begun); {
			case took > 2*purge.DefaultTarget:
				rows = max(rows/2, 1)
			case took < purge.DefaultTarget:
				rows = min(2*rows, 10_000)
			}
		}
	}
}

// targetSQL selects the columns of the table $1: name, type, whether it is generated.
const targetSQL = `SELECT quote_ident(a.attname), format('%I.%I', n.nspname, t.typname), a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped`

// ownerSQL selects the owner of the table $1, whether that is this role or a superuser, and whether this role may
// become it. An INSERT runs what the owner has put into triggers, constraints, indexes and defaults, so it runs as the
// owner.
const ownerSQL = `SELECT quote_ident(o.rolname), o.rolname = current_user OR o.rolsuper, ` + purge.MayBecome + `
FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner WHERE c.oid = to_regclass($1)`

// uniqueSQL selects the columns of the unique keys of the table $1.
const uniqueSQL = `SELECT ARRAY(SELECT quote_ident(a.attname) FROM unnest(i.indkey::int2[]) AS k (n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n)
FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
  AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts
ORDER BY NOT i.indisprimary, i.indexrelid`

var (
	// ErrOwner means that the rows would be inserted with more rights than those of the table's owner.
	ErrOwner = errors.New("rows come back as the owner of their table, and this role may not become it: restore them " +
		"into a new schema, or make this role a member of the owner")
	// ErrNoTable means that the table of an entry does not exist any more.
	ErrNoTable = errors.New("its table does not exist any more: restore it into a new schema")
)

func (r *Restore) read(ctx context.Context) error {
	r.to = target{types: map[string]string{}}
	rows, _ := r.Engine.Pool.Query(ctx, targetSQL, r.Entry.Root)
	var (
		name, typ string
		generated bool
	)
	computed := map[string]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&name, &typ, &generated}, func() error {
		r.to.types[name], computed[name] = typ, generated
		return nil
	}); err != nil {
		return err
	}
	if len(r.to.types) == 0 {
		return fmt.Errorf("%s: %w", r.Entry.Root, ErrNoTable)
	}
	var trusted, may bool
	if err := r.Engine.Pool.QueryRow(ctx, ownerSQL, r.Entry.Root).Scan(&r.to.owner, &trusted, &may); err != nil {
		return err
	}
	switch {
	case trusted:
		r.to.owner = ""
	case !may:
		return fmt.Errorf("%s: %w, who is %s", r.Entry.Root, ErrOwner, r.to.owner)
	}
	for _, c := range r.Entry.Columns {
		switch typ, ok := r.to.types[c.Name]; {
		case !ok, computed[c.Name] && !c.Generated:
			r.to.lost = append(r.to.lost, c.Name)
		case computed[c.Name]:
		default:
			r.to.columns = append(r.to.columns, c.Name)
			r.to.values = append(r.to.values, c.back("t", typ))
		}
	}
	rows, _ = r.Engine.Pool.Query(ctx, uniqueSQL, r.Entry.Root)
	unique, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
	for _, key := range unique {
		if len(key) == 1 && r.to.key == "" {
			r.to.key = key[0]
		}
		var same []string
		for _, name := range key {
			i := slices.IndexFunc(r.Entry.Columns, func(c column) bool { return c.Name == name })
			if i < 0 || r.to.types[name] != r.Entry.Columns[i].Base {
				same = nil
				break
			}
			same = append(same, fmt.Sprintf("r.%[1]s = t.%[1]s", name))
		}
		if same != nil {
			r.to.keys = append(r.to.keys, fmt.Sprintf("EXISTS (SELECT FROM %s AS r WHERE %s)", r.Entry.Root,
				strings.Join(same, " AND ")))
		}
	}
	if err == nil && r.Keys != nil && r.to.key == "" {
		err = fmt.Errorf("%s has no key of one column", r.Entry.Root)
	}
	return err
}

// back is the value of a column for a table whose column has a type. Assigning it checks its length and its domain, as
// for any INSERT; a cast to the type would cut it off.
func (c column) back(row, typ string) string {
	if c.Kept == "text" && !c.Same && typ != "pg_catalog.text" {
		return fmt.Sprintf("%s.%s::%s", row, c.Name, typ)
	}
	return row + "." + c.Name
}

// find returns the rows of some blocks that may come back, and counts those that may not.
func (r *Restore) find(ctx context.Context, from, to int64) (rows []pgtype.TID, err error) {
	or := func(conditions []string, format string) string {
		all := []string{"false"}
		for _, c := range conditions {
			all = append(all, fmt.Sprintf(format, c))
		}
		return strings.Join(all, " OR ")
	}
	keyed := "true"
	if r.Keys != nil {
		keyed = fmt.Sprintf("t.%s::text = ANY ($3::text[])", r.to.key)
	}
	query := fmt.Sprintf("SELECT t.ctid, %s, %s FROM %s AS t WHERE t.ctid >= $1::tid AND t.ctid < $2::tid AND %s",
		or(r.to.lost, "t.%s IS NOT NULL"), or(r.to.keys, "%s"), r.Entry.table(), keyed)
	args := []any{fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", to)}
	if r.Keys != nil {
		args = append(args, r.Keys)
	}
	var (
		row          pgtype.TID
		lost, exists bool
	)
	err = r.Engine.Retry(ctx, r.Entry.Root, func() error {
		before := r.result
		rows = nil
		found, _ := r.Engine.Pool.Query(ctx, query, args...)
		_, err := pgx.ForEachRow(found, []any{&row, &lost, &exists}, func() error {
			switch {
			case exists:
				r.result.Existing++
			case lost:
				r.fail(fmt.Sprintf("the table has lost %s, for which the row has a value", strings.Join(r.to.lost, ", ")))
			default:
				rows = append(rows, row)
			}
			return nil
		})
		if err != nil {
			r.result = before
		}
		return err
	})
	return rows, err
}

func (r *Restore) fail(reason string) {
	r.result.Failed++
	if len(r.result.Reasons) < reasonsKept && !slices.Contains(r.result.Reasons, reason) {
		r.result.Reasons = append(r.result.Reasons, reason)
	}
}

// errSuppressed means that a trigger or rule of the table suppressed an INSERT.
var errSuppressed = errors.New("a trigger or rule of the table suppresses it")

// batch moves rows back in one transaction, and leaves those that the table refuses.
func (r *Restore) batch(ctx context.Context, rows []pgtype.TID) error {
	before, begun := r.result, time.Now()
	err := r.Engine.InTx(ctx, func(tx pgx.Tx) error {
		r.result = before
		if err := r.lend(ctx, tx, "GRANT", "TO"); err != nil {
			return err
		}
		if err := r.put(ctx, tx, rows); err != nil {
			return err
		}
		if err := r.lend(ctx, tx, "REVOKE", "FROM"); err != nil {
			return err
		}
		n := r.result.Rows - before.Rows
		back := []purge.Trashed{{Entry: r.Entry.ID, Rows: n}}
		return r.Engine.Commit(ctx, tx, purge.Delta{Restored: back, Begun: begun})
	})
	if err != nil {
		r.result = before
		return err
	}
	r.Engine.Spend(r.result.Rows-before.Rows, begun)
	return nil
}

// lend gives the owner of the table the right to read the entry, or takes it back. Nobody else sees it: both happen in
// one transaction.
func (r *Restore) lend(ctx context.Context, tx pgx.Tx, command, preposition string) error {
	if r.to.owner == "" {
		return nil
	}
	return execute(ctx, tx, []string{
		fmt.Sprintf("%s USAGE ON SCHEMA %s %s %s", command, Schema, preposition, r.to.owner),
		fmt.Sprintf("%s SELECT ON %s %s %s", command, r.Entry.table(), preposition, r.to.owner),
	})
}

// put moves rows back; where that fails, it tries halves of them, down to the rows that cannot come back.
func (r *Restore) put(ctx context.Context, tx pgx.Tx, rows []pgtype.TID) error {
	insert := fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS t "+
		"WHERE t.ctid = ANY ($1::tid[])", r.Entry.Root, strings.Join(r.to.columns, ", "),
		strings.Join(r.to.values, ", "), r.Entry.table())
	var gone int64
	asOwner, asSelf := "", ""
	if r.to.owner != "" {
		asOwner, asSelf = "SET LOCAL ROLE "+r.to.owner, "; RESET ROLE"
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, asOwner); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, insert, rows)
		if err == nil && tag.RowsAffected() != int64(len(rows)) {
			err = errSuppressed
		}
		if err == nil {
			_, err = tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"+asSelf)
		}
		if err == nil {
			tag, err = tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE ctid = ANY ($1::tid[])", r.Entry.table()), rows)
			gone = tag.RowsAffected()
		}
		return err
	})
	switch {
	case err == nil && gone != int64(len(rows)):
		return fmt.Errorf("%d of %d rows are no longer in the trash: another session has changed it", len(rows)-int(gone),
			len(rows))
	case err == nil:
		r.result.Rows += gone
		return nil
	case !errors.Is(err, errSuppressed) && !sqlstate.OfRow(err):
		return err
	case len(rows) > 1:
		if err := r.put(ctx, tx, rows[:len(rows)/2]); err != nil {
			return err
		}
		return r.put(ctx, tx, rows[len(rows)/2:])
	case sqlstate.Is(err, pgerrcode.UniqueViolation):
		r.result.Existing++
	default:
		r.fail(purge.Message(err))
	}
	return nil
}
