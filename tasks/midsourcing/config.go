package midsourcing

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Config configures how deliveries of mid-sourcing servers are handled, by the names of their external accounts
// (NmsExtAccount.sName). The deliveries of other accounts are deleted in the main database alone.
type Config struct {
	// Databases are the databases of servers. Deliveries are deleted there first.
	Databases map[string]*pgxpool.Pool
	// Keep are the accounts whose deliveries are kept.
	Keep []string
}

// keeps reports whether the deliveries of an account are kept.
func (c Config) keeps(account string) bool {
	return c.Databases[account] == nil && slices.Contains(c.Keep, account)
}

// Register stores which deliveries remain on servers because they were deleted in the main database alone.
type Register interface {
	// Record returns a statement that records deliveries. It is part of the statement that deletes them here. The
	// columns of query are account ("" without one), there and here (the ids), and label.
	Record(query sqlexpr.Expr) sqlexpr.Expr
	// Leftovers returns the recorded deliveries of an account, by their ids there, without those on hold.
	Leftovers(ctx context.Context, account string) ([]int64, error)
	// Forget removes recorded deliveries of an account, by their ids there.
	Forget(ctx context.Context, account string, ids []int64) error
}

// Errors about databases.
var (
	// ErrSameDatabase reports that the database of a server is the main one, in which ids name other deliveries.
	ErrSameDatabase = errors.New("leads to the main database")
	// ErrMain reports that an error came from the main database.
	ErrMain = errors.New("the main database")
)

// Check fails with ErrSameDatabase if both are the same database of the same server, or if one of them does not answer.
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
