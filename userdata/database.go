package userdata

import (
	"cmp"
	"context"
	"embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/readiness"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate creates or updates the record of erasures, in the schema cleanupd of the service's own database.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "forms_schema_version")
}

// Config says what to work on.
type Config struct {
	// Record is the service's own database, in which erasures are requested and recorded.
	Record *pgxpool.Pool
	// Forms is the Forms server's database.
	Forms *Forms
	// Folder is the document storage's folder; empty: it is not in a folder.
	Folder string
	// InDatabase says that the document storage is in the database.
	InDatabase bool
	// Manager is the Forms server's; nil: only its database is changed.
	Manager ProcessManager
	// Lease is how long a silent replica keeps its erasure; 0: DefaultLease.
	Lease time.Duration
	// Own fails where nothing may be changed, since the record is another instance's, or a copy; nil: it is this one's.
	Own func(ctx context.Context) error
	// Held fails while nothing may be erased, since everything is held; nil: nothing is.
	Held func(ctx context.Context) error
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
	free := func(context.Context) error { return nil }
	if c.Own == nil {
		c.Own = free
	}
	if c.Held == nil {
		c.Held = free
	}
	return &Database{Config: c, wake: make(chan struct{}, 1)}
}

// collect reads the rows of a query.
func collect[T any](
	ctx context.Context,
	db outside.Querier,
	to pgx.RowToFunc[T],
	sql string,
	args ...any,
) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, to)
}
