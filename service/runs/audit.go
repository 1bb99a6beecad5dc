package runs

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/service/audit"
)

// Act is an entry of the audit with its number.
type Act struct {
	ID int64
	audit.Entry
}

// Audit reads a page of the audit, newest first, and the token of the next page; empty when there is none. It fails
// with ErrPageToken.
func (m *Manager) Audit(ctx context.Context, size int, token string) ([]Act, string, error) {
	before, err := parseNumberToken(token)
	if err != nil {
		return nil, "", err
	}
	rows, err := m.calls.Query(ctx, `SELECT id, `+audit.Columns+` FROM cleanupd.audit
		WHERE $1 = 0 OR id < $1 ORDER BY id DESC LIMIT $2`, before, size+1)
	if err != nil {
		return nil, "", err
	}
	acts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Act])
	if err != nil || len(acts) <= size {
		return acts, "", err
	}
	return acts[:size], formatNumberToken(acts[size-1].ID), nil
}
