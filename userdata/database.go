package userdata

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/readiness"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate creates or updates what erasures need in the schema cleanupd of a Forms database.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "forms_schema_version")
}

// ErrNotForms says that tables of AEM Forms are missing in the database.
var ErrNotForms = errors.New("this is no AEM Forms database")

// Config says what to work on.
type Config struct {
	// Pool is the Forms server's database.
	Pool *pgxpool.Pool
	// Folder is the document storage's folder; empty: it is not in a folder.
	Folder string
	// InDatabase says that the document storage is in the database.
	InDatabase bool
	// Manager is the Forms server's; nil: only its database is changed.
	Manager ProcessManager
	// Lease is how long a silent replica keeps its erasure; 0: DefaultLease.
	Lease time.Duration
}

// DefaultLease is Config's.
const DefaultLease = 15 * time.Second

// Database is a Forms database with its document storage.
type Database struct {
	Config
	wake      chan struct{}
	readiness readiness.Check
}

// New returns a database to work on. It does not connect.
func New(c Config) *Database {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	return &Database{Config: c, wake: make(chan struct{}, 1)}
}

// needed are the tables without which nothing can be found; stored are those of a document storage in the database.
var (
	needed = []string{"edcprincipalentity", "tb_task", "tb_assignment", "tb_queue", "tb_process_instance", "omd_object_type", "tb_form_data"}
	stored = []string{"tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion"}
)

// check fails when tables are missing.
func (d *Database) check(ctx context.Context, db querier) error {
	names := needed
	if d.InDatabase {
		names = append(names[:len(names):len(names)], stored...)
	}
	var missing []string
	if err := db.QueryRow(ctx, "SELECT COALESCE(array_agg(name), '{}') FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL", names).Scan(&missing); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it lacks %v; check its name, and the role's search_path", ErrNotForms, missing)
	}
	return nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// collect reads the rows of a query.
func collect[T any](ctx context.Context, db querier, to pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, to)
}
