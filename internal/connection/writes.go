package connection

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// These say why a server takes no writes.
var (
	ErrStandby  = errors.New("the server is a standby, which is read-only: name the primary in the URL, or all of them")
	ErrReadOnly = errors.New(
		"the server is not a standby but read-only: default_transaction_read_only is on, for the server, the database " +
			"or the role",
	)
)

// TakesWrites fails with ErrStandby or ErrReadOnly if the server takes no writes.
func TakesWrites(ctx context.Context, conn *pgconn.PgConn) error {
	answer := conn.ExecParams(ctx, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')", nil, nil,
		nil, nil).Read()
	switch {
	case answer.Err != nil:
		return answer.Err
	case string(answer.Rows[0][0]) == "t":
		return ErrStandby
	case string(answer.Rows[0][1]) == "on":
		return ErrReadOnly
	}
	return nil
}

var ErrPrimary = errors.New("the server is not a standby: it is not in recovery")

// InRecovery fails with ErrPrimary if the server is not a standby.
func InRecovery(ctx context.Context, conn *pgconn.PgConn) error {
	answer := conn.ExecParams(ctx, "SELECT pg_is_in_recovery()", nil, nil, nil, nil).Read()
	if answer.Err == nil && string(answer.Rows[0][0]) != "t" {
		return ErrPrimary
	}
	return answer.Err
}

// ReadOnly makes sessions read-only, on a primary or a standby.
func ReadOnly(config *pgx.ConnConfig) {
	Set(config, map[string]string{"default_transaction_read_only": "on"})
	config.ValidateConnect = nil
}
