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

// Lost reports whether the database, or the connection to it, is currently unusable, which says nothing about the task
// that met the error.
func Lost(err error) bool {
	var (
		connectErr *pgconn.ConnectError
		netErr     net.Error
	)
	if errors.As(err, &connectErr) || errors.Is(err, connection.ErrCredentials) { // also if the server refused
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
	// Whole classes: newer servers may have codes that the library does not know.
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

// LibraryMissing reports whether the server can no longer load PL/pgSQL, so that every call of a function written in it
// fails: the binaries of PostgreSQL were replaced while the server was running. dfmgr.c is the server's loader of
// libraries, whose messages are translated, unlike the names of files. A missing library of the application is an error
// of its functions.
func LibraryMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.File == "dfmgr.c" && strings.Contains(pgErr.Message, "plpgsql")
}

// A DROP has not lost the database if only the server's lock table is full: it takes a lock for each partition and
// index.
func LostInDrop(err error) bool { return Lost(err) && !Is(err, pgerrcode.OutOfMemory) }
