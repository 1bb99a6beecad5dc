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
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
)

// keepHere is given instead of a URL where deliveries are to be kept.
const keepDeliveries = "keep"

// parseMidSourcing parses NAME=URL of the databases of mid-sourcing servers without connecting, and NAME=keep.
func parseMidSourcing(given []string) (others map[string]*pgxpool.Config, keep []string, err error) {
	others = map[string]*pgxpool.Config{}
	var mistakes []error
	for _, entry := range given {
		name, url, _ := strings.Cut(entry, "=")
		switch {
		case name == "" || url == "":
			mistakes = append(mistakes, flags.Errorf("--mid-sourcing is NAME=URL or NAME=%s", keepDeliveries))
		case others[name] != nil || slices.Contains(keep, name):
			mistakes = append(mistakes, flags.Errorf("--mid-sourcing: %s is given twice", name))
		case url == keepDeliveries:
			keep = append(keep, name)
		default:
			others[name], err = flags.DatabaseURL("--mid-sourcing "+name, url)
			mistakes = append(mistakes, err)
		}
	}
	return others, keep, errors.Join(mistakes...)
}

// connectOthers creates the pools of the mid-sourcing databases. One that does not answer now may do so during a run;
// one that is the main database is a usage error.
func (s *Server) connectMidSourcing(ctx context.Context, others map[string]*pgxpool.Config, tracer pgx.QueryTracer) error {
	s.midSourcing = map[string]*pgxpool.Pool{}
	for name, config := range others {
		config.ConnConfig.Tracer = tracer
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("--mid-sourcing %s: %w", name, err)
		}
		s.midSourcing[name] = pool
		err = midsourcing.Check(ctx, s.pool, pool)
		if errors.Is(err, midsourcing.ErrSameDatabase) {
			return flags.Errorf("--mid-sourcing %s: %w", name, err)
		}
		if err != nil {
			s.log.Warn(
				"a mid-sourcing database does not answer; its deliveries stay until it does",
				"name",
				name,
				"error",
				err,
			)
		}
	}
	return nil
}
