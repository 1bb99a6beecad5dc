package sqlexpr

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is implemented by connections, pools and transactions.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Query sends a query. The rows have its error.
func (e Expr) Query(ctx context.Context, db Querier) pgx.Rows {
	sql, args := e.Build()
	rows, _ := db.Query(ctx, sql, args...)
	return rows
}

// QueryRow sends a query for one row.
func (e Expr) QueryRow(ctx context.Context, db Querier) pgx.Row {
	sql, args := e.Build()
	return db.QueryRow(ctx, sql, args...)
}

// IDs returns the ids that a query selects.
func (e Expr) IDs(ctx context.Context, db Querier) ([]int64, error) {
	return pgx.CollectRows(e.Query(ctx, db), pgx.RowTo[int64])
}
