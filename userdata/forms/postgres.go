package forms

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// PostgreSQL returns a Database that closes the pool when it is closed.
func PostgreSQL(pool *pgxpool.Pool) *Database {
	return &Database{db: stdlib.OpenDBFromPool(pool), dialect: postgres{}, close: pool.Close}
}

// postgres keeps the service's own tables in the schema cleanupd.
type postgres struct{}

func (postgres) parameter(n int) string { return fmt.Sprintf("$%d", n) }

func (postgres) literal(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}

func (postgres) Quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func (postgres) ownTable(table string) string { return "cleanupd.forms_" + table }

func (d postgres) schema() []string {
	return append([]string{"CREATE SCHEMA IF NOT EXISTS cleanupd"}, ownTables(d, "text", "text")...)
}

// SchemaSQL returns the statements that create the service's own tables. It adds no rows.
func SchemaSQL() string { return strings.Join(postgres{}.schema(), ";\n") + ";\n" }

// Unpublished fails if the service's own tables are missing and would be part of a publication when they are
// created.
func Unpublished(ctx context.Context, conn *pgx.Conn) error {
	var tables int
	if err := conn.QueryRow(
		ctx,
		`SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'cleanupd'
			AND c.relname IN ('forms_identity', 'forms_erasure', 'forms_ledger')`,
	).Scan(&tables); err != nil || tables == 3 {
		return err
	}
	return migrate.Unpublished(ctx, conn)
}

func (postgres) in(column, list string) string { return fmt.Sprintf("%s IN (%s)", column, list) }

func (postgres) same(a, b string) string { return a + " = " + b }

func (d postgres) HasID(c Column, ids []int64) string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = fmt.Sprintf("'%d'::%s", id, c.Cast)
	}
	return fmt.Sprintf("r.%s IN (%s)", d.Quote(c.Name), strings.Join(list, ", "))
}

// These types can be searched for a user id. Floating-point numbers are exact only as text: a cast to numeric rounds
// them to 6 or 15 digits.
var (
	pgNumbers = []string{"smallint", "integer", "bigint", "numeric"}
	pgFloats  = []string{"real", "double precision"}
	pgTexts   = []string{"text", "character varying", "character", "xml", "json", "jsonb", "uuid", "name"}
)

func (d postgres) Contains(c Column) (condition, value string, ok bool) {
	value = d.Quote(c.Name) + "::text"
	switch {
	case slices.Contains(pgNumbers, c.Type):
		return d.Quote(c.Name) + "::numeric = @user::text::numeric", value, true
	case slices.Contains(pgFloats, c.Type):
		return value + "::numeric = @user::text::numeric", value, true
	case slices.Contains(pgTexts, c.Type):
		return fmt.Sprintf("strpos(%s, @user) > 0", value), value, true
	}
	return "", "", false
}

var pgDates = []string{"date", "timestamp without time zone", "timestamp with time zone"}

// Before takes a date without a time zone to be in the database's.
func (d postgres) Before(c Column) string {
	name := "r." + d.Quote(c.Name)
	return fmt.Sprintf("%[1]s >= to_timestamp(0) AND %[1]s < to_timestamp(@cutoff)", name)
}

func (d postgres) Seconds(c Column) string {
	return fmt.Sprintf("floor(extract(epoch FROM r.%s::timestamptz))::bigint", d.Quote(c.Name))
}

func (postgres) missing(ctx context.Context, tx *Transaction, tables []string) ([]string, error) {
	list := make([]string, len(tables))
	for i, t := range tables {
		list[i] = "(" + tx.literal(t) + ")"
	}
	return tx.texts(ctx,
		"SELECT name FROM (VALUES "+strings.Join(list, ", ")+") AS t (name) WHERE to_regclass(name) IS NULL", nil)
}

func (postgres) tablesLike(ctx context.Context, tx *Transaction, names []string) ([]string, error) {
	return tx.texts(
		ctx,
		`SELECT relname::text FROM pg_class WHERE lower(relname) IN (@names) AND relkind IN ('r', 'p') AND relnamespace =
			(SELECT relnamespace FROM pg_class WHERE oid = to_regclass('tb_process_instance'))`,
		Args{"names": names},
	)
}

// columns compares an id in the type of its column without a length, so that a cast does not truncate the id, and in
// bigint if the type is a smaller integer.
func (postgres) columns(ctx context.Context, tx *Transaction, tables []string) (list []Column, err error) {
	var c Column
	err = tx.Each(
		ctx,
		`SELECT c.relname::text, format('%I.%I', n.nspname, c.relname), a.attname::text, format_type(a.atttypid, NULL),
		CASE
			WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype) THEN 'int8' ELSE (SELECT format('%I.%I', tn.nspname,
			t.typname) FROM pg_type t JOIN pg_namespace tn ON tn.oid = t.typnamespace WHERE t.oid = a.atttypid) END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
			AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relname IN (@tables) AND c.relkind IN ('r', 'p') AND c.relnamespace = (SELECT relnamespace
			FROM pg_class WHERE oid = to_regclass('tb_process_instance'))
		ORDER BY c.relname, a.attnum`,
		Args{"tables": tables}, []any{&c.Table, &c.Quoted, &c.Name, &c.Type, &c.Cast},
		func() {
			c.Number = slices.Contains(pgNumbers, c.Type) || slices.Contains(pgFloats, c.Type)
			c.Date = slices.Contains(pgDates, c.Type)
			list = append(list, c)
		},
	)
	return list, err
}

func (postgres) settings() []string {
	return []string{
		fmt.Sprintf("SET LOCAL lock_timeout = %d", LockTimeout.Milliseconds()), "SET LOCAL statement_timeout = '10min'",
	}
}

func (postgres) isolation() sql.IsolationLevel { return sql.LevelReadCommitted }

func (postgres) delete(
	ctx context.Context, tx *Transaction, table, condition, key string, a Args,
) (map[string]int64, error) {
	return tx.counts(ctx,
		fmt.Sprintf(
			"WITH deleted AS (DELETE FROM %s AS r WHERE %s RETURNING %s AS key) SELECT key, count(*) FROM deleted GROUP BY key",
			table, condition, key),
		a)
}

func (postgres) lockClause() string { return "" }

func (postgres) lockReferences(ctx context.Context, tx *Transaction) error {
	_, err := tx.tx.ExecContext(ctx, "LOCK TABLE tb_dm_session_reference IN SHARE ROW EXCLUSIVE MODE")
	return err
}

func (postgres) Transient(err error) bool {
	return sqlstate.Is(err, pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable)
}

func (postgres) Lost(err error) bool { return sqlstate.Lost(err) || errors.Is(err, driver.ErrBadConn) }

func (postgres) duplicate(err error) bool {
	return sqlstate.Is(err, pgerrcode.UniqueViolation, pgerrcode.DuplicateTable, pgerrcode.DuplicateSchema)
}
