package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// keepDeliveries is given instead of a URL if the server's deliveries must be kept.
const keepDeliveries = "keep"

// parseMidSourcing parses entries of the form NAME=URL or NAME=keep, where NAME is the name of an external account.
// It does not connect.
func parseMidSourcing(entries []string) (databases map[string]*pgxpool.Config, keep []string, err error) {
	databases = map[string]*pgxpool.Config{}
	var mistakes []error
	for _, entry := range entries {
		name, url, _ := strings.Cut(entry, "=")
		switch {
		case name == "" || url == "":
			mistakes = append(mistakes, flags.Errorf("--mid-sourcing must be NAME=URL or NAME=%s", keepDeliveries))
		case databases[name] != nil || slices.Contains(keep, name):
			mistakes = append(mistakes, flags.Errorf("--mid-sourcing: %s is given twice", name))
		case url == keepDeliveries:
			keep = append(keep, name)
		default:
			databases[name], err = flags.DatabaseURL("--mid-sourcing "+name, url)
			mistakes = append(mistakes, err)
		}
	}
	return databases, keep, errors.Join(mistakes...)
}

// connectMidSourcing only warns if a database does not answer, since it may do so when a run needs it. It returns a
// usage error if one of the databases is the main database.
func (s *Server) connectMidSourcing(
	ctx context.Context, databases map[string]*pgxpool.Config, tracer pgx.QueryTracer,
) error {
	s.midSourcing = map[string]*pgxpool.Pool{}
	for name, config := range databases {
		config.ConnConfig.Tracer = tracer
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("--mid-sourcing %s: %w", name, err)
		}
		s.midSourcing[name] = pool
		err = cleanup.CheckMidSourcing(ctx, s.pool, pool)
		if errors.Is(err, cleanup.ErrSameDatabase) {
			return flags.Errorf("--mid-sourcing %s: %w", name, err)
		}
		if err != nil {
			s.log.Warn("a mid-sourcing database does not answer; its deliveries are kept until it does", "name", name,
				"error", err)
		}
	}
	return nil
}
