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

// await calls connect until the database that it connects to is there, has refused it, or patience has run out. Why it
// waits is logged once for each reason.
func waitForDatabase(ctx context.Context, log *slog.Logger, patience time.Duration, connect func() error) error {
	if patience == 0 {
		return connect()
	}
	told := map[string]bool{}
	_, err := backoff.Retry(ctx, func() (any, error) {
		err := connect()
		var refused *pgconn.PgError
		switch {
		case err == nil:
			return nil, nil
		case !sqlstate.Lost(err) && !mysqlerr.Lost(err),
			errors.As(err, &refused) && pgerrcode.IsInvalidAuthorizationSpecification(refused.Code):
			return nil, backoff.Permanent(err)
		case !told[err.Error()]:
			told[err.Error()] = true
			log.Info("waiting for a database", "error", terminal.OneLine(err.Error()), "for", patience)
		}
		return nil, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(500*time.Millisecond)), backoff.WithMaxElapsedTime(patience))
	return err
}
