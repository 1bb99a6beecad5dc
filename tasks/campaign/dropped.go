package campaign

import (
	"context"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Dropped reports whether a statement failed because the relation, given by its quoted name, no longer exists: the
// application may drop one at any time. It queries the catalog, since the relation that the error names may be one that
// a trigger or function uses.
func Dropped(ctx context.Context, db Querier, err error, relation string) (dropped bool) {
	if !sqlstate.Is(err, pgerrcode.UndefinedTable) {
		return false
	}
	return db.QueryRow(ctx, "SELECT to_regclass($1) IS NULL", relation).Scan(&dropped) == nil && dropped
}
