package flags

import (
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/connection"
)

// ConnectTimeout applies unless the URL has another limit.
const ConnectTimeout = 10 * time.Second

// sessionDefaults are the settings that a URL may override. No query waits forever for a lock or for its result
// (batches have shorter timeouts), and a frozen process does not keep the locks of its transaction. A session that
// holds advisory locks may be idle, but ends within two minutes after its host is lost. jit is off, since compiling
// queries of catalogs takes seconds; reads of tables reset it.
var sessionDefaults = map[string]string{
	"application_name":                    "cleanupd",
	"lock_timeout":                        "10s",
	"statement_timeout":                   "10min",
	"idle_in_transaction_session_timeout": "10s",
	"idle_session_timeout":                "0",
	"jit":                                 "off",
	"tcp_keepalives_idle":                 "60",
	"tcp_keepalives_interval":             "10",
	"tcp_keepalives_count":                "6",
}

// AddDatabaseURL is for commands that connect to the database themselves.
func AddDatabaseURL(f *pflag.FlagSet, url *string) {
	f.StringVar(url, "database-url", "",
		"the database to clean: postgres://USER@HOST/DATABASE (required); the password is in it, or in the file that "+
			"?passfile= or PGPASSFILE names")
}

// DatabaseURL parses the URL without connecting. Connections begin in the time zone of the database or the role, not
// in that of this process, since dates without a zone are in that zone unless the application names another one.
func DatabaseURL(flag, address string) (*pgxpool.Config, error) {
	if address == "" {
		return nil, Errorf("%s is required: postgres://USER@HOST/DATABASE", flag)
	}
	// pgx would send a scheme with a = in it to the server as a setting; the server's error would quote it.
	scheme, _, isURL := strings.Cut(address, "://")
	if isURL && scheme != "postgres" && scheme != "postgresql" && !strings.Contains(scheme, "=") {
		return nil, Errorf("%s: the URL must begin with postgres:// or postgresql://", flag)
	}
	config, err := pgxpool.ParseConfig(address)
	if u, _ := url.Parse(address); err != nil && (u == nil || u.User == nil) && strings.Contains(address, "@") {
		// pgx would quote a part of the password as the port or the path.
		return nil, InvalidURL(flag)
	}
	if err != nil {
		return nil, Errorf("%s: %w", flag, err) // pgx leaves out the password
	}
	// pgx would continue without the file
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
	if config.ConnConfig.ValidateConnect == nil { // of several hosts, use the primary, even after a failover
		config.ConnConfig.ValidateConnect = connection.TakesWrites
	}
	switch mode := config.ConnConfig.DefaultQueryExecMode; mode {
	case pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec:
		// arrays and JSON need types that only the server has
		return nil, Errorf(
			"%s: default_query_exec_mode=%s is not supported; leave it out, or use cache_describe behind a pooler in "+
				"session mode",
			flag, strings.ReplaceAll(mode.String(), " ", "_"),
		)
	}
	connection.Defer(config.ConnConfig)
	connection.HideSchemas(config.ConnConfig)
	connection.UTF8(config.ConnConfig)
	config.BeforeConnect = connection.Refresh(address)
	config.AfterConnect = connection.Storable
	config.PrepareConn = connection.Zone
	if !strings.Contains(address, "pool_max_conns=") {
		config.MaxConns = max(config.MaxConns, 10) // enough for runs
	}
	return config, nil
}

// InvalidURL quotes no part of the URL, since any part may belong to a password.
func InvalidURL(flag string) error {
	return Errorf(
		"%s: the URL is not valid: percent-encode characters such as / ? # and blanks in the password; the port must "+
			"be a number",
		flag,
	)
}

// passwordFile returns the name of the password file from the URL or the environment; "" if neither names one.
func passwordFile(address string) string {
	if u, err := url.Parse(address); err == nil && u.Query().Has("passfile") {
		return u.Query().Get("passfile")
	}
	return os.Getenv("PGPASSFILE")
}
