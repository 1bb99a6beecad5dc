package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/connection"
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
	f.StringVar(&c.databaseURL, "forms-database-url", "", "the database of an AEM Forms server, in which user data is found and erased; without it UserDataService refuses every call")
	f.StringVar(&c.folder, "forms-gds-dir", "", "the folder of its document storage (GDS)")
	f.BoolVar(&c.inDatabase, "forms-gds-in-database", false, "its document storage is in the database")
	f.StringVar(&c.serverURL, "forms-server-url", "", "the Forms server's web service ProcessManager, https://HOST/soap/services/ProcessManager (http only without a password, or on this machine; redirects are not followed), which terminates and purges process instances; without it only the database is changed: do that only while the Forms server is shut down")
	f.StringVar(&c.serverUser, "forms-server-user", "", "the user of the web service")
	f.StringVar(&c.serverPassword, "forms-server-password", "", "the user's password; better set by the environment variable")
	f.StringVar(&c.serverCA, "forms-server-ca", "", "a file with the certificate authorities of the web service (default those of the system)")
}

// formsSetup is a checked configuration: how to connect, and what else is known about the database.
type formsSetup struct {
	connect *pgxpool.Config
	userdata.Config
}

// check checks the configuration; it returns nil without a database.
func (c *formsConfig) check() (*formsSetup, error) {
	if c.databaseURL == "" {
		if *c != (formsConfig{}) {
			return nil, usagef("the other --forms flags need --forms-database-url")
		}
		return nil, nil
	}
	config, err := parseDatabaseURL("--forms-database-url", c.databaseURL)
	if err != nil {
		return nil, err
	}
	if c.folder != "" && c.inDatabase {
		return nil, usagef("--forms-gds-dir and --forms-gds-in-database: the document storage is either")
	}
	if c.folder != "" {
		if err := userdata.CheckFolder(c.folder); err != nil {
			return nil, usagef("--forms-gds-dir: %w", err)
		}
	}
	manager, err := c.manager()
	if err != nil {
		return nil, err
	}
	return &formsSetup{config, userdata.Config{Folder: c.folder, InDatabase: c.inDatabase, Manager: manager}}, nil
}

// open connects, with a tracer unless it is nil, and brings the schema up to date.
func (s *formsSetup) open(ctx context.Context, tracer pgx.QueryTracer) (*userdata.Database, error) {
	connection.Set(s.connect.ConnConfig, map[string]string{"row_security": "off"}) // rows that a policy hides would silently not be erased
	conn, err := pgx.ConnectConfig(ctx, s.connect.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the Forms database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := refusePooler(ctx, s.connect, conn); err != nil {
		return nil, fmt.Errorf("the Forms database: %w", err)
	}
	if err := userdata.Migrate(ctx, conn); err != nil {
		return nil, fmt.Errorf("the Forms database: %w", err)
	}
	s.connect.ConnConfig.Tracer = tracer
	if s.Pool, err = pgxpool.NewWithConfig(ctx, s.connect); err != nil {
		return nil, err
	}
	return userdata.New(s.Config), nil
}

// manager is that of the Forms server; nil when none is given.
func (c *formsConfig) manager() (userdata.ProcessManager, error) {
	if c.serverURL == "" {
		if c.serverUser+c.serverPassword+c.serverCA != "" {
			return nil, usagef("--forms-server-user, --forms-server-password and --forms-server-ca need --forms-server-url")
		}
		return nil, nil
	}
	u, err := url.Parse(c.serverURL)
	if err == nil && u.Port() != "" {
		_, err = net.LookupPort("tcp", u.Port())
	}
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--forms-server-url is no http or https address: http[s]://HOST[:PORT]/PATH") // it may hold a password
	}
	if _, within := u.User.Password(); u.Scheme == "http" && (within || c.serverPassword != "") && !access.IsLoopback(u.Host) {
		return nil, usagef("--forms-server-url: a password goes over https only, or to this machine: https://%s", u.Host)
	}
	server := userdata.ServerConfig{URL: c.serverURL, User: c.serverUser, Password: c.serverPassword}
	if c.serverCA != "" {
		roots, err := readAuthorities("--forms-server-ca", c.serverCA)
		if err != nil {
			return nil, err
		}
		server.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return userdata.NewServer(server), nil
}
