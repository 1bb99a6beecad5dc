package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/userdata/record"
)

// connectTimeout is how long the database may take to answer, unless its URL says otherwise.
const connectTimeout = 10 * time.Second

// sessionDefaults apply unless the URL says otherwise. No query of ours waits forever, for a lock or for its result
// (batches have shorter timeouts of their own), and no transaction of a frozen process keeps its locks. A session that
// holds locks may be idle, but ends within two minutes of its host.
var sessionDefaults = map[string]string{
	"application_name":                    "cleanupd",
	"lock_timeout":                        "10s",
	"statement_timeout":                   "10min",
	"idle_in_transaction_session_timeout": "10s",
	"idle_session_timeout":                "0",
	"tcp_keepalives_idle":                 "60",
	"tcp_keepalives_interval":             "10",
	"tcp_keepalives_count":                "6",
}

// oldestServer is the first PostgreSQL with TID range scans, as in server_version_num.
const oldestServer = 140000

// parseDatabaseURL parses the URL of a flag without connecting. A connection begins in the time zone of the database or
// the role, whatever the environment of this process says: dates without a zone are read in it where the application
// names no other.
func parseDatabaseURL(flag, address string) (*pgxpool.Config, error) {
	if address == "" {
		return nil, usagef("%s is required: postgres://USER@HOST/DATABASE", flag)
	}
	// pgx takes one with a = in it for a parameter of the session, which the server's refusal would quote.
	if scheme, _, isURL := strings.Cut(
		address,
		"://",
	); isURL && scheme != "postgres" && scheme != "postgresql" &&
		!strings.Contains(scheme, "=") {
		return nil, usagef("%s: does not begin with postgres:// or postgresql://", flag)
	}
	config, err := pgxpool.ParseConfig(address)
	if u, _ := url.Parse(address); err != nil && (u == nil || u.User == nil) && strings.Contains(address, "@") {
		// pgx would quote what it takes for a port, or a path: a part of the password.
		return nil, usagef(
			"%s: can not be read; characters such as / ? # and blanks must be percent-encoded in a password, and a "+
				"port is a number",
			flag,
		)
	}
	if err != nil {
		return nil, usagef("%s: %w", flag, err) // pgx leaves passwords out
	}
	// pgx would go on without the file
	if file := passwordFile(address); file != "" && config.ConnConfig.Password == "" {
		if _, err := os.ReadFile(file); err != nil {
			return nil, usagef("%s: the password file: %w", flag, err)
		}
	}
	for name := range config.ConnConfig.RuntimeParams {
		if strings.EqualFold(name, "timezone") {
			delete(config.ConnConfig.RuntimeParams, name)
		}
	}
	for name, value := range sessionDefaults {
		if config.ConnConfig.RuntimeParams[name] == "" {
			config.ConnConfig.RuntimeParams[name] = value
		}
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if config.ConnConfig.ValidateConnect == nil { // of several hosts use the primary, even after a failover
		config.ConnConfig.ValidateConnect = connection.TakesWrites
	}
	switch mode := config.ConnConfig.DefaultQueryExecMode; mode {
	case pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec:
		// arrays and JSON need the types that only the server knows
		return nil, usagef(
			"%s: default_query_exec_mode=%s will not do; leave it out, or behind a pooler in session mode use "+
				"cache_describe",
			flag,
			strings.ReplaceAll(mode.String(), " ", "_"),
		)
	}
	connection.Defer(config.ConnConfig)
	connection.UTF8(config.ConnConfig)
	config.BeforeConnect, config.AfterConnect, config.PrepareConn = connection.Refresh(
		address,
	), connection.Storable, connection.Zone
	if !strings.Contains(address, "pool_max_conns=") {
		config.MaxConns = max(config.MaxConns, 10) // for runs
	}
	return config, nil
}

// callConns is how many connections there are for callers' calls, and callTimeout how long a statement of one may take,
// whatever the URL says.
const (
	callConns   = 8
	callTimeout = "5s"
)

// forCalls is the configuration of the pool for callers' calls.
func forCalls(config *pgxpool.Config) *pgxpool.Config {
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = callConns, 0, 0
	connection.Set(config.ConnConfig, map[string]string{"statement_timeout": callTimeout})
	return config
}

// enough is how many connections a replica can do with, besides one for each worker: for the account of a run, its
// lease and the load of the server, for notifications, VACUUM and callers. fewest is how many it needs.
const (
	enough = 7
	fewest = 2
)

// room returns how many connections the database grants to a pool, up to the number wanted. Connections that were just
// closed may still count there for a moment: where there are too few it asks again.
func room(ctx context.Context, pool *pgxpool.Pool, wanted int) int {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout/2)
	defer cancel()
	n := 0
	for {
		if n = max(n, granted(ctx, pool, wanted)); n >= fewest {
			return n
		}
		select {
		case <-ctx.Done():
			return n
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// granted returns how many connections the database grants to a pool at this moment. The pool keeps them.
func granted(ctx context.Context, pool *pgxpool.Pool, wanted int) int {
	acquired := make([]*pgxpool.Conn, wanted)
	var wg sync.WaitGroup
	for i := range acquired {
		wg.Go(func() { acquired[i], _ = pool.Acquire(ctx) })
	}
	wg.Wait()
	n := 0
	for _, conn := range acquired {
		if conn != nil {
			n++
			conn.Release()
		}
	}
	return n
}

// passwordFile is the file that holds the password of a database, as its URL or the environment says; empty: neither
// does.
func passwordFile(address string) string {
	if u, err := url.Parse(address); err == nil && u.Query().Has("passfile") {
		return u.Query().Get("passfile")
	}
	return os.Getenv("PGPASSFILE")
}

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
	if err := store.Migrate(ctx, conn); err != nil {
		return err
	}
	return record.Migrate(ctx, conn)
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
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
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
