package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/mysqlerr"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/userdata"
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
	return created, userdata.Migrate(ctx, conn)
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
		store.MigrationPending, userdata.MigrationPending,
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

const standbyFlag = "--preview-database-url"

// parseStandby returns nil without a URL.
func parseStandby(address string) (*pgxpool.Config, error) {
	if address == "" {
		return nil, nil
	}
	config, err := flags.DatabaseURL(standbyFlag, address)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.ValidateConnect = connection.InRecovery // of several hosts, use a standby, even after a failover
	return config, nil
}

// connectStandby only warns if the standby does not answer, but fails if the server is not a standby of this
// database.
func (s *Server) connectStandby(ctx context.Context, c *Config) (err error) {
	config := c.standby
	if config == nil {
		return nil
	}
	config.ConnConfig.Tracer = c.tracer
	config.MaxConns += int32(c.runs.Workers)
	if s.standby, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("%s: %w", standbyFlag, err)
	}
	err = cleanup.CheckStandby(ctx, s.pool, s.standby)
	if errors.Is(err, cleanup.ErrNotStandby) {
		return flags.Errorf("%s: %w", standbyFlag, err)
	}
	if err != nil {
		s.log.Warn("the standby that dry runs read does not answer; they fail until it does", "error", err)
	}
	return nil
}

// keepDeliveries is given instead of a URL if the server's deliveries must be kept.
const keepDeliveries = "keep"

// parseMidSourcing parses entries of the form NAME=URL or NAME=keep, where NAME is the name of an external account.
// It does not connect.
func parseMidSourcing(entries []string) (databases map[string]*pgxpool.Config, keep []string, err error) {
	databases = map[string]*pgxpool.Config{}
	var mistakes []error
	for _, entry := range entries {
		name, url, _ := strings.Cut(entry, "=")
		switch {
		case name == "" || url == "":
			mistakes = append(mistakes, flags.Errorf("--mid-sourcing must be NAME=URL or NAME=%s", keepDeliveries))
		case databases[name] != nil || slices.Contains(keep, name):
			mistakes = append(mistakes, flags.Errorf("--mid-sourcing: %s is given twice", name))
		case url == keepDeliveries:
			keep = append(keep, name)
		default:
			databases[name], err = flags.DatabaseURL("--mid-sourcing "+name, url)
			mistakes = append(mistakes, err)
		}
	}
	return databases, keep, errors.Join(mistakes...)
}

// connectMidSourcing only warns if a database does not answer, since it may answer when a run needs it. It returns a
// usage error if one of the databases is the main database.
func (s *Server) connectMidSourcing(ctx context.Context, c *Config) error {
	s.midSourcing = map[string]*pgxpool.Pool{}
	for name, config := range c.midSourcingDatabases {
		config.ConnConfig.Tracer = c.tracer
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("--mid-sourcing %s: %w", name, err)
		}
		s.midSourcing[name] = pool
		err = cleanup.CheckMidSourcing(ctx, s.pool, pool)
		if errors.Is(err, cleanup.ErrSameDatabase) {
			return flags.Errorf("--mid-sourcing %s: %w", name, err)
		}
		if err != nil {
			s.log.Warn("a mid-sourcing database does not answer; its deliveries are kept until it does", "name", name,
				"error", err)
		}
	}
	return nil
}

// waitForDatabase calls connect until it succeeds, the database rejects it, or the timeout passes. It logs each
// reason for waiting once.
func waitForDatabase(ctx context.Context, log *slog.Logger, timeout time.Duration, connect func() error) error {
	if timeout == 0 {
		return connect()
	}
	logged := map[string]bool{}
	_, err := backoff.Retry(ctx, func() (any, error) {
		err := connect()
		var refused *pgconn.PgError
		switch {
		case err == nil:
			return nil, nil
		case !sqlstate.Lost(err) && !mysqlerr.Lost(err),
			errors.As(err, &refused) && pgerrcode.IsInvalidAuthorizationSpecification(refused.Code):
			return nil, backoff.Permanent(err)
		case !logged[err.Error()]:
			logged[err.Error()] = true
			log.Info("waiting for a database", "error", terminal.OneLine(sqlstate.Text(err)), "for", timeout)
		}
		return nil, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(500*time.Millisecond)), backoff.WithMaxElapsedTime(timeout))
	return err
}
