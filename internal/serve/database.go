package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/userdata/record"
)

// minServerVersion is the first PostgreSQL with TID range scans, in the form of server_version_num.
const minServerVersion = 140000

// migrateDatabase checks that the server is supported, and creates or updates the schema cleanupd. Unless published is
// true, it creates nothing that would be published.
func migrateDatabase(ctx context.Context, config *pgxpool.Config, published bool) (created bool, err error) {
	conn, err := connection.Connect(ctx, config)
	if err != nil {
		return false, fmt.Errorf("cannot connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := refusePooler(ctx, config, conn); err != nil {
		return false, err
	}
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return false, err
	}
	if version < minServerVersion {
		return false, fmt.Errorf("cleanupd needs PostgreSQL 14 or later; the server is version %d", version/10000)
	}
	if created, err = lacksSchema(ctx, conn); err != nil {
		return false, err
	}
	if !published {
		if err := refusePublished(ctx, conn); err != nil {
			return false, err
		}
	}
	if err := store.Migrate(ctx, conn); err != nil {
		return false, err
	}
	return created, record.Migrate(ctx, conn)
}

func lacksSchema(ctx context.Context, conn *pgx.Conn) (lacks bool, err error) {
	err = conn.QueryRow(ctx, "SELECT to_regnamespace('cleanupd') IS NULL").Scan(&lacks)
	return lacks, err
}

// refusePublished ignores publications if no tables of the schema cleanupd have to be created or changed.
func refusePublished(ctx context.Context, conn *pgx.Conn) error {
	refused := migrate.Unpublished(ctx, conn)
	if refused == nil {
		return nil
	}
	for _, pending := range []func(context.Context, *pgx.Conn) (bool, error){
		store.MigrationPending, record.MigrationPending,
	} {
		if is, err := pending(ctx, conn); is || err != nil {
			return errors.Join(err, refused)
		}
	}
	return nil
}

// errPooler refuses sessions that are shared, which break advisory locks, notifications and prepared statements.
var errPooler = errors.New(
	"the database is behind a pooler in transaction mode: cleanupd needs session connections (LISTEN, advisory " +
		"locks); connect to PostgreSQL itself, or to a pool in session mode",
)

// refusePooler fails if a connection changes its server process between transactions. A second connection keeps one
// process busy, so that a pooler must give another one to the first connection. It prepares no statement, since such
// a pooler would lose it.
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
		return fmt.Errorf("at least two connections to the database are needed, and the second one failed: %w", err)
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
