package campaign

import (
	"context"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Dropped reports whether a statement failed because its own relation, given by its quoted name, no longer exists: the
// application may drop a relation at any time. The error does not show it, since its relation may be that of a trigger
// or function; so the catalog is asked.
func Dropped(ctx context.Context, db Querier, err error, relation string) (dropped bool) {
	if !sqlstate.Is(err, pgerrcode.UndefinedTable) {
		return false
	}
	return db.QueryRow(ctx, "SELECT to_regclass($1) IS NULL", relation).Scan(&dropped) == nil && dropped
}
