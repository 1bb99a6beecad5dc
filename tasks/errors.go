package tasks

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// sqlState is the SQLSTATE of an error; empty when PostgreSQL gave none.
func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// vanished tells whether a statement failed since its table is gone: the application may drop one at any time.
func vanished(err error) bool { return sqlState(err) == "42P01" }

// Lost tells whether an error means that the database, or the connection to it, can not be worked with at the
// moment: it says nothing about the task that met it.
func Lost(err error) bool {
	var (
		connectErr *pgconn.ConnectError
		netErr     net.Error
	)
	if errors.As(err, &connectErr) { // whatever the server said to it
		return true
	}
	switch state := sqlState(err); {
	case state == "":
		return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
	case strings.HasPrefix(state, "08"), // connection exception
		strings.HasPrefix(state, "53"),  // disk full, out of memory, too many connections
		strings.HasPrefix(state, "57P"), // shutdown, crash, starting up
		strings.HasPrefix(state, "58"),  // the server's own files or disk
		state == "25006",                // read-only: a standby since a failover
		state == "25P03":                // idle in transaction: this worker was frozen
		return true
	}
	return false
}

// advice is what an operator can do about what did not pass by itself, by SQLSTATE.
var advice = map[string]string{
	"08006": "see that the database server runs, and what lies between it and this service",
	"23503": "rows of another table refer to these by a foreign key: delete them first, or give the key ON DELETE",
	"25006": "the database is read-only: point --database-url at the primary server, or make this one writable",
	"25P03": "this process stood still for too long: give its machine more time to run",
	"40001": "others change the same rows all the time: run the cleanup at a quieter hour",
	"40P01": "the application locks the same rows in another order: run the cleanup at a quieter hour",
	"42501": "the role lacks a right: let an owner of the table GRANT it",
	"53100": "the disk of the database server is full: make room there, and run the cleanup again",
	"53200": "the database server is out of memory: lower work_mem or its load, and run the cleanup again",
	"53300": "the database server has no connection left: raise max_connections or close some",
	"55P03": "someone holds a lock for long: look for him in pg_locks, and run the cleanup again",
	"57014": "not even one row goes within the time: look for a slow trigger, or a foreign key to this table without an index",
	"P0001": "a trigger or function of the application refuses: ask who wrote it",
	"XX001": "the table is damaged: restore it from a backup",
	"XX002": "an index is damaged: REINDEX the table, and run the cleanup again",
}

// Explain is an error as an operator reads it: what it is, and what can be done.
func Explain(err error) string {
	state := sqlState(err)
	if state == "" && Lost(err) {
		state = "08006"
	}
	if what := advice[state]; what != "" {
		return fmt.Sprintf("%v: %s", err, what)
	}
	return err.Error()
}
