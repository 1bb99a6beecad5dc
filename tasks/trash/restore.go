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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// CheckSchema fails if rows cannot be restored into a schema, which need not exist: if the role may not create it, or
// if another role owns it, who could drop what is restored, or have made tables there that reveal the rows to it.
func CheckSchema(ctx context.Context, db campaign.Querier, schema string) error {
	var there, ours, may bool
	var role, database string
	err := db.QueryRow(ctx, `SELECT count(n) > 0, COALESCE(bool_and(nspowner = current_user::regrole), true),
			has_database_privilege(current_database(), 'CREATE'), quote_ident(current_user), quote_ident(current_database())
		FROM pg_namespace n WHERE nspname = $1`, schema).Scan(&there, &ours, &may, &role, &database)
	switch {
	case err != nil || there && ours:
		return err
	case there:
		return failure.New(failure.Precondition, fmt.Sprintf("the schema %s belongs to another role: name one that does "+
			"not exist, or that %s owns", quoted(schema), role))
	case !may:
		return failure.New(failure.Precondition, fmt.Sprintf("the role cannot create the schema: CREATE SCHEMA %s "+
			"AUTHORIZATION %s, or GRANT CREATE ON DATABASE %s TO %[2]s", quoted(schema), role, database))
	}
	return nil
}

// MakeSchema creates a schema for restored rows unless it exists. It fails as CheckSchema does.
func MakeSchema(ctx context.Context, db *pgxpool.Pool, schema string) error {
	var there bool // IF NOT EXISTS also takes the right to create it
	err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&there)
	if err = errors.Join(err, CheckSchema(ctx, db, schema)); err == nil && !there {
		_, err = db.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+quoted(schema))
	}
	return err
}

