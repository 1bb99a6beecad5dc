package serve

import (
	"cmp"
	"context"
	"strings"

	"github.com/cleanupd/cleanupd/internal/version"
)

// sessionSQL is the SQL of where a session is, and as whom.
const sessionSQL = `
SELECT COALESCE(host(inet_server_addr()), 'socket'), current_database()::text, current_setting('server_version'),
	current_user::text, rolsuper
FROM pg_roles WHERE rolname = current_user`

// logStart logs what an administrator checks first: versions, the database, the role, the schedule, and who may call.
func (s *Server) logStart(ctx context.Context, c *Config) error {
	var (
		host, database, serverVersion, role string
		superuser                           bool
	)
	if err := s.pool.QueryRow(ctx, sessionSQL).Scan(&host, &database, &serverVersion, &role, &superuser); err != nil {
		return err
	}
	schedule, err := s.manager.Schedule(ctx)
	if err != nil {
		return err
	}
	s.log.Info("cleanupd", "version", version.String(), "instance", c.instance)
	s.log.Info("database", "host", host, "name", database, "server_version", serverVersion)
	s.log.Info("role in the database", "name", role, "superuser", superuser)
	next := "none"
	if schedule.NextRunTime != nil {
		next = schedule.NextRunTime.UTC().Format("2006-01-02T15:04Z")
	}
	s.log.Info("schedule", "kept", c.schedule, "enabled", schedule.Enabled, "next_run_time", next)
	s.log.Info(
		"access", "tls", c.access.certificate != "", "authentication", c.access.methods(), "console", c.console,
	)
	return nil
}

// methods returns how callers authenticate, for people.
func (c *accessConfig) methods() string {
	var methods []string
	for _, m := range []struct{ setting, name string }{
		{c.ClientCA, "client certificates"},
		{c.TokenFile, "tokens"},
		{c.Issuer, "OpenID Connect"},
	} {
		if m.setting != "" {
			methods = append(methods, m.name)
		}
	}
	return cmp.Or(strings.Join(methods, ", "), "none")
}
