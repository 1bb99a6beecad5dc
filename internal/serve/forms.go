package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"

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
type FormsConfig struct {
	DatabaseURL    string
	Folder         string
	inDatabase     bool
	serverURL      string
	serverUser     string
	serverPassword string
	serverCA       string
}

func (c *FormsConfig) flags(f *pflag.FlagSet) {
	f.StringVar(
		&c.DatabaseURL,
		"forms-database-url",
		"",
		"the database of an AEM Forms server, in which user data is found and erased: "+
			"mysql://USER@HOST:3306/DATABASE?tls=true&password-file=FILE (MySQL 8, MariaDB) or "+
			"postgres://USER@HOST/DATABASE; without it UserDataService refuses every call",
	)
	f.StringVar(&c.Folder, "forms-gds-dir", "", "the folder of its document storage (GDS)")
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
type validForms struct {
	postgres *pgxpool.Config
	mysql    *mysql.Config
	pool     *pgxpool.Pool // that open has made, of PostgreSQL
	userdata.Config
}

// check checks the configuration; it returns nil without a database.
func (c *FormsConfig) check() (s *validForms, err error) {
	const flag = "--forms-database-url"
	if c.DatabaseURL == "" {
		if *c != (FormsConfig{}) {
			return nil, flags.Errorf("the other --forms flags need %s", flag)
		}
		return nil, nil
	}
	s = &validForms{Config: userdata.Config{Folder: c.Folder, InDatabase: c.inDatabase}}
	if strings.HasPrefix(c.DatabaseURL, "mysql://") {
		s.mysql, err = parseMySQLURL(flag, c.DatabaseURL)
	} else if s.postgres, err = flags.DatabaseURL(flag, c.DatabaseURL); err != nil {
		err = fmt.Errorf("%w (or mysql://USER@HOST/DATABASE)", err)
	}
	if err != nil {
		return nil, err
	}
	if c.Folder != "" && c.inDatabase {
		return nil, flags.Errorf("--forms-gds-dir and --forms-gds-in-database: the document storage is either")
	}
	if c.Folder != "" {
		if err := userdata.CheckFolder(c.Folder); err != nil {
			return nil, flags.Errorf("--forms-gds-dir: %w", err)
		}
	}
	s.Manager, err = c.manager()
	return s, err
}

// formsConns is how many connections erasures may use in the service's own database, and as many in the Forms database.
const maxFormsConnections = 8

// open connects, with a tracer unless it is nil, and creates the service's own tables in the Forms database if they are
// missing. Erasures are recorded in the database of another configuration.
func (s *validForms) open(
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
		record.MaxConns, record.MinConns, record.MinIdleConns = maxFormsConnections, 0, 0
		record.ConnConfig.Tracer = tracer // its statements name whom they are about
		if s.Record, err = pgxpool.NewWithConfig(ctx, record); err != nil {
			s.Forms.Close()
			return nil, err
		}
	}
	return userdata.New(s.Config), nil
}

// openPostgres connects to a Forms database of PostgreSQL.
func (s *validForms) openPostgres(ctx context.Context, tracer pgx.QueryTracer) (*userdata.Forms, error) {
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

// manager is that of the Forms server; nil when none is given.
func (c *FormsConfig) manager() (userdata.ProcessManager, error) {
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