// Into redirects the entry's rows to a table of another schema, which it creates unless the table exists. The table has
// the types in which the trash keeps the rows, and nothing else, so that filling it runs no code of the application.
// Into fails with ErrTarget if the schema has a table of that name that is not for these rows.
func (e *Entry) Into(ctx context.Context, tx pgx.Tx, schema string) error {
	var (
		to, of        = quoted(schema, e.Table[1]), "rows of " + e.Root
		columns       []string
		there, isOurs bool
		comment       string
	)
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL,
			COALESCE(obj_description(to_regclass($1), 'pg_class') = $2, false), format('COMMENT ON TABLE %s IS %L', $1, $2)`,
		to, of).Scan(&there, &isOurs, &comment); err != nil {
		return err
	}
	switch e.Root = to; {
	case there && !isOurs:
		return fmt.Errorf("%s exists, but was not created for %s: %w", to, of, ErrTarget)
	case there:
		return nil
	}
	for _, c := range e.Columns {
		columns = append(columns, c.Name+" "+c.Kept)
	}
	return execute(ctx, tx, []string{fmt.Sprintf("CREATE TABLE %s (%s)", to, strings.Join(columns, ", ")), comment})
}

// Left drops the entry's table if no row is left in it, in a transaction of the caller.
func (e *Entry) Left(ctx context.Context, tx pgx.Tx) error {
	var rows bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+e.table()+")").Scan(&rows); err != nil || rows {
		return err
	}
	_, err := Drop(ctx, tx, *e, "rows_purged")
	return err
}

// Restored is how many rows of an entry came back, and how many stay in the trash because a row with the same key
// exists again (Existing), or because the table refuses them (Failed).
type Restored struct {
	Rows, Existing, Failed int64
	// Reasons are why the first rows failed.
	Reasons []string
	// Left are the numbers of rows, by their tables, that refer to rows with one of Restore.Keys and stay in the trash.
	Left map[string]int64
}

// reasonsKept is how many reasons a result has.
const reasonsKept = 20

// Restore moves the rows of an entry back into their table. It works in batches: each deletes the rows from the trash
// in the transaction that inserts them, so that an interrupted restore can go on, and each row comes back once.
type Restore struct {
	Engine *purge.Engine
	Entry  Entry
	// Keys are the names of the rows to restore, as in Found.Key; nil for all.
	Keys []string
	// Existing are the ids of entries that stay only because the keys of their rows exist again.
	Existing []int64
	// Backwards begins with the rows that were deleted last. Rows that refer to others of their own table come back after
	// those, which may be before or after them in the trash.
	Backwards bool

	result  Restored
	locked  int                   // how many rows stay because of locks of other sessions
	orphans map[pgtype.TID]string // why rows stay that refer to rows in the trash
}

// target describes the table of an entry, in a transaction that has locked it.
type target struct {
	owner           string      // quoted, if the rows are inserted as the table's owner; empty if as this role
	byFunction      bool        // the role may do so only by the function of deploy/role.sql
	columns, values []string    // of an INSERT
	casts           []string    // the columns whose values are cast
	gone            []string    // columns of the entry that the table can no longer take
	named           string      // the condition that a row t has one of Restore.Keys
	names           []any       // its parameters, from $3
	keys            []uniqueKey // those in which rows of the table and of the trash can be compared
}

// reader is the role that reads the table, for asOwner.
func (t target) reader() string {
	if t.byFunction {
		return ""
	}
	return t.owner
}

// Run may be called again for rows that remain, for example after other entries were restored.
func (r *Restore) Run(ctx context.Context) (Restored, error) {
	const atOnce = 4096 // blocks, so that not all orphans need memory at once
	const blocks = "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint"
	var end int64
	if err := r.Engine.Pool.QueryRow(ctx, blocks, r.Entry.table()).Scan(&end); err != nil {
		return r.result, err
	}
	if len(r.Keys) > 0 {
		if err := r.countLeft(ctx, end); err != nil {
			return r.result, err
		}
	}
	width, looked := int64(16), int64(0) // blocks
	for from := int64(0); from < end; {
		if err := r.Engine.Wait(ctx); err != nil {
			return r.result, err
		}
		if from >= looked {
			looked = min(from+atOnce, end)
			if err := r.each(ctx, from, looked, end, r.findOrphans); err != nil {
				return r.result, err
			}
		}
		begun, to := time.Now(), min(from+width, looked)
		if err := r.each(ctx, from, to, end, r.batch); err != nil {
			return r.result, err
		}
		from = to
		switch took := time.Since(begun); {
		case took > 2*purge.DefaultTarget:
			width = max(width/2, 1)
		case took < purge.DefaultTarget:
			width = min(2*width, 1024)
		}
	}
	return r.result, nil
}

// each calls work with some of the blocks until end, in the order of the restore.
func (r *Restore) each(
	ctx context.Context, from, to, end int64, work func(ctx context.Context, from, to int64) error,
) error {
	if r.Backwards {
		from, to = end-to, end-from
	}
	return r.Engine.Retry(ctx, r.Entry.Root, func() error { return work(ctx, from, to) })
}

// targetSQL selects the columns of the table $1: name, type, whether it is generated.
const targetSQL = `SELECT quote_ident(a.attname), format('%I.%I', n.nspname, t.typname), a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped`

// ownerSQL selects the owner of the table $1, this role, whether the owner is this role or a superuser, whether this
// role may become it, whether it is a table at all, whether a rule replaces INSERT, and whether a function inserts as
// the owner. An INSERT runs what the owner has put into triggers, constraints, indexes and defaults, so it runs as the
// owner.
const ownerSQL = `SELECT quote_ident(o.rolname), quote_ident(current_user),
  ` + trustedOwner + `, ` + purge.MayBecome + `,
  c.relkind IN ('r', 'p'), EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid AND ev_type = '3' AND is_instead
    AND ev_enabled IN ('O', 'A')), ` + insertsAsOwner + `
FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner WHERE c.oid = to_regclass($1)`

const (
	trustedOwner   = "o.rolname = current_user OR o.rolsuper"
	insertsAsOwner = "COALESCE((SELECT proowner = o.oid FROM pg_proc WHERE oid = to_regproc('" +
		campaign.RestoreRowsFunction + "')), false)"
)

// Stranger is an owner of tables into which rows cannot be restored, since this role may not become that owner.
type Stranger struct {
	Owner, Role string   // quoted
	Tables      []string // the quoted names
	Triggered   []string // those of them with triggers
	Database    string   // quoted, if this role may not create a schema there; otherwise empty
}

// Grant is the statement that lets rows be restored.
func (s Stranger) Grant() string { return fmt.Sprintf("GRANT %s TO %s", s.Owner, s.Role) }

// OnlyForRestores says, with a leading semicolon, of tables with triggers that the grant is in the way of deleting with
// undo: their rows are deleted as their owner then, who has no right to the trash. It is empty without such tables.
func (s Stranger) OnlyForRestores() string {
	if s.Triggered == nil {
		return ""
	}
	return fmt.Sprintf("; only for the time of a restore: meanwhile rows of %s cannot be deleted with undo, for its "+
		"triggers", strings.Join(s.Triggered, ", "))
}

// GrantSchema is the statement that lets rows be restored into a new schema.
func (s Stranger) GrantSchema() string {
	return fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", s.Database, s.Role)
}

// Strangers returns the owners of those tables, given by their quoted names, into which rows cannot be restored.
func Strangers(ctx context.Context, db campaign.Querier, tables []string) ([]Stranger, error) {
	rows, _ := db.Query(ctx, `SELECT quote_ident(o.rolname), quote_ident(current_user),
			array_agg(DISTINCT name ORDER BY name),
			array_agg(DISTINCT name ORDER BY name) FILTER (WHERE EXISTS (SELECT FROM pg_trigger
				WHERE tgrelid = c.oid AND `+campaign.AppTrigger+`)),
			CASE WHEN has_database_privilege(current_database(), 'CREATE') THEN '' ELSE quote_ident(current_database()) END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner
			CROSS JOIN LATERAL (SELECT `+quotedSQL+` AS name) AS quoted -- to_regclass needs USAGE on the schema
		WHERE name = ANY ($1) AND NOT (`+trustedOwner+` OR `+purge.MayBecome+` OR `+insertsAsOwner+`)
		GROUP BY o.rolname ORDER BY 1`, tables)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Stranger])
}

// CheckOwners fails if rows of some tables, given by their quoted names, can be restored only into another schema.
func CheckOwners(ctx context.Context, db campaign.Querier, tables []string) error {
	strangers, err := Strangers(ctx, db, tables)
	if err != nil || len(strangers) == 0 {
		return err
	}
	var why []string
	for _, s := range strangers {
		why = append(why, fmt.Sprintf("rows of %s are inserted as their owner (%s)", strings.Join(s.Tables, ", "), s.Grant()))
	}
	into := ErrTarget.Error()
	if s := strangers[0]; s.Database != "" {
		into += fmt.Sprintf(", which takes %s", s.GrantSchema())
	}
	return failure.New(failure.Precondition, strings.Join(why, "; ")+", or "+into)
}

// quotedSQL is the name of a relation c in a schema n as quoted returns it, also where SQL needs no quotes.
const quotedSQL = `format('"%s"."%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""'))`

// ErrTarget means that the rows of an entry cannot be restored to their table.
var ErrTarget = errors.New("restore it into a new schema (--into)")

// lock locks the table of the entry against changes until the end of the transaction, and reads its definition, since
// another table may have replaced it between two batches.
func (r *Restore) lock(ctx context.Context, tx pgx.Tx) (t target, err error) {
	root := r.Entry.Root
	_, err = tx.Exec(ctx, "LOCK TABLE ONLY "+root+" IN ROW EXCLUSIVE MODE")
	switch {
	case sqlstate.Is(err, pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName):
		return t, fmt.Errorf("%s no longer exists: %w", root, ErrTarget)
	case sqlstate.Is(err, pgerrcode.WrongObjectType, pgerrcode.InsufficientPrivilege):
		return t, fmt.Errorf("%s: %w", purge.Message(err), ErrTarget)
	case err != nil:
		return t, err
	}
	var role string
	var trusted, may, isTable, ruled bool
	err = tx.QueryRow(ctx, ownerSQL, root).Scan(&t.owner, &role, &trusted, &may, &isTable, &ruled, &t.byFunction)
	if err != nil {
		return t, err
	}
	switch {
	case !isTable:
		return t, fmt.Errorf("%s is no longer a table: %w", root, ErrTarget)
	case ruled:
		return t, fmt.Errorf("a rule of %s replaces INSERT: drop it, or %w", root, ErrTarget)
	case trusted:
		t.owner, t.byFunction = "", false
	case may:
		t.byFunction = false
	case !t.byFunction:
		return t, fmt.Errorf("rows are inserted as the owner of their table (%s), or %w",
			Stranger{Owner: t.owner, Role: role}.Grant(), ErrTarget)
	}
	return t, r.match(ctx, tx, &t)
}

// match matches the columns and keys of the table with those of the entry.
func (r *Restore) match(ctx context.Context, tx pgx.Tx, t *target) error {
	var (
		name, typ string
		generated bool
	)
	types, computed := map[string]string{}, map[string]bool{}
	rows, _ := tx.Query(ctx, targetSQL, r.Entry.Root)
	if _, err := pgx.ForEachRow(rows, []any{&name, &typ, &generated}, func() error {
		types[name], computed[name] = typ, generated
		return nil
	}); err != nil {
		return err
	}
	for _, c := range r.Entry.Columns {
		switch typ, ok := types[c.Name]; {
		case !ok, computed[c.Name] && !c.Generated:
			t.gone = append(t.gone, c.Name)
		case computed[c.Name]:
		default:
			t.columns, t.values = append(t.columns, c.Name), append(t.values, c.back("t", typ))
			if c.isCast() {
				t.casts = append(t.casts, c.Name)
			}
		}
	}
	unique, err := uniqueKeys(ctx, tx, r.Entry.Root)
	if err != nil {
		return err
	}
	t.named = "true"
	if r.Keys != nil {
		if t.named, t.names, err = r.Entry.among(unique, r.Keys); err != nil {
			return err
		}
	}
	for _, key := range unique {
		if !slices.ContainsFunc(key, func(name string) bool {
			c := r.Entry.column(name)
			return c == nil || !c.Same || types[name] != c.Base
		}) { // otherwise the INSERT finds equal keys itself
			t.keys = append(t.keys, key)
		}
	}
	return nil
}

// exists is the condition that the table root has a row with the same unique key as a row of the trash, given its
// alias.
func (t target) exists(root, alias string) string {
	all := []string{"false"}
	for _, key := range t.keys {
		var same []string
		for _, name := range key {
			same = append(same, fmt.Sprintf("r.%[1]s = %[2]s.%[1]s", name, alias))
		}
		all = append(all, fmt.Sprintf("EXISTS (SELECT FROM %s AS r WHERE %s)", root, strings.Join(same, " AND ")))
	}
	return "(" + strings.Join(all, " OR ") + ")"
}

// reference is a foreign key: the quoted names of the table that it refers to, of the columns, and of those that they
// refer to.
type reference struct {
	Table         string
	Columns, Keys []string
}

// parentsSQL selects the foreign keys of the table $1, and childrenSQL those that refer to it, with the other table.
const (
	parentsSQL = referencesSQL + `c.oid = k.confrelid WHERE k.contype = 'f' AND k.conrelid = to_regclass($1)`

	childrenSQL = referencesSQL + `c.oid = k.conrelid WHERE k.contype = 'f' AND k.confrelid = to_regclass($1)`
)

const referencesSQL = `SELECT ` + quotedSQL + `,
  ARRAY(SELECT quote_ident(attname) FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i) JOIN pg_attribute
    ON attrelid = k.conrelid AND attnum = n ORDER BY i),
  ARRAY(SELECT quote_ident(attname) FROM unnest(k.confkey) WITH ORDINALITY AS u (n, i) JOIN pg_attribute
    ON attrelid = k.confrelid AND attnum = n ORDER BY i)
