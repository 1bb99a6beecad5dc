package serve

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/version"
	"github.com/cleanupd/cleanupd/service/runs"
)

type logConfig struct{ format, level string }

func (c *logConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.format, "log-format", "text", "how the log is written: text or json, one event per line, to stderr")
	f.StringVar(&c.level, "log-level", "info",
		"the lowest level that is logged: debug (every call), info, warn or error")
}

func (c *logConfig) parseLevel() (level slog.Level, err error) {
	if err := level.UnmarshalText([]byte(c.level)); err != nil {
		return level, flags.Errorf("--log-level must be debug, info, warn or error, not %q", c.level)
	}
	return level, nil
}

func (c *logConfig) newLogger(w io.Writer, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: withHint}
	switch c.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, flags.Errorf("--log-format must be text or json, not %q", c.format)
}

func withHint(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(sqlstate.Text(err))
	}
	return a
}

// sessionSQL selects the server, the database and the role of a session.
const sessionSQL = `
SELECT COALESCE(host(inet_server_addr()), 'socket'), current_database()::text, current_setting('server_version'),
	current_user::text, rolsuper
FROM pg_roles WHERE rolname = current_user`

// logStart logs what an administrator checks first: versions, the database, the role, the tasks, the schedule, who
// may call, and who is notified.
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
	s.log.Info("starting cleanupd", "version", version.String(), "instance", c.runs.Instance)
	s.log.Info("connected to the database", "host", host, "name", database, "server_version", serverVersion)
	s.log.Info("role in the database", "name", role, "superuser", superuser)
	if err := s.logProfile(ctx, c.runs.Tasks.Profile); err != nil {
		return err
	}
	next := "none"
	if schedule.NextRunTime != nil {
		next = schedule.NextRunTime.UTC().Format("2006-01-02T15:04Z")
	}
	s.log.Info("schedule settings", "kept", c.runs.KeepSchedule, "enabled", schedule.Enabled, "next_run_time", next)
	s.log.Info("access settings", "tls", c.access.certificate != "", "authentication", c.access.methods(),
		"console", c.console)
	logTargets(s.log, c.runs.Notify.Targets)
	return nil
}

// logProfile logs whether the service offers the tasks of Campaign, and why.
func (s *Server) logProfile(ctx context.Context, given runs.Profile) error {
	list, err := s.manager.Tasks.Read(ctx, s.pool)
	if err != nil {
		return err
	}
	decided, why := runs.ProfileCampaign, "the database has tables of Campaign"
	if list.NoCampaign {
		decided, why = runs.ProfileNone, "the database has no table of Campaign"
	}
	if given != runs.ProfileAuto {
		why = "--profile " + given.String()
	}
	s.log.Info("profile", "name", decided, "reason", why, "tasks", len(list.Tasks))
	return nil
}
