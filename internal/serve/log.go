package serve

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// logConfig configures the log.
type logConfig struct{ format, level string }

func (c *logConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.format, "log-format", "text", "how the log is written: text or json, one event per line, to stderr")
	f.StringVar(&c.level, "log-level", "info",
		"the lowest level that is logged: debug (every call), info, warn or error")
}

// newLogger returns the log, which is written to w.
func (c *logConfig) newLogger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.level)); err != nil {
		return nil, flags.Errorf("--log-level must be debug, info, warn or error, not %q", c.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, flags.Errorf("--log-format must be text or json, not %q", c.format)
}
