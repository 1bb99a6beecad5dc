// Package trash keeps the rows that runs delete for a while, and restores them.
//
// For each task and relation, a run has a table in the schema cleanupd_trash, called an entry. The statement that
// deletes rows inserts them there (purge.Trash), so that a row is in one place at any time, and the batch counts them
// in the same transaction. A table of the trash has the columns of its relation and nothing else: no constraint, index
// or default. Values of types that an extension or the application could drop are kept as text.
package trash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Schema is where the tables of the trash are. It belongs to the service's role, and no other role has rights on it.
const Schema = "cleanupd_trash"

// MaxKeep is the longest time that rows may wait in the trash.
const MaxKeep = 90 * 24 * time.Hour

// KeepProblem returns what is wrong with the time for which the trash is to keep rows; "" if it is valid or nil.
func KeepProblem(keep *time.Duration) string {
	if keep == nil || 0 <= *keep && *keep <= MaxKeep {
		return ""
	}
	return "must be from 0, for no undo, to 90 days"
}

// BytesSQL selects the size of the trash of all runs.
const BytesSQL = `SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = to_regnamespace('cleanupd_trash') AND c.relkind = 'r'`

// Size is the size of the trash of all runs.
type Size struct {
	Bytes, Rows int64
	NextExpiry  *time.Time // nil if nothing expires
}

func ReadSize(ctx context.Context, db campaign.Querier) (s Size, err error) {
	err = db.QueryRow(ctx, "SELECT ("+BytesSQL+`),
			COALESCE(sum(`+RowsLeft+`), 0)::bigint, min(expire_time)
		FROM cleanupd.trash WHERE end_time IS NULL`).Scan(&s.Bytes, &s.Rows, &s.NextExpiry)
	return s, err
}

// DefaultMaxBytes returns how large the trash may become by default: a tenth of the database, from 64 MiB to 10 GiB.
func DefaultMaxBytes(ctx context.Context, db campaign.Querier) (bytes int64, err error) {
	const least, most = 64 << 20, 10 << 30
	err = db.QueryRow(ctx, "SELECT least($2, greatest($1::bigint, pg_database_size(current_database()) / 10))",
		int64(least), int64(most)).Scan(&bytes)
	return bytes, err
}

type Can struct {
	Pool *pgxpool.Pool
	Run  string // its id
}

// Put sets s.Trash, so that deleted rows, and rows their foreign keys delete, stay in the trash for keep after the run
// ends. The sweep must be undoable (purge.Sweep.NotUndoable).
func (c *Can) Put(ctx context.Context, task string, keep time.Duration, s *purge.Sweep) error {
	t := &purge.Trash{}
	entry := func(relation, root string) (purge.TrashTable, error) {
		table, err := c.entry(ctx, task, keep, relation, root)
		if err != nil {
			err = fmt.Errorf("create the trash table for %s: %w", relation, err)
		}
		return table, err
	}
	var err error
	// Those that refer to others come first, since entries are restored in the reverse order.
	if below := s.Below(); len(below) > 0 {
		t.Cascaded = make([]purge.TrashTable, len(s.Cascade.Tables))
		for i := len(below) - 1; i >= 0; i-- {
			name := s.Cascade.Tables[below[i]]
			if t.Cascaded[below[i]], err = entry(name, name); err != nil {
				return err
			}
		}
	}
	if s.Paired != nil {
		paired, err := entry(s.Paired.Relation, s.Paired.Relation)
		if err != nil {
			return err
		}
		t.Paired = &paired
	}
	root := s.Relation
	if s.Partition {
		root = s.Root
	}
	if t.Rows, err = entry(s.Relation, root); err != nil {
		return err
	}
	s.Trash = t
	return nil
}

// Count queues the statements that count what a batch moved to the trash and back, in its transaction.
func Count(b *pgx.Batch, d purge.Delta) {
	for _, t := range d.Trashed {
		b.Queue("UPDATE cleanupd.trash SET rows_trashed = rows_trashed + $2 WHERE id = $1", t.Entry, t.Rows)
	}
	for _, t := range d.Restored {
		b.Queue("UPDATE cleanupd.trash SET rows_restored = rows_restored + $2 WHERE id = $1", t.Entry, t.Rows)
	}
}

// Prepare creates the schema of the trash if it is missing and onlyCheck is not set. It fails if the role lacks the
// right, if another role owns the schema, or if a publication of all tables would publish it.
func Prepare(ctx context.Context, pool *pgxpool.Pool, onlyCheck bool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := Unpublished(ctx, tx); err != nil {
			return err
		}
		var there, ours, may bool
		err := tx.QueryRow(ctx, `SELECT count(n) > 0, COALESCE(bool_and(nspowner = current_user::regrole), true),
				has_database_privilege(current_database(), 'CREATE')
			FROM pg_namespace n WHERE nspname = $1`, Schema).Scan(&there, &ours, &may)
		switch {
		case err != nil:
			return err
		case !ours:
			return notReady("the schema cleanupd_trash belongs to another role: rename it")
		case !there && !may:
			return notReady("cannot create schema cleanupd_trash: run deploy/role.sql again")
		case there || onlyCheck:
			return nil
		}
		_, err = tx.Exec(ctx, "CREATE SCHEMA "+Schema)
		return err
	})
}

