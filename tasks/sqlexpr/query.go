package sqlexpr

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Query runs the statement. The rows report any error.
func (e Expr) Query(ctx context.Context, db Querier) pgx.Rows {
	sql, args := e.Build()
	rows, _ := db.Query(ctx, sql, args...)
	return rows
}

func (e Expr) QueryRow(ctx context.Context, db Querier) pgx.Row {
	sql, args := e.Build()
	return db.QueryRow(ctx, sql, args...)
}

func (e Expr) IDs(ctx context.Context, db Querier) ([]int64, error) {
	return pgx.CollectRows(e.Query(ctx, db), pgx.RowTo[int64])
}