FROM pg_constraint k JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) ON `

// countLeft counts the rows that the same run deleted and that refer to the rows to restore. The entry has blocks until
// end.
func (r *Restore) countLeft(ctx context.Context, end int64) error {
	r.result.Left = map[string]int64{}
	return r.Engine.InTx(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, childrenSQL, r.Entry.Root)
		children, err := pgx.CollectRows(rows, pgx.RowToStructByPos[reference])
		if err != nil || len(children) == 0 {
			return err
		}
		entries, err := Entries(ctx, tx, r.Entry.Run)
		if err != nil {
			return err
		}
		t, err := r.lock(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '10min'"); err != nil { // the trash has no indexes
			return err
		}
		for _, e := range entries {
			var refers []string
			for _, c := range children {
				if e.Kind == Rows && e.Root == c.Table && e.has(c.Columns) && r.Entry.has(c.Keys) {
					refers = append(refers, c.same(e, r.Entry))
				}
			}
			if refers == nil {
				continue
			}
			others := "true"
			if e.ID == r.Entry.ID {
				others = "NOT (" + t.named + ")"
			}
			var n int64
			if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s AS t WHERE %s AND EXISTS (SELECT FROM (SELECT * "+
				"FROM %s AS t WHERE t.ctid >= $1::tid AND t.ctid < $2::tid AND %s) AS p WHERE %s)", e.table(), others,
				r.Entry.table(), t.named, strings.Join(refers, " OR ")),
				append([]any{firstOf(0), firstOf(end)}, t.names...)...).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				r.result.Left[e.Root] += n
			}
		}
		return nil
	})
}

// findOrphans finds rows of some blocks that refer to rows of the same run that are still in the trash: whatever has
// such a key in the table now is another row. Of rows that refer to others of their own table, which may come back
// together, it finds those whose key another row has. For the rest it reads tables of the trash only, in which there is
// nothing of the application, and for which the owner of the table has no rights.
func (r *Restore) findOrphans(ctx context.Context, from, to int64) error {
	r.orphans = map[pgtype.TID]string{}
	return r.Engine.InTx(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, parentsSQL, r.Entry.Root)
		parents, err := pgx.CollectRows(rows, pgx.RowToStructByPos[reference])
		if err != nil || len(parents) == 0 {
			return err
		}
		entries, err := Entries(ctx, tx, r.Entry.Run)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '10min'"); err != nil { // the trash has no indexes
			return err
		}
		for _, p := range parents {
			for _, e := range entries {
				if e.Kind != Rows || e.Root != p.Table || !r.Entry.has(p.Columns) || !e.has(p.Keys) {
					continue
				}
				exists, ours := slices.Contains(r.Existing, e.ID), e.ID == r.Entry.ID
				why := fmt.Sprintf("it refers to a row of %s that stays in the trash, because its key exists again", e.Root)
				if !exists && !ours {
					why = fmt.Sprintf("it refers to a row of %s that is still in the trash: restore that first", e.Root)
				}
				find := func(and string) error {
					found, _ := tx.Query(ctx, r.referring(p, e, and), firstOf(from), firstOf(to))
					var row pgtype.TID
					_, err := pgx.ForEachRow(found, []any{&row}, func() error { r.orphans[row] = why; return nil })
					return err
				}
				if ours && !exists {
					err = r.findReused(ctx, tx, find)
				} else {
					err = find("true")
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// findReused calls find with the condition that a row of the table has the key of a row p of the trash.
func (r *Restore) findReused(ctx context.Context, tx pgx.Tx, find func(and string) error) error {
	t, err := r.lock(ctx, tx)
	if err != nil {
		return err
	}
	return r.lent(ctx, tx, t, func() error {
		return asOwner(ctx, tx, t.reader(), func() error { return find(t.exists(r.Entry.Root, "p")) })
	})
}

// referring selects the rows from $1 to $2 that refer to rows p of an entry with a further condition.
func (r *Restore) referring(ref reference, to Entry, and string) string {
	return fmt.Sprintf("SELECT t.ctid FROM %s AS t WHERE t.ctid >= $1::tid AND t.ctid < $2::tid "+
		"AND EXISTS (SELECT FROM %s AS p WHERE %s AND %s)", r.Entry.table(), to.table(), ref.same(r.Entry, to), and)
}

// same is the condition that a row t of one entry refers to a row p of another one.
func (f reference) same(from, to Entry) string {
	var same []string
	for i, name := range f.Columns {
		compare := "t.%s OPERATOR(pg_catalog.=) p.%s"
		if from.column(name).Kept != to.column(f.Keys[i]).Kept {
			compare = "t.%s::text OPERATOR(pg_catalog.=) p.%s::text"
		}
		same = append(same, fmt.Sprintf(compare, name, f.Keys[i]))
	}
	return strings.Join(same, " AND ")
}

// firstOf is where the first row of a block is.
func firstOf(block int64) string { return fmt.Sprintf("(%d,0)", block) }

// has reports whether the rows have some columns, given by their quoted names.
func (e *Entry) has(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return e.column(name) == nil })
}

// find returns the rows to restore in some blocks, and counts the others.
func (r *Restore) find(ctx context.Context, tx pgx.Tx, t target, from, to int64) (rows []pgtype.TID, err error) {
	gone := []string{"false"}
	for _, name := range t.gone {
		gone = append(gone, "t."+name+" IS NOT NULL")
	}
	args := append([]any{firstOf(from), firstOf(to)}, t.names...)
	query := fmt.Sprintf("SELECT t.ctid, %s, %s FROM %s AS t WHERE t.ctid >= $1::tid AND t.ctid < $2::tid AND %s",
		strings.Join(gone, " OR "), t.exists(r.Entry.Root, "t"), r.Entry.table(), t.named)
	var (
		row             pgtype.TID
		hasGone, exists bool
	)
	found, _ := tx.Query(ctx, query, args...)
	_, err = pgx.ForEachRow(found, []any{&row, &hasGone, &exists}, func() error {
		switch {
		case exists:
			r.result.Existing++
		case r.orphans[row] != "":
			r.fail(1, r.orphans[row])
		case hasGone:
			r.fail(1, fmt.Sprintf("the table has lost %s, for which the row has a value", strings.Join(t.gone, ", ")))
		default:
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

func (r *Restore) fail(rows int, reason string) {
	r.result.Failed += int64(rows)
	if len(r.result.Reasons) < reasonsKept && !slices.Contains(r.result.Reasons, reason) {
		r.result.Reasons = append(r.result.Reasons, reason)
	}
}

// errSuppressed means that a trigger of the table suppressed an INSERT.
var errSuppressed = errors.New("a trigger of the table suppresses it")

// batch moves the rows of some blocks back in one transaction, except rows that the table rejects.
func (r *Restore) batch(ctx context.Context, from, to int64) error {
	before, begun := r.result, time.Now()
	err := r.Engine.InTx(ctx, func(tx pgx.Tx) error {
		r.result = before
		t, err := r.lock(ctx, tx)
		if err != nil {
			return err
		}
		if err := r.lent(ctx, tx, t, func() error { return r.move(ctx, tx, t, from, to) }); err != nil {
			return err
		}
		d := purge.Delta{Begun: begun}
		if n := r.result.Rows - before.Rows; n > 0 {
			d.Restored = []purge.Trashed{{Entry: r.Entry.ID, Rows: n}}
		}
		return r.Engine.Commit(ctx, tx, d)
	})
	if err != nil {
		r.result = before
		return err
	}
	r.Engine.Spend(r.result.Rows-before.Rows, begun)
	return nil
}

// lent runs do while the owner of the table, if rows are inserted as that role, may read the entry.
func (r *Restore) lent(ctx context.Context, tx pgx.Tx, t target, do func() error) error {
	if t.owner == "" {
		return do()
	}
	return lent(ctx, tx, "USAGE ON SCHEMA "+Schema, t.owner, func() error {
		return lent(ctx, tx, "SELECT ON "+r.Entry.table(), t.owner, do)
	})
}

// move moves the rows of some blocks back, except those that must stay.
func (r *Restore) move(ctx context.Context, tx pgx.Tx, t target, from, to int64) error {
	var rows []pgtype.TID
	if err := asOwner(ctx, tx, t.reader(), func() (err error) {
		rows, err = r.find(ctx, tx, t, from, to)
		return err
	}); err != nil {
		return err
	}
	return r.put(ctx, tx, t, rows)
}

// asOwner runs do, and the triggers and constraints that it defers, as the owner of a table, or as this role if owner
// is empty.
func asOwner(ctx context.Context, tx pgx.Tx, owner string, do func() error) error {
	if owner != "" {
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+owner); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err // the caller rolls the role back
	}
	sql := "SET CONSTRAINTS ALL IMMEDIATE"
	if owner != "" {
		sql += "; RESET ROLE"
	}
	_, err := tx.Exec(ctx, sql)
	return err
}

// insert fails with errSuppressed if not all rows are inserted.
func (r *Restore) insert(ctx context.Context, tx pgx.Tx, t target, rows []pgtype.TID) (err error) {
	var inserted int64
	if t.byFunction {
		if _, err := tx.Exec(ctx, "LOCK TABLE "+r.Entry.table()+" IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err // the function requires this lock
		}
		err = tx.QueryRow(ctx,
			"SELECT "+campaign.RestoreRowsFunction+"($1::text::regclass, $2::text::regclass, $3, $4, $5)",
			r.Entry.table(), r.Entry.Root, t.columns, t.casts, rows).Scan(&inserted)
	} else {
		err = asOwner(ctx, tx, t.owner, func() error {
			tag, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS t "+
				"WHERE t.ctid = ANY ($1::tid[])", r.Entry.Root, strings.Join(t.columns, ", "), strings.Join(t.values, ", "),
				r.Entry.table()), rows)
			inserted = tag.RowsAffected()
			return err
		})
	}
	if err == nil && inserted != int64(len(rows)) {
		err = errSuppressed
	}
	return err
}

// put gives up once mostLocked rows are locked by other sessions: by then the cause is not single rows.
const mostLocked = 100

// put moves rows back. Where that fails, it tries halves, down to the rows that cannot be restored.
func (r *Restore) put(ctx context.Context, tx pgx.Tx, t target, rows []pgtype.TID) error {
	if len(rows) == 0 {
		return nil
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := r.insert(ctx, tx, t, rows); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE ctid = ANY ($1::tid[])", r.Entry.table()), rows)
		if err == nil && tag.RowsAffected() != int64(len(rows)) {
			err = fmt.Errorf("%d of %d rows are no longer in the trash: another session has changed it",
				int64(len(rows))-tag.RowsAffected(), len(rows))
		}
		return err
	})
	state := sqlstate.Of(err) // of class 54 if an index has no room for the value
	ofRow := errors.Is(err, errSuppressed) || sqlstate.OfRow(err) || strings.HasPrefix(state, "54")
	if sqlstate.Is(err, pgerrcode.LockNotAvailable) && r.locked < mostLocked {
		// Another session has the key of one row, or refers to it, and has not committed: the others need not wait for it.
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '50ms'"); err != nil {
			return err
		}
		if ofRow = true; len(rows) == 1 {
			r.locked++
		}
	}
	switch {
	case err == nil:
		r.result.Rows += int64(len(rows))
	case len(rows) > 1 && (ofRow || sqlstate.Is(err, pgerrcode.QueryCanceled)): // or they take too long together
		if err := r.put(ctx, tx, t, rows[:len(rows)/2]); err != nil {
			return err
		}
		return r.put(ctx, tx, t, rows[len(rows)/2:])
	case sqlstate.Is(err, pgerrcode.UniqueViolation):
		r.result.Existing++
	case ofRow, strings.HasPrefix(state, "42"): // a type has no cast to that of its column, or rights are missing
		r.fail(len(rows), purge.Message(err))
	default:
		return err
	}
	return nil
}
