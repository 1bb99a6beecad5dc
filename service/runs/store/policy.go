package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

var ErrNoPolicy = failure.New(failure.NotFound, "no such policy")

func NoPolicy(name string) error { return fmt.Errorf("%w: %.64q", ErrNoPolicy, name) }

type Policy struct {
	policy.Policy
	// Proven means that a run that followed a saved plan has executed the current rule.
	Proven bool
}

// Unproven returns a warning if no run that followed a saved plan has executed the rule yet.
func (p Policy) Unproven() []message.Message {
	if p.Proven {
		return nil
	}
	command := "cleanupd run --preview --task " + p.TaskName()
	return []message.Message{message.PolicyUnproven.With("guard", guard.Policy, "command", command)}
}

// selectPolicies also reads the identities of the relations that have the stored names now.
const selectPolicies = `
SELECT rule, ` + policyRevision + `, proven_basis, relations, ARRAY(
  SELECT concat_ws(' ', c.oid, (
    SELECT string_agg(` + campaign.ColumnIdentity + `, ' ' ORDER BY used.place)
    FROM jsonb_array_elements_text(r.of -> 'columns') WITH ORDINALITY AS used (name, place)
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = used.name AND a.attnum > 0 AND NOT a.attisdropped))
  FROM jsonb_array_elements(relations) WITH ORDINALITY AS r (of, place)
    LEFT JOIN LATERAL (
      SELECT c.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
      WHERE n.nspname = r.of ->> 'schema' AND c.relname = r.of ->> 'name'
        AND c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
      OFFSET 0 -- uses the indexes instead of joining all of pg_class
    ) AS c ON true
  ORDER BY r.place)
FROM cleanupd.policy `

func scanPolicy(row pgx.CollectableRow) (s Policy, err error) {
	var (
		proven     string
		identities []string
	)
	if err = row.Scan(&s.Policy, &s.Revision, &proven, &s.Relations, &identities); err != nil {
		return s, err
	}
	for i, identity := range identities {
		s.Relations[i].Identity = identity
	}
	s.Proven = proven == s.Basis()
	return s, err
}

// ListPolicies returns the policies ordered by name.
func ListPolicies(ctx context.Context, db campaign.Querier) ([]Policy, error) {
	rows, _ := db.Query(ctx, selectPolicies+"ORDER BY name")
	return pgx.CollectRows(rows, scanPolicy)
}

// GetPolicy fails with ErrNoPolicy.
func GetPolicy(ctx context.Context, db campaign.Querier, name string) (Policy, error) {
	rows, _ := db.Query(ctx, selectPolicies+"WHERE name = $1", name)
	s, err := pgx.CollectExactlyOneRow(rows, scanPolicy)
	if errors.Is(err, pgx.ErrNoRows) {
		err = NoPolicy(name)
	}
	return s, err
}

// LockPolicy returns nil if the policy does not exist. It fails with etag.ErrStale if givenEtag is not that of the
// policy.
func LockPolicy(ctx context.Context, tx pgx.Tx, name, givenEtag string) (*Policy, error) {
	// The whole table is locked, because a row that does not exist cannot be locked.
	if _, err := tx.Exec(ctx, "LOCK TABLE cleanupd.policy IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return nil, err
	}
	s, err := GetPolicy(ctx, tx, name)
	switch {
	case errors.Is(err, ErrNoPolicy):
		return nil, etag.Check(givenEtag, "", "the policy")
	case err != nil:
		return nil, err
	}
	return &s, etag.Check(givenEtag, s.Etag(), "the policy")
}

// SetPolicy stores a policy. It ends the refusals by guards that were made for another rule and, if the policy is
// disabled, those by guard.Policy.
func SetPolicy(ctx context.Context, tx pgx.Tx, p policy.Policy) error {
	// Marshaled here, because the connection would escape characters of names, which are compared with the catalog.
	var relations *string
	if p.Relations != nil {
		text, err := json.Marshal(p.Relations)
		if err != nil {
			return err
		}
		relations = new(string(text))
	}
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.policy (name, rule, relations) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, relations = excluded.relations`,
		p.Name, p, relations,
	)
	if err != nil {
		return err
	}
	_, err = tx.Exec(
		ctx,
		`DELETE FROM cleanupd.guard_refusal WHERE task = $1 AND (options ->> task <> $2 OR guard = $3 AND NOT $4)`,
		p.TaskName(), connection.Text(p.Basis()), guard.Policy, p.Enabled,
	)
	return err
}

func DeletePolicy(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "DELETE FROM cleanupd.policy WHERE name = $1", name)
	if err == nil {
		_, err = tx.Exec(ctx, "DELETE FROM cleanupd.guard_refusal WHERE task = $1", policy.Prefix+name)
	}
	return err
}
