package tasks

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// vanished tells whether a statement failed since its table is gone: the application may drop one at any time.
func vanished(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "42P01"
}

// Lost tells whether an error means that the database, or the connection to it, is gone: it says nothing about
// the task that met it.
func Lost(err error) bool {
	var (
		pgErr      *pgconn.PgError
		connectErr *pgconn.ConnectError
		netErr     net.Error
	)
	if errors.As(err, &connectErr) { // whatever the server said to it
		return true
	}
	if errors.As(err, &pgErr) {
		switch {
		case strings.HasPrefix(pgErr.Code, "08"), // connection exception
			strings.HasPrefix(pgErr.Code, "57P"), // shutdown, crash, starting up
			pgErr.Code == "25006",                // read-only: a standby since a failover
			pgErr.Code == "53300",                // too many connections
			pgErr.Code == "25P03":                // idle in transaction: this worker was frozen
			return true
		}
		return false
	}
	return errors.As(err, &netErr) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
