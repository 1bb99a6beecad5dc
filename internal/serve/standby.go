package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

const standbyFlag = "--preview-database-url"

// parseStandby returns nil without a URL.
func parseStandby(address string) (*pgxpool.Config, error) {
	if address == "" {
		return nil, nil
	}
	config, err := flags.DatabaseURL(standbyFlag, address)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.ValidateConnect = connection.InRecovery // of several hosts, use a standby, even after a failover
	return config, nil
}

// connectStandby only warns if the standby does not answer, but fails if the server is not a standby of this
// database.
func (s *Server) connectStandby(
	ctx context.Context, config *pgxpool.Config, workers int, tracer pgx.QueryTracer,
) (err error) {
	if config == nil {
		return nil
	}
	config.ConnConfig.Tracer = tracer
	config.MaxConns += int32(workers)
	if s.standby, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("%s: %w", standbyFlag, err)
	}
	err = cleanup.CheckStandby(ctx, s.pool, s.standby)
	if errors.Is(err, cleanup.ErrNotStandby) {
		return flags.Errorf("%s: %w", standbyFlag, err)
	}
	if err != nil {
		s.log.Warn("the standby that dry runs read does not answer; they fail until it does", "error", err)
	}
	return nil
}