// Unpublished fails if a publication of all tables publishes the trash: subscribers that lack its tables would stop,
// and rows without a replica identity cannot be deleted from it.
func Unpublished(ctx context.Context, db campaign.Querier) error {
	var name *string
	err := db.QueryRow(ctx, "SELECT min(quote_ident(pubname)) FROM pg_publication WHERE puballtables").Scan(&name)
	if err == nil && name != nil {
		return notReady(fmt.Sprintf("the publication %s of all tables would publish the trash: name its tables instead",
			*name))
	}
	return err
}

func notReady(why string) error {
	return &failure.Refusal{
		Reason:  failure.ReasonNotUndoable,
		Message: "rows cannot go to the trash or come back: " + why + "; a run without undo needs no trash",
	}
}

// columnsSQL selects the columns of a relation $1 with their types, and the types in which the trash keeps them: a type
// that PostgreSQL comes with as it is, a domain over one as its base type, and all others as text.
const columnsSQL = `
SELECT quote_ident(a.attname),
  (SELECT format('%I.%I', n.nspname, t.typname) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid = a.atttypid),
  CASE WHEN base.oid < 16384 THEN format_type(base.oid, -1) ELSE 'pg_catalog.text' END,
  base.oid = a.atttypid AND base.oid < 16384, a.attgenerated <> ''
FROM pg_attribute a CROSS JOIN LATERAL (
  WITH RECURSIVE below (oid, next) AS (SELECT oid, typbasetype FROM pg_type WHERE oid = a.atttypid
    UNION ALL SELECT t.oid, t.typbasetype FROM below JOIN pg_type t ON t.oid = below.next)
  SELECT oid FROM below WHERE next = 0) AS base
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

// column is a column of an entry, as it was when the rows were deleted.
type column struct {
	Name      string `json:"name"`           // quoted
	Base      string `json:"base"`           // the quoted name of the type, with its schema
	Kept      string `json:"kept"`           // the type in the trash
	Same      bool   `json:"same,omitempty"` // the value is kept as it is
	Generated bool   `json:"generated,omitempty"`
}

// asText is the type in which the trash keeps values of types that are not built into PostgreSQL.
const asText = "pg_catalog.text"

// kept is the format for purge.TrashColumn.Kept. A cast to text may be a function of the application, which changes the
// value, and would run as this role; format calls only the output function of the type.
func (c column) kept() string {
	switch {
	case c.Same:
		return ""
	case c.isCast():
		return "CASE WHEN pg_catalog.num_nulls(%[1]s) = 0 THEN pg_catalog.format('%%s', %[1]s) END"
	}
	return "%[1]s::" + c.Kept
}

func (c column) isCast() bool { return c.Kept == asText && !c.Same }

// back is the value of a column for a column of another type. Assigning it checks its length and its domain, as for any
// INSERT; a cast to the type with its length would cut it off. The cast is from varchar: an application may have casts
// of text, but hardly of varchar.
func (c column) back(row, typ string) string {
	if c.isCast() {
		return fmt.Sprintf("%s.%s::pg_catalog.varchar::%s", row, c.Name, typ)
	}
	return row + "." + c.Name
}

// entry returns the table of the trash for rows of a relation that belong into the table root, and creates it if the
// run does not have it yet. If the columns of the relation have changed since, it gets another one.
func (c *Can) entry(ctx context.Context, task string, keep time.Duration, relation, root string) (
	t purge.TrashTable, err error,
) {
	err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		t = purge.TrashTable{Relation: relation}
		err := tx.QueryRow(ctx, "SELECT ("+purge.ColumnsSQL+") FROM CAST($1 AS text) AS r (name)", relation).
			Scan(&t.Facts)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, columnsSQL, relation)
		columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
		if err != nil {
			return err
		}
		var defined []string
		for _, c := range columns {
			t.Columns = append(t.Columns, purge.TrashColumn{Name: c.Name, Kept: c.kept()})
			defined = append(defined, c.Name+" "+c.Kept)
		}
		var name string
		err = tx.QueryRow(ctx, `SELECT id, name FROM cleanupd.trash WHERE run_id = $1 AND task = $2 AND root = $3
			AND kind = 'ROWS' AND columns = $4`, c.Run, task, root, columns).Scan(&t.Entry, &name)
		if errors.Is(err, pgx.ErrNoRows) {
			err = tx.QueryRow(ctx, `INSERT INTO cleanupd.trash (run_id, task, kind, root, columns, keep)
				VALUES ($1, $2, 'ROWS', $3, $4, $5) RETURNING id, name`, c.Run, task, root, columns, keep).
				Scan(&t.Entry, &name)
			if err == nil {
				_, err = tx.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s) "+
					"WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)",
					quoted(Schema, name), strings.Join(defined, ", ")))
			}
		}
		t.Table = quoted(Schema, name)
		return err
	})
	return t, err
}
