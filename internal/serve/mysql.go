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

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
)

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
