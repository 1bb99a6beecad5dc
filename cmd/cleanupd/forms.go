package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/userdata"
)

// formsConfig configures a server for AEM Forms.
type formsConfig struct {
	databaseURL    string
	folder         string
	inDatabase     bool
	serverURL      string
	serverUser     string
	serverPassword string
	serverCA       string
}

func (c *formsConfig) flags(f *pflag.FlagSet) {
	f.StringVar(
		&c.databaseURL,
		"forms-database-url",
		"",
		"the database of an AEM Forms server, in which user data is found and erased: "+
			"mysql://USER@HOST:3306/DATABASE?tls=true&password-file=FILE (MySQL 8, MariaDB) or "+
			"postgres://USER@HOST/DATABASE; without it UserDataService refuses every call",
	)
	f.StringVar(&c.folder, "forms-gds-dir", "", "the folder of its document storage (GDS)")
	f.BoolVar(&c.inDatabase, "forms-gds-in-database", false, "its document storage is in the database")
	f.StringVar(
		&c.serverURL,
		"forms-server-url",
		"",
		"the Forms server's web service ProcessManager, https://HOST/soap/services/ProcessManager (http only without "+
			"a password, or on this machine; redirects are not followed), which terminates and purges process "+
			"instances; without it only the database is changed: do that only while the Forms server is shut down",
	)
	f.StringVar(&c.serverUser, "forms-server-user", "", "the user of the web service")
	f.StringVar(
		&c.serverPassword,
		"forms-server-password",
		"",
		"the user's password; better set by the environment variable",
	)
	f.StringVar(
		&c.serverCA,
		"forms-server-ca",
		"",
		"a file with the certificate authorities of the web service (default those of the system)",
	)
}

// formsSetup is a checked configuration: how to connect, either to PostgreSQL or to MySQL, and what else is known about
// the database.
type formsSetup struct {
	postgres *pgxpool.Config
	mysql    *mysql.Config
	pool     *pgxpool.Pool // that open has made, of PostgreSQL
	userdata.Config
}

// check checks the configuration; it returns nil without a database.
func (c *formsConfig) check() (s *formsSetup, err error) {
	const flag = "--forms-database-url"
	if c.databaseURL == "" {
		if *c != (formsConfig{}) {
			return nil, flags.Errorf("the other --forms flags need %s", flag)
		}
		return nil, nil
	}
	s = &formsSetup{Config: userdata.Config{Folder: c.folder, InDatabase: c.inDatabase}}
	if strings.HasPrefix(c.databaseURL, "mysql://") {
		s.mysql, err = parseMySQLURL(flag, c.databaseURL)
	} else if s.postgres, err = flags.DatabaseURL(flag, c.databaseURL); err != nil {
		err = fmt.Errorf("%w (or mysql://USER@HOST/DATABASE)", err)
	}
	if err != nil {
		return nil, err
	}
	if c.folder != "" && c.inDatabase {
		return nil, flags.Errorf("--forms-gds-dir and --forms-gds-in-database: the document storage is either")
	}
	if c.folder != "" {
		if err := userdata.CheckFolder(c.folder); err != nil {
			return nil, flags.Errorf("--forms-gds-dir: %w", err)
		}
	}
	s.Manager, err = c.manager()
	return s, err
}

// formsConns is how many connections erasures may use in the service's own database, and as many in the Forms database.
const formsConns = 8

// open connects, with a tracer unless it is nil, and creates the service's own tables in the Forms database if they are
// missing. Erasures are recorded in the database of another configuration.
func (s *formsSetup) open(
	ctx context.Context,
	record *pgxpool.Config,
	tracer pgx.QueryTracer,
) (_ *userdata.Database, err error) {
	if s.mysql != nil {
		s.Forms, err = userdata.MySQL(s.mysql)
	} else {
		s.Forms, err = s.openPostgres(ctx, tracer)
	}
	if err != nil {
		return nil, err
	}
	if err := s.Forms.Migrate(ctx); err != nil {
		s.Forms.Close()
		return nil, fmt.Errorf("the Forms database: %w", err)
	}
	if record != nil {
		record = record.Copy()
		record.MaxConns, record.MinConns, record.MinIdleConns = formsConns, 0, 0
		record.ConnConfig.Tracer = tracer // its statements name whom they are about
		if s.Record, err = pgxpool.NewWithConfig(ctx, record); err != nil {
			s.Forms.Close()
			return nil, err
		}
	}
	return userdata.New(s.Config), nil
}

