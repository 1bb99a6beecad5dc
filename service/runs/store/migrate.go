package store

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "schema_version")
}

func MigrationPending(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return migrate.Pending(ctx, conn, migrations, "schema_version")
}

// SchemaSQL returns the SQL that creates the tables, without any rows.
func SchemaSQL() (string, error) { return migrate.SQL(migrations, "schema_version") }
