package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/userdata"
)

// oldestServer is the first PostgreSQL with TID range scans, as in server_version_num.
const oldestServer = 140000

// migrateDatabase connects, checks that the server will do, and brings the schema cleanupd up to date.
func migrateDatabase(ctx context.Context, config *pgxpool.Config) error {
	conn, err := connection.Connect(ctx, config)
	if err != nil {
		return fmt.Errorf("cannot connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := refusePooler(ctx, config, conn); err != nil {
		return err
	}
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return err
	}
	if version < oldestServer {
		return fmt.Errorf("PostgreSQL 14 or later is needed, the server is version %d", version/10000)
	}
	if err := runs.Migrate(ctx, conn); err != nil {
		return err
	}
	return userdata.Migrate(ctx, conn)
}

// errPooler says that sessions are shared, which breaks advisory locks, notifications and prepared statements.
var errPooler = errors.New(
	"the database is behind a pooler in transaction mode: cleanupd needs session connections (LISTEN, advisory " +
		"locks); connect to PostgreSQL itself, or to a pool in session mode",
)

// refusePooler fails if a connection changes its server process between transactions: a second connection keeps a
// process busy, so that a pooler must give the first connection another one. It prepares no statement, which such a
// pooler loses.
func refusePooler(ctx context.Context, config *pgxpool.Config, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 2*flags.ConnectTimeout)
	defer cancel()
	const process = "SELECT pg_backend_pid()"
	var before, after int
	if err := conn.QueryRow(ctx, process, pgx.QueryExecModeExec).Scan(&before); err != nil {
		return err
	}
	other, err := connection.Connect(ctx, config)
	if err != nil {
		return fmt.Errorf("two connections to the database are needed at least; there was no second one: %w", err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	if _, err := other.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, process, pgx.QueryExecModeExec).Scan(&after); err != nil {
		return err
	}
	if before != after {
		return errPooler
	}
	return nil
}
