package userdata

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/failure"
)

var ErrNoPurge = failure.New(failure.NotFound, "there is no purge of this name")

func NoPurge(name string) error { return fmt.Errorf("%w: %.64q", ErrNoPurge, name) }

// Note is called in the transaction that changes a rule. before is nil for a new rule, and after for a deleted one.
type PurgeNote func(ctx context.Context, tx pgx.Tx, before, after *Purge) error

// Store keeps the rules for one Forms database in the service's own database.
type purgeStore struct {
	Record  *pgxpool.Pool
	FormsID string // the identity of the Forms database
}

const selectRules = "SELECT name, application, workflow, date_column, days, enabled FROM cleanupd.forms_purge " +
	"WHERE forms_id = $1 "

// List returns the rules ordered by name.
func (s purgeStore) list(ctx context.Context, db external.Querier) ([]Purge, error) {
	rows, _ := db.Query(ctx, selectRules+`ORDER BY name COLLATE "C"`, s.FormsID)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Purge])
}

// lock returns nil if there is no such rule. It fails with etag.ErrStale if the given etag is not the rule's.
func (s purgeStore) lock(ctx context.Context, tx pgx.Tx, name, givenEtag string) (*Purge, error) {
	// a row that does not exist cannot be locked
	if _, err := tx.Exec(ctx, "LOCK TABLE cleanupd.forms_purge IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, selectRules+"AND name = $2", s.FormsID, name)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Purge])
	current := ""
	switch {
	case err == nil:
		current = r.Etag()
	case !errors.Is(err, pgx.ErrNoRows):
		return nil, err
	}
	return r, etag.Check(givenEtag, current, "the purge")
}

// Set calls change with the rule, or nil if it does not exist, and stores the result. It fails with etag.ErrStale if
// the given etag is not the current rule's.
func (s purgeStore) set(
	ctx context.Context, name, givenEtag string, change func(before *Purge) (Purge, error), note PurgeNote,
) (r Purge, err error) {
	err = pgx.BeginFunc(ctx, s.Record, func(tx pgx.Tx) error {
		before, err := s.lock(ctx, tx, name, givenEtag)
		if err != nil {
			return err
		}
		if r, err = change(before); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			`INSERT INTO cleanupd.forms_purge VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (forms_id, name) DO UPDATE
			SET application = excluded.application, workflow = excluded.workflow, date_column = excluded.date_column,
				days = excluded.days, enabled = excluded.enabled`,
			s.FormsID, r.Name, r.Application, r.Workflow, r.DateColumn, r.Days, r.Enabled,
		); err != nil {
			return err
		}
		return note(ctx, tx, before, &r)
	})
	return r, err
}

// Delete fails with ErrNotFound if there is no such rule, and with etag.ErrStale if the given etag is not the
// rule's.
func (s purgeStore) delete(ctx context.Context, name, givenEtag string, note PurgeNote) error {
	return pgx.BeginFunc(ctx, s.Record, func(tx pgx.Tx) error {
		before, err := s.lock(ctx, tx, name, givenEtag)
		switch {
		case err != nil:
			return err
		case before == nil:
			return NoPurge(name)
		}
		const deleteRule = "DELETE FROM cleanupd.forms_purge WHERE forms_id = $1 AND name = $2"
		if _, err := tx.Exec(ctx, deleteRule, s.FormsID, name); err != nil {
			return err
		}
		return note(ctx, tx, before, nil)
	})
}
