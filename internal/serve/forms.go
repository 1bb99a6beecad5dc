package serve

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
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/processmanager"
)

type FormsConfig struct {
	DatabaseURL    string
	Folder         string
	inDatabase     bool
	serverURL      string
	serverUser     string
	serverPassword string
	serverCA       string
}

func (c *FormsConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.DatabaseURL, "forms-database-url", "",
		"the database of an AEM Forms server, in which user data is found and erased: "+
			"mysql://USER@HOST:3306/DATABASE?tls=true&password-file=FILE (MySQL 8, MariaDB) or "+
			"postgres://USER@HOST/DATABASE; without it UserDataService refuses every call")
	f.StringVar(&c.Folder, "forms-gds-dir", "", "the folder of its document storage (GDS)")
	f.BoolVar(&c.inDatabase, "forms-gds-in-database", false, "its document storage is in the database")
	f.StringVar(&c.serverURL, "forms-server-url", "",
		"the Forms server's web service ProcessManager, https://HOST/soap/services/ProcessManager (http only without "+
			"a password, or on this machine; redirects are not followed), which terminates and purges process "+
			"instances; without it only the database is changed: do that only while the Forms server is shut down")
	f.StringVar(&c.serverUser, "forms-server-user", "", "the user of the web service")
	f.StringVar(&c.serverPassword, "forms-server-password", "",
		"the user's password; better set by the environment variable")
	f.StringVar(&c.serverCA, "forms-server-ca", "",
		"a file with the certificate authorities of the web service (default those of the system)")
}

// formsDatabase is a FormsConfig that was checked and parsed. Either postgres or mysql is set.
type formsDatabase struct {
	postgres *pgxpool.Config
	mysql    *mysql.Config
	pool     *pgxpool.Pool // created by open for PostgreSQL
	userdata.Config
}

// check returns nil if there is no Forms database.
func (c *FormsConfig) check() (v *formsDatabase, err error) {
	const flag = "--forms-database-url"
	if c.DatabaseURL == "" {
		if *c != (FormsConfig{}) {
			return nil, flags.Errorf("the other --forms flags need %s", flag)
		}
		return nil, nil
	}
	v = &formsDatabase{Config: userdata.Config{Folder: c.Folder, InDatabase: c.inDatabase}}
	if strings.HasPrefix(c.DatabaseURL, "mysql://") {
		v.mysql, err = parseMySQLURL(flag, c.DatabaseURL)
	} else if v.postgres, err = flags.DatabaseURL(flag, c.DatabaseURL); err != nil {
		err = fmt.Errorf("%w (or mysql://USER@HOST/DATABASE)", err)
	}
	if err != nil {
		return nil, err
	}
	if c.Folder != "" && c.inDatabase {
		return nil, flags.Errorf("--forms-gds-dir and --forms-gds-in-database cannot be combined: give one")
	}
	if c.Folder != "" {
		info, err := os.Stat(c.Folder)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a folder", c.Folder)
		}
		if err != nil {
			return nil, flags.Errorf("--forms-gds-dir: %w", err)
		}
	}
	v.Server, err = c.processManager()
	return v, err
}

// maxFormsConnections limits the pool of erasures to the service's own database.
const maxFormsConnections = 8

// open creates the service's own tables in the Forms database if they are missing. If they would be published, it
// does so only if published is true. Erasures are recorded in the database record, unless it is nil.
func (v *formsDatabase) open(
	ctx context.Context, record *pgxpool.Config, tracer pgx.QueryTracer, published bool,
) (_ *userdata.Manager, err error) {
	if v.mysql != nil {
		v.Forms, err = forms.MySQL(v.mysql)
	} else {
		v.Forms, err = v.openPostgres(ctx, tracer, published)
	}
	if err != nil {
		return nil, err
	}
	if err := v.Forms.Migrate(ctx); err != nil {
		v.Forms.Close()
		return nil, fmt.Errorf("the Forms database: %w", err)
	}
	if record != nil {
		record = record.Copy()
		record.MaxConns, record.MinConns, record.MinIdleConns = maxFormsConnections, 0, 0
		record.ConnConfig.Tracer = tracer // the tracer for Forms, since these statements also name the person
		if v.Record, err = pgxpool.NewWithConfig(ctx, record); err != nil {
			v.Forms.Close()
			return nil, err
		}
	}
	return userdata.New(v.Config), nil
}

