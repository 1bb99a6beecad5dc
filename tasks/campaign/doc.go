// Package campaign reads the layout of a Campaign Classic database on PostgreSQL: its schema, its tables and their
// keys, the families of logs, work tables, and the options in XtkOption.
package campaign

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is implemented by connections, pools and transactions.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
