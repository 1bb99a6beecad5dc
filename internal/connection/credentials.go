package connection

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrCredentials means that the files of a URL's credentials are missing or do not match, for example while they are
// being replaced one after the other.
var ErrCredentials = errors.New("could not reload the credentials")

// Refresh returns a function for BeforeConnect. It reads the files of a URL's credentials again (password file,
// service file, client certificate and key), since they may have changed. It fails with ErrCredentials if it cannot
// read them, or if the service file now names another server or database, to which only a restart moves the service.
func Refresh(address string) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, config *pgx.ConnConfig) error {
		fresh, err := pgx.ParseConfig(address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		if fresh.Host != config.Host || fresh.Port != config.Port || fresh.Database != config.Database {
			return fmt.Errorf("%w: the service file now points to %s:%d/%s; restart cleanupd to use it", ErrCredentials,
				fresh.Host, fresh.Port, fresh.Database)
		}
		config.User, config.Password, config.TLSConfig, config.Fallbacks = fresh.User, fresh.Password, fresh.TLSConfig,
			fresh.Fallbacks
		return nil
	}
}

// Connect opens a connection in the same way as a pool with this configuration.
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
