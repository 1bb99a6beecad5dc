package store

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate creates the schema cleanupd, or updates it.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "schema_version")
}
