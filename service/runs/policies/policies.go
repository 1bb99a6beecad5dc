package policies

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// ErrNotFound reports that no policy has a name.
var ErrNotFound = failure.New(failure.NotFound, "there is no policy of this name")

// NotFound returns ErrNotFound for a name.
func NotFound(name string) error { return fmt.Errorf("%w: %.64q", ErrNotFound, name) }

// Stored is a stored policy.
type Stored struct {
	policy.Policy
	// Proven is true if a run has done the rule by a saved plan.
	Proven bool
}

const selectPolicies = "SELECT rule, proven FROM cleanupd.policy "

func scan(row pgx.CollectableRow) (s Stored, err error) {
	var proven string
	err = row.Scan(&s.Policy, &proven)
	s.Proven = proven == s.Basis()
	return s, err
}

// List returns all policies in the order of their names.
func List(ctx context.Context, db campaign.Querier) ([]Stored, error) {
	rows, _ := db.Query(ctx, selectPolicies+"ORDER BY name")
	return pgx.CollectRows(rows, scan)
}

// Get returns the policy of a name. It fails with ErrNotFound.
func Get(ctx context.Context, db campaign.Querier, name string) (Stored, error) {
	rows, _ := db.Query(ctx, selectPolicies+"WHERE name = $1", name)
	s, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		err = NotFound(name)
	}
	return s, err
}

// Lock reads the policy of a name in a transaction that changes it; nil if it does not exist. It fails with
// etag.ErrStale if an etag is given that is not the policy's.
func Lock(ctx context.Context, tx pgx.Tx, name, givenEtag string) (*Stored, error) {
	// a row that does not exist cannot be locked
	if _, err := tx.Exec(ctx, "LOCK TABLE cleanupd.policy IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return nil, err
	}
	s, err := Get(ctx, tx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, etag.Check(givenEtag, "", "the policy")
	case err != nil:
		return nil, err
	}
	return &s, etag.Check(givenEtag, s.Etag(), "the policy")
}

// Set stores a policy.
func Set(ctx context.Context, tx pgx.Tx, p policy.Policy) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.policy (name, rule) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET rule = excluded.rule`,
		p.Name, p,
	)
	return err
}

// Delete deletes a policy.
func Delete(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "DELETE FROM cleanupd.policy WHERE name = $1", name)
	return err
}
