// Package sqlstate distinguishes errors of PostgreSQL by the codes that package pgerrcode names.
package sqlstate

import (
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Of returns the SQLSTATE, or "" if PostgreSQL gave none.
func Of(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func Is(err error, states ...string) bool { return slices.Contains(states, Of(err)) }

// ofRow has the classes of errors by which a trigger, a constraint or a view refuses a row: those of triggers and of
// the functions that they call, cardinality, data, integrity, views with a check option, the class that SQL leaves
// to applications, and PL/pgSQL. None is about locks, resources, rights, the connection, or the syntax of a
// statement.
var ofRow = []string{"09", "20", "21", "22", "23", "27", "38", "39", "44", "45", "P0"}

// ofFunction has the classes of errors that a function of the application may raise in addition, about its own
// statements: connections to other servers, features, transactions, cursors, names that do not exist, rights,
// limits, object states, configuration files, and foreign data.
var ofFunction = []string{
	"08", "0A", "0B", "24", "25", "26", "28", "2B", "2D", "2F", "34", "3B", "3D", "3F", "42", "54", "55", "F0", "HV",
}

// ofServer has the classes of errors that are about the server, also inside a function: resources, operators, and
// the system. If a function raises one of them by RAISE, it says nothing about the server.
var ofServer = []string{"53", "57", "58"}

// OfRow reports whether the error may concern only one row, so that a statement on the other rows may well succeed.
func OfRow(err error) bool {
	state := Of(err)
	return state == pgerrcode.TransactionIntegrityConstraintViolation ||
		(len(state) == 5 && slices.Contains(ofRow, state[:2])) ||
		ofFunctions(err)
}

// ofFunctions reports whether the error was raised inside a function, such as that of a trigger, and not by the
// statement that called it. PostgreSQL gives such an error a context.
func ofFunctions(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Where == "" || len(pgErr.Code) != 5 {
		return false
	}
	raised := pgErr.Routine == "exec_stmt_raise" // RAISE in PL/pgSQL, in all versions and languages
	switch pgErr.Code {
	case pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled:
		return false
	case pgerrcode.ReadOnlySQLTransaction, pgerrcode.IdleInTransactionSessionTimeout:
		return raised
	}
	return slices.Contains(ofFunction, pgErr.Code[:2]) || (raised && slices.Contains(ofServer, pgErr.Code[:2]))
}
