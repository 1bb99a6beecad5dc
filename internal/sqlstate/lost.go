package sqlstate

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
)

// Lost reports whether the database, or the connection to it, is currently unusable. Such an error says nothing
// about the task that met it.
func Lost(err error) bool {
	var (
		connectErr *pgconn.ConnectError
		netErr     net.Error
	)
	if errors.As(err, &connectErr) || errors.Is(err, connection.ErrCredentials) { // even if the server refused
		return true
	}
	switch state := Of(err); {
	case LibraryMissing(err):
		return true
	case ofFunctions(err):
		return false
	case state == "":
		return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			pgconn.SafeToRetry(err)
	// whole classes, since newer servers may have codes that the library lacks
	case strings.HasPrefix(state, "08"), // connection exception
		strings.HasPrefix(state, "53"),                     // disk full, out of memory, too many connections
		strings.HasPrefix(state, "57P"),                    // shutdown, crash, starting up
		strings.HasPrefix(state, "58"),                     // the server's own files or disk
		state == pgerrcode.ReadOnlySQLTransaction,          // read-only: a standby since a failover
		state == pgerrcode.IdleInTransactionSessionTimeout: // idle in transaction: this worker was frozen
		return true
	}
	return false
}

// LibraryMissing reports whether the server can no longer load PL/pgSQL, so that every call of a function written in
// it fails. This happens if the binaries of PostgreSQL were replaced while the server was running. dfmgr.c is the
// server's loader of libraries; it identifies the error, since the server's messages are translated but its file
// names are not. A missing library of the application is an error of the application's functions.
func LibraryMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.File == "dfmgr.c" && strings.Contains(pgErr.Message, "plpgsql")
}

// LostInDrop is Lost for a DROP, which takes a lock for each partition and index: if only the server's lock table is
// full, the database is not lost.
func LostInDrop(err error) bool { return Lost(err) && !Is(err, pgerrcode.OutOfMemory) }
