package midsourcing

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// By the names of the external accounts of servers (NmsExtAccount.sName). The deliveries of other accounts are deleted
// in the main database only.
type Config struct {
	// Databases are those of servers. Deliveries are deleted there first.
	Databases map[string]*pgxpool.Pool
	Keep      []string
}

func (c Config) keeps(account string) bool {
	return c.Databases[account] == nil && slices.Contains(c.Keep, account)
}

// Register stores which deliveries remain on servers because they were deleted in the main database only.
type Register interface {
	// Record returns a statement that is part of the one that deletes the deliveries here. The columns of query are
	// account ("" without one), there and here (the ids), and label.
	Record(query sqlexpr.Expr) sqlexpr.Expr
	// Leftovers returns ids on the server, without those on hold.
	Leftovers(ctx context.Context, account string) ([]int64, error)
	// ids are those on the server.
	Forget(ctx context.Context, account string, ids []int64) error
}

var (
	// ErrSameDatabase: the server's database is the main one, in which ids name other deliveries.
	ErrSameDatabase = errors.New("leads to the main database")
	ErrMain         = errors.New("the main database")
)

// Check fails with ErrSameDatabase for the same database of the same server, and if a database does not answer.
func Check(ctx context.Context, main, other *pgxpool.Pool) error {
	const identity = "SELECT system_identifier::text || '/' || current_database() FROM pg_control_system()"
	var names [2]string
	for i, pool := range []*pgxpool.Pool{main, other} {
		if err := pool.QueryRow(ctx, identity).Scan(&names[i]); err != nil {
			return err
		}
	}
	if names[0] == names[1] {
		return ErrSameDatabase
	}
	return nil
}
