package connection

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The files of a URL's credentials are missing or do not match, for example while they are replaced one after the
// other.
var ErrCredentials = errors.New("the credentials cannot be read again")

// For BeforeConnect: reads the files of a URL's credentials again, that is the password file, the service file, and the
// client's certificate and key. They may have changed since the URL was parsed. It fails with ErrCredentials if it
// cannot, or if the service file names another server or database than before: only a restart moves the service there.
func Refresh(address string) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, config *pgx.ConnConfig) error {
		fresh, err := pgx.ParseConfig(address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		if fresh.Host != config.Host || fresh.Port != config.Port || fresh.Database != config.Database {
			return fmt.Errorf("%w: the service file names %s:%d/%s now: restart the service to use it", ErrCredentials,
				fresh.Host, fresh.Port, fresh.Database)
		}
		config.User, config.Password, config.TLSConfig, config.Fallbacks = fresh.User, fresh.Password, fresh.TLSConfig,
			fresh.Fallbacks
		return nil
	}
}

// Connect opens a connection as a pool of the configuration would.
func Connect(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	one := config.ConnConfig.Copy()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, one); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, one)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}
