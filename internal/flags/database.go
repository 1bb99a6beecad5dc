package flags

import (
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
)

// connectTimeout is how long the database may take to answer, unless its URL says otherwise.
const ConnectTimeout = 10 * time.Second

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

// parseDatabaseURL parses the URL of a flag without connecting. A connection begins in the time zone of the database or
// the role, whatever the environment of this process says: dates without a zone are read in it where the application
// names no other.
func DatabaseURL(flag, address string) (*pgxpool.Config, error) {
	if address == "" {
		return nil, Errorf("%s is required: postgres://USER@HOST/DATABASE", flag)
	}
	// pgx takes one with a = in it for a parameter of the session, which the server's refusal would quote.
	if scheme, _, isURL := strings.Cut(
		address,
		"://",
	); isURL && scheme != "postgres" && scheme != "postgresql" &&
		!strings.Contains(scheme, "=") {
		return nil, Errorf("%s: does not begin with postgres:// or postgresql://", flag)
	}
	config, err := pgxpool.ParseConfig(address)
	if u, _ := url.Parse(address); err != nil && (u == nil || u.User == nil) && strings.Contains(address, "@") {
		// pgx would quote what it takes for a port, or a path: a part of the password.
		return nil, Errorf(
			"%s: can not be read; characters such as / ? # and blanks must be percent-encoded in a password, and a "+
				"port is a number",
			flag,
		)
	}
	if err != nil {
		return nil, Errorf("%s: %w", flag, err) // pgx leaves passwords out
	}
	// pgx would go on without the file
	if file := passwordFile(address); file != "" && config.ConnConfig.Password == "" {
		if _, err := os.ReadFile(file); err != nil {
			return nil, Errorf("%s: the password file: %w", flag, err)
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
		config.ConnConfig.ConnectTimeout = ConnectTimeout
	}
	if config.ConnConfig.ValidateConnect == nil { // of several hosts use the primary, even after a failover
		config.ConnConfig.ValidateConnect = connection.TakesWrites
	}
	switch mode := config.ConnConfig.DefaultQueryExecMode; mode {
	case pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec:
		// arrays and JSON need the types that only the server knows
		return nil, Errorf(
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

// passwordFile is the file that holds the password of a database, as its URL or the environment says; empty: neither
// does.
func passwordFile(address string) string {
	if u, err := url.Parse(address); err == nil && u.Query().Has("passfile") {
		return u.Query().Get("passfile")
	}
	return os.Getenv("PGPASSFILE")
}
