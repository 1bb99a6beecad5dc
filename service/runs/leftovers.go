package runs

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// RemoteDelivery is a delivery that stays on a mid-sourcing server, and is gone here.
type RemoteDelivery struct {
	Account    string // empty: it had none
	RemoteID   int64  // its id there
	DeliveryID int64  // its id here
	Label      string
	RunID      string // the run that deleted it here; it may be forgotten
	LeaveTime  time.Time
}

// RemoteDeliveries reads a page of the deliveries that stay on mid-sourcing servers, by account and their ids there,
// and the token of the next page; empty when there is none. account nil: of all. It fails with ErrPageToken.
func (m *Manager) RemoteDeliveries(
	ctx context.Context,
	account *string,
	size int,
	token string,
) ([]RemoteDelivery, string, error) {
	after, err := parseRemoteToken(token)
	if err != nil {
		return nil, "", err
	}
	rows, err := m.calls.Query(
		ctx,
		`SELECT account, remote_id, delivery_id, label, run_id::text, leave_time FROM cleanupd.remote_delivery
		WHERE ($1::text IS NULL OR account = $1) AND ($2 OR (account, remote_id, delivery_id) > ($3, $4, $5))
			ORDER BY account, remote_id, delivery_id LIMIT $6`,
		account,
		token == "",
		after.Account,
		after.RemoteID,
		after.DeliveryID,
		size+1,
	)
	if err != nil {
		return nil, "", err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RemoteDelivery])
	if err != nil || len(list) <= size {
		return list, "", err
	}
	return list[:size], formatRemoteToken(list[size-1]), nil
}

// formatRemoteToken is the token of the page after a delivery.
func formatRemoteToken(d RemoteDelivery) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", d.RemoteID, d.DeliveryID, d.Account))
}

// parseRemoteToken is the delivery before a page; empty for the first page.
func parseRemoteToken(token string) (d RemoteDelivery, err error) {
	if token == "" {
		return d, nil
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(raw), " ", 3)
	if len(parts) == 3 {
		d.RemoteID, _ = strconv.ParseInt(parts[0], 10, 64)
		d.DeliveryID, _ = strconv.ParseInt(parts[1], 10, 64)
		d.Account = parts[2]
	}
	// only the canonical form is accepted
	if formatRemoteToken(d) != token || !utf8.ValidString(d.Account) || strings.ContainsRune(d.Account, 0) {
		return RemoteDelivery{}, ErrPageToken
	}
	return d, nil
}

// Record implements midsourcing.Register. A delivery has an entry already if its row was restored after an earlier run.
func (j *journal) Record(query string) string {
	return fmt.Sprintf(`INSERT INTO cleanupd.remote_delivery (account, remote_id, delivery_id, label, run_id)
		SELECT DISTINCT ON (account, there, here) account, there, here, label, '%s'::uuid FROM (%s) AS l
		ON CONFLICT (account, remote_id, delivery_id) DO UPDATE
			SET label = EXCLUDED.label, run_id = EXCLUDED.run_id, leave_time = EXCLUDED.leave_time`, j.claim.id, query)
}

// Leftovers implements midsourcing.Register.
func (j *journal) Leftovers(ctx context.Context, account string) ([]int64, error) {
	holds, _, err := readHolds(ctx, j.m.pool, j.claim.referenceTime)
	if err != nil || holds.Everything {
		return nil, err
	}
	rows, err := j.m.pool.Query(
		ctx,
		"SELECT remote_id FROM cleanupd.remote_delivery WHERE account = $1 GROUP BY 1 HAVING NOT bool_or(delivery_id "+
			"= ANY ($2::bigint[])) ORDER BY 1",
		account,
		append([]int64{}, holds.Deliveries...),
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Forget implements midsourcing.Register. Another replica that has the run by now would forget the same.
func (j *journal) Forget(ctx context.Context, account string, ids []int64) error {
	_, err := j.m.pool.Exec(
		ctx,
		"DELETE FROM cleanupd.remote_delivery WHERE account = $1 AND remote_id = ANY ($2)",
		account,
		ids,
	)
	return err
}
