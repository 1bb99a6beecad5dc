package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/mysqlerr"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// waitForDatabase calls connect until it succeeds, the database rejects it, or the timeout passes. It logs each
// reason for waiting once.
func waitForDatabase(ctx context.Context, log *slog.Logger, timeout time.Duration, connect func() error) error {
	if timeout == 0 {
		return connect()
	}
	logged := map[string]bool{}
	_, err := backoff.Retry(ctx, func() (any, error) {
		err := connect()
		var refused *pgconn.PgError
		switch {
		case err == nil:
			return nil, nil
		case !sqlstate.Lost(err) && !mysqlerr.Lost(err),
			errors.As(err, &refused) && pgerrcode.IsInvalidAuthorizationSpecification(refused.Code):
			return nil, backoff.Permanent(err)
		case !logged[err.Error()]:
			logged[err.Error()] = true
			log.Info("waiting for a database", "error", terminal.OneLine(sqlstate.Text(err)), "for", timeout)
		}
		return nil, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(500*time.Millisecond)), backoff.WithMaxElapsedTime(timeout))
	return err
}
