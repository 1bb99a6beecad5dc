// Package sqlstate distinguishes errors of PostgreSQL by the codes that package pgerrcode names.
package sqlstate

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// Of is the SQLSTATE of an error; empty when PostgreSQL gave none.
func Of(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// Is reports whether an error has one of these SQLSTATEs.
func Is(err error, states ...string) bool { return slices.Contains(states, Of(err)) }
