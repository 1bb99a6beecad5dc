// Package campaign knows what a Campaign Classic database looks like on PostgreSQL: which schema it is in,
// which tables it has and what identifies their rows, which of them are logs, and the options in XtkOption.
package campaign

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is the part of a connection, a pool or a transaction that reading needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
