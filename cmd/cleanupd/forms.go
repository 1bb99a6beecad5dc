package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/tasks/userdata"
)

// formsConfig is what a server is told of AEM Forms.
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
	f.StringVar(&c.serverURL, "forms-server-url", "", "the Forms server's web service ProcessManager, https://HOST/soap/services/ProcessManager, which terminates and purges process instances; without it the database alone is worked on: only while the Forms server is switched off")
	f.StringVar(&c.serverUser, "forms-server-user", "", "the user of the web service")
	f.StringVar(&c.serverPassword, "forms-server-password", "", "the user's password; better given by the environment")
	f.StringVar(&c.serverCA, "forms-server-ca", "", "a file of certificates that the web service's must be signed by; the system's unless it is given")
}

// open checks the configuration, connects, by a tracer unless it is nil, and brings the schema up to date. Both are nil
// without a database.
func (c *formsConfig) open(ctx context.Context, tracer pgx.QueryTracer) (*userdata.Database, *pgxpool.Pool, error) {
	if c.databaseURL == "" {
		if *c != (formsConfig{}) {
			return nil, nil, usagef("the other --forms flags need --forms-database-url")
		}
		return nil, nil, nil
	}
	config, err := parseDatabaseURL(c.databaseURL)
	if err != nil {
		return nil, nil, usagef("--forms-database-url: %w", err)
	}
	if c.folder != "" && c.inDatabase {
		return nil, nil, usagef("--forms-gds-dir and --forms-gds-in-database: the document storage is either")
	}
	if c.folder != "" {
		if err := userdata.CheckFolder(c.folder); err != nil {
			return nil, nil, usagef("--forms-gds-dir: %w", err)
		}
	}
	manager, err := c.manager()
	if err != nil {
		return nil, nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot connect to the Forms database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := userdata.Migrate(ctx, conn); err != nil {
		return nil, nil, fmt.Errorf("the Forms database: %w", err)
	}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	return userdata.New(userdata.Config{Pool: pool, Folder: c.folder, InDatabase: c.inDatabase, Manager: manager}), pool, nil
}

// manager is the Forms server's; nil when none was given.
func (c *formsConfig) manager() (userdata.ProcessManager, error) {
	if c.serverURL == "" {
		return nil, nil
	}
	u, err := url.Parse(c.serverURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--forms-server-url: %q is no http or https address", c.serverURL)
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
