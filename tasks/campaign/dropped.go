package campaign

import (
	"context"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Dropped reports whether a statement failed because its own relation, given by its quoted name, does not exist any
// longer: the application may drop one at any time. Only the catalog knows, since the relation that an error is about
// may be that of a trigger or a function.
func Dropped(ctx context.Context, db Querier, err error, relation string) (dropped bool) {
	if !sqlstate.Is(err, pgerrcode.UndefinedTable) {
		return false
	}
	return db.QueryRow(ctx, "SELECT to_regclass($1) IS NULL", relation).Scan(&dropped) == nil && dropped
}
