package midsourcing

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Config says what to do with deliveries of mid-sourcing servers, by the names of their external accounts
// (NmsExtAccount.sName). The deliveries of accounts that are not named are deleted in the main database only.
type Config struct {
	// Databases are the databases of servers, on which deliveries are deleted first. Keep are the accounts whose
	// deliveries are retained.
	Databases map[string]*pgxpool.Pool
	Keep      []string
}

func (c Config) keeps(account string) bool {
	return c.Databases[account] == nil && slices.Contains(c.Keep, account)
}

// Register stores which deliveries remain on servers because they were deleted in the main database only.
type Register interface {
	// Record returns a statement that becomes part of the one that deletes the deliveries in the main database. The
	// columns of query are account ("" without one), there and here (the ids on the server and in the main database),
	// and label.
	Record(query sqlexpr.Expr) sqlexpr.Expr
	// Leftovers returns the ids that the recorded deliveries have on the server, without those on hold.
	Leftovers(ctx context.Context, account string) ([]int64, error)
	// Forget removes deliveries, given by their ids on the server.
	Forget(ctx context.Context, account string, ids []int64) error
}

var (
	// ErrSameDatabase means that the server's database is the main one, in which the ids belong to other deliveries.
	ErrSameDatabase = errors.New("leads to the main database")
	ErrMain         = errors.New("the main database")
)

// Check fails with ErrSameDatabase if both pools lead to the same database of the same server. It also fails if a
// database does not answer.
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
