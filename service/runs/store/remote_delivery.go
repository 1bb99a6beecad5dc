package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// RemoteDelivery is a delivery that was deleted in the main database but remains on a mid-sourcing server.
type RemoteDelivery struct {
	Account    string // the account of the mid-sourcing server; "" if the delivery had none
	RemoteID   int64  // the delivery's id on the mid-sourcing server
	DeliveryID int64  // the delivery's id in the main database
	Label      string
	RunID      string // the run that deleted it in the main database; may be pruned by now
	RetainTime time.Time
}

type remoteKey struct {
	Account              string
	RemoteID, DeliveryID int64
}

// ListRemoteDeliveries returns deliveries ordered by account and remote id, and the token of the next page, "" on
// the last page. A nil account means all accounts. It fails with pagetoken.ErrInvalid.
func ListRemoteDeliveries(
	ctx context.Context, db campaign.Querier, account *string, size int, token string,
) ([]RemoteDelivery, string, error) {
	after, err := pagetoken.Parse[remoteKey](token)
	if strings.ContainsRune(after.Account, 0) {
		err = pagetoken.ErrInvalid
	}
	if err != nil {
		return nil, "", err
	}
	rows, _ := db.Query(
		ctx,
		`SELECT account, remote_id, delivery_id, label, run_id::text, retain_time FROM cleanupd.remote_delivery
		WHERE (@account::text IS NULL OR account = @account)
			AND (@first OR (account, remote_id, delivery_id) > (@after_account, @after_remote, @after_delivery))
		ORDER BY account, remote_id, delivery_id LIMIT @limit`,
		pgx.StrictNamedArgs{
			"account":        account,
			"first":          token == "",
			"after_account":  after.Account,
			"after_remote":   after.RemoteID,
			"after_delivery": after.DeliveryID,
			"limit":          size + 1,
		},
	)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RemoteDelivery])
	if err != nil {
		return nil, "", err
	}
	list, next := pagetoken.Cut(list, size, func(d RemoteDelivery) remoteKey {
		return remoteKey{d.Account, d.RemoteID, d.DeliveryID}
	})
	return list, next, nil
}

// RecordRemote returns SQL that records the deliveries that the query selects. A delivery that was restored after
// an earlier run has an entry already, which is replaced.
func RecordRemote(id uuid.UUID, query sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format(`INSERT INTO cleanupd.remote_delivery (account, remote_id, delivery_id, label, run_id)
		SELECT DISTINCT ON (account, there, here) account, there, here, label, '%s'::uuid FROM (%s) AS l
		ON CONFLICT (account, remote_id, delivery_id) DO UPDATE
			SET label = EXCLUDED.label, run_id = EXCLUDED.run_id, retain_time = EXCLUDED.retain_time`, id, query)
}

// RemoteIDs returns the recorded ids on the mid-sourcing server, leaving out those whose ids in the main database
// are on hold.
func RemoteIDs(ctx context.Context, db campaign.Querier, account string, onHold []int64) ([]int64, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT remote_id FROM cleanupd.remote_delivery WHERE account = $1 GROUP BY 1
		HAVING NOT bool_or(delivery_id = ANY ($2::bigint[])) ORDER BY 1`,
		account, append([]int64{}, onHold...),
	)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// ForgetRemote deletes the records with these ids on the mid-sourcing server. It is not fenced, because another
// worker of the run would delete the same records.
func ForgetRemote(ctx context.Context, db Execer, account string, ids []int64) error {
	_, err := db.Exec(ctx, "DELETE FROM cleanupd.remote_delivery WHERE account = $1 AND remote_id = ANY ($2)", account,
		ids)
	return err
}