// openPostgres connects to a Forms database of PostgreSQL.
func (s *formsSetup) openPostgres(ctx context.Context, tracer pgx.QueryTracer) (*userdata.Forms, error) {
	// rows that a policy hides would silently not be erased
	connection.Set(s.postgres.ConnConfig, map[string]string{"row_security": "off"})
	conn, err := connection.Connect(ctx, s.postgres)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the Forms database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := refusePooler(ctx, s.postgres, conn); err != nil {
		return nil, fmt.Errorf("the Forms database: %w", err)
	}
	s.postgres.ConnConfig.Tracer = tracer
	// statements hold their lists: none is worth keeping
	s.postgres.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	if s.pool, err = pgxpool.NewWithConfig(ctx, s.postgres); err != nil {
		return nil, err
	}
	return userdata.PostgreSQL(s.pool), nil
}

// parseMySQLURL parses the URL of a flag without connecting: mysql://USER:PASSWORD@HOST:PORT/DATABASE. What is wrong is
// told without quoting it, since it may hold a password. The files that it names are read again for each connection,
// since they may have changed.
func parseMySQLURL(flag, address string) (*mysql.Config, error) {
	config, err := readMySQLURL(flag, address)
	if err != nil {
		return nil, err
	}
	return config, config.Apply(mysql.BeforeConnect(func(_ context.Context, config *mysql.Config) error {
		fresh, err := readMySQLURL(flag, address)
		if err != nil {
			return err
		}
		config.Passwd = fresh.Passwd
		if fresh.TLS != nil {
			config.TLS = fresh.TLS
		}
		return nil
	}))
}

// readMySQLURL returns the configuration that the URL of a flag and the files in it give.
func readMySQLURL(flag, address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" {
		return nil, flags.Errorf(
			"%s: can not be read; characters such as / ? # and blanks must be percent-encoded in a password, and a "+
				"port is a number",
			flag,
		)
	}
	c := mysql.NewConfig()
	c.Logger = &mysql.NopLogger{} // errors are returned, too
	c.Timeout, c.ReadTimeout, c.WriteTimeout = flags.ConnectTimeout, formsReadTimeout, flags.ConnectTimeout
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	c.DBName = strings.TrimPrefix(u.Path, "/")
	authority := ""
	for name, values := range u.Query() {
		switch value := values[0]; name {
		case "socket":
			c.Net, c.Addr = "unix", value
		case "ssl-ca":
			authority = value
		case "password-file":
			text, err := os.ReadFile(value)
			if err != nil {
				return nil, flags.Errorf("%s: the password file: %w", flag, err)
			}
			c.Passwd = strings.TrimRight(string(text), "\r\n")
		case "tls":
			if !slices.Contains([]string{"true", "false", "skip-verify", "preferred"}, value) {
				return nil, flags.Errorf("%s: tls is true, false, preferred or skip-verify", flag)
			}
			c.TLSConfig = value
		default:
			return nil, flags.Errorf(
				"%s: there is no parameter %.32q: socket, tls, ssl-ca and password-file are known",
				flag,
				name,
			)
		}
	}
	switch {
	case c.User == "" || c.DBName == "" || strings.Contains(c.DBName, "/") || (c.Net == "tcp" && u.Hostname() == ""):
		return nil, flags.Errorf("%s is mysql://USER@HOST/DATABASE", flag)
	case authority == "":
		return c, nil
	case c.TLSConfig != "" && c.TLSConfig != "true":
		return nil, flags.Errorf("%s: ssl-ca needs tls=true", flag)
	}
	roots, err := flags.ReadAuthorities(flag+": ssl-ca", authority)
	if err != nil {
		return nil, err
	}
	c.TLSConfig, c.TLS = "", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	return c, nil
}

// formsReadTimeout is how long a statement may take in MySQL.
const formsReadTimeout = 10 * time.Minute

// manager is that of the Forms server; nil when none is given.
func (c *formsConfig) manager() (userdata.ProcessManager, error) {
	if c.serverURL == "" {
		if c.serverUser+c.serverPassword+c.serverCA != "" {
			return nil, flags.Errorf(
				"--forms-server-user, --forms-server-password and --forms-server-ca need --forms-server-url",
			)
		}
		return nil, nil
	}
	u, err := url.Parse(c.serverURL)
	if err == nil && u.Port() != "" {
		_, err = net.LookupPort("tcp", u.Port())
	}
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		// it may hold a password
		return nil, flags.Errorf("--forms-server-url is no http or https address: http[s]://HOST[:PORT]/PATH")
	}
	if _, within := u.User.Password(); u.Scheme == "http" && (within || c.serverPassword != "") &&
		!access.IsLoopback(u.Host) {
		return nil, flags.Errorf(
			"--forms-server-url: a password goes over https only, or to this machine: https://%s",
			u.Host,
		)
	}
	server := userdata.ServerConfig{URL: c.serverURL, User: c.serverUser, Password: c.serverPassword}
	if c.serverCA != "" {
		roots, err := flags.ReadAuthorities("--forms-server-ca", c.serverCA)
		if err != nil {
			return nil, err
		}
		server.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return userdata.NewServer(server), nil
}
