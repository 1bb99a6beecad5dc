package campaign

import (
	"context"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Dropped reports whether a statement failed because its own relation, given by its quoted name, is gone: the
// application may drop one at any time. Only the catalog can say, since the relation in an error may be that of a
// trigger or function.
func Dropped(ctx context.Context, db Querier, err error, relation string) (dropped bool) {
	if !sqlstate.Is(err, pgerrcode.UndefinedTable) {
		return false
	}
	return db.QueryRow(ctx, "SELECT to_regclass($1) IS NULL", relation).Scan(&dropped) == nil && dropped
}