func (v *formsDatabase) openPostgres(
	ctx context.Context, tracer pgx.QueryTracer, published bool,
) (*forms.Database, error) {
	// a row security policy that hides rows must make the erasure fail, not limit it
	connection.Set(v.postgres.ConnConfig, map[string]string{"row_security": "off"})
	conn, err := connection.Connect(ctx, v.postgres)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the Forms database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := refusePooler(ctx, v.postgres, conn); err != nil {
		return nil, fmt.Errorf("the Forms database: %w", err)
	}
	if !published {
		if err := forms.Unpublished(ctx, conn); err != nil {
			return nil, fmt.Errorf("the Forms database: %w", err)
		}
	}
	v.postgres.ConnConfig.Tracer = tracer
	// no statement is worth caching, since statements contain their lists of ids
	v.postgres.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	if v.pool, err = pgxpool.NewWithConfig(ctx, v.postgres); err != nil {
		return nil, err
	}
	return forms.PostgreSQL(v.pool), nil
}

// processManager returns nil if no Forms server is given.
func (c *FormsConfig) processManager() (userdata.ProcessManager, error) {
	if c.serverURL == "" {
		if c.serverUser+c.serverPassword+c.serverCA != "" {
			return nil, flags.Errorf(
				"--forms-server-user, --forms-server-password and --forms-server-ca need --forms-server-url")
		}
		return nil, nil
	}
	u, err := url.Parse(c.serverURL)
	if err == nil && u.Port() != "" {
		_, err = net.LookupPort("tcp", u.Port())
	}
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		// the URL may contain a password, so it is not quoted
		return nil, flags.Errorf("--forms-server-url is not http[s]://HOST[:PORT]/PATH")
	}
	_, inURL := u.User.Password()
	if u.Scheme == "http" && (inURL || c.serverPassword != "") && !access.IsLoopback(u.Host) {
		return nil, flags.Errorf(
			"--forms-server-url: a password is sent only over https, or to this machine: use https://%s", u.Host)
	}
	server := processmanager.Config{URL: c.serverURL, User: c.serverUser, Password: c.serverPassword}
	if c.serverCA != "" {
		roots, err := flags.ReadAuthorities("--forms-server-ca", c.serverCA)
		if err != nil {
			return nil, err
		}
		server.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return processmanager.New(server), nil
}

// mysqlReadTimeout limits each statement.
const mysqlReadTimeout = 10 * time.Minute

// parseMySQLURL parses mysql://USER:PASSWORD@HOST:PORT/DATABASE without connecting. Its errors quote nothing that
// may belong to a password. The files that the URL names are read again for each connection.
func parseMySQLURL(flag, address string) (*mysql.Config, error) {
	config, err := readMySQLURL(flag, address)
	if err != nil {
		return nil, err
	}
	return config, config.Apply(mysql.BeforeConnect(func(_ context.Context, config *mysql.Config) error {
		fresh, err := readMySQLURL(flag, address)
		if err != nil {
			return fmt.Errorf("%w: %w", connection.ErrCredentials, err)
		}
		config.Passwd = fresh.Passwd
		if fresh.TLS != nil {
			config.TLS = fresh.TLS
		}
		return nil
	}))
}

func readMySQLURL(flag, address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" {
		return nil, flags.InvalidURL(flag)
	}
	c := mysql.NewConfig()
	c.Logger = &mysql.NopLogger{} // errors are also returned
	c.Timeout, c.ReadTimeout, c.WriteTimeout = flags.ConnectTimeout, mysqlReadTimeout, flags.ConnectTimeout
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	c.DBName = strings.TrimPrefix(u.Path, "/")
	authorities := ""
	for name, values := range u.Query() {
		switch value := values[0]; name {
		case "socket":
			c.Net, c.Addr = "unix", value
		case "ssl-ca":
			authorities = value
		case "password-file":
			text, err := os.ReadFile(value)
			if err != nil {
				return nil, flags.Errorf("%s: the password file: %w", flag, err)
			}
			c.Passwd = strings.TrimRight(string(text), "\r\n")
		case "tls":
			if !slices.Contains([]string{"true", "false", "skip-verify", "preferred"}, value) {
				return nil, flags.Errorf("%s: tls must be true, false, preferred or skip-verify", flag)
			}
			c.TLSConfig = value
		default:
			return nil, flags.Errorf("%s: unknown parameter %.32q, not socket, tls, ssl-ca or password-file", flag,
				name)
		}
	}
	switch {
	case c.User == "" || c.DBName == "" || strings.Contains(c.DBName, "/") || (c.Net == "tcp" && u.Hostname() == ""):
		return nil, flags.Errorf("%s must be mysql://USER@HOST/DATABASE", flag)
	case authorities == "":
		return c, nil
	case c.TLSConfig != "" && c.TLSConfig != "true":
		return nil, flags.Errorf("%s: ssl-ca needs tls=true", flag)
	}
	roots, err := flags.ReadAuthorities(flag+": ssl-ca", authorities)
	if err != nil {
		return nil, err
	}
	c.TLSConfig, c.TLS = "", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	return c, nil
}
