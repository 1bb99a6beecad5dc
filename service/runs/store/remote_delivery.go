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

// A delivery that remains on a mid-sourcing server, and was deleted in the main database.
type RemoteDelivery struct {
	Account    string // "" if it had none
	RemoteID   int64  // its id there
	DeliveryID int64  // its id in the main database
	Label      string
	RunID      string // the run that deleted it, which may be pruned by now
	RetainTime time.Time
}

type remoteKey struct {
	Account              string
	RemoteID, DeliveryID int64
}

// By account (nil: all) and the ids there; the token is "" on the last page. ListRemoteDeliveries fails with
// pagetoken.ErrInvalid.
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

// RecordRemote records the deliveries of a query. A delivery that was restored after an earlier run has an entry
// already.
func RecordRemote(id uuid.UUID, query sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format(`INSERT INTO cleanupd.remote_delivery (account, remote_id, delivery_id, label, run_id)
		SELECT DISTINCT ON (account, there, here) account, there, here, label, '%s'::uuid FROM (%s) AS l
		ON CONFLICT (account, remote_id, delivery_id) DO UPDATE
			SET label = EXCLUDED.label, run_id = EXCLUDED.run_id, retain_time = EXCLUDED.retain_time`, id, query)
}

// RemoteIDs are ids on the mid-sourcing server, except those whose ids in the main database are on hold.
func RemoteIDs(ctx context.Context, db campaign.Querier, account string, onHold []int64) ([]int64, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT remote_id FROM cleanupd.remote_delivery WHERE account = $1 GROUP BY 1
		HAVING NOT bool_or(delivery_id = ANY ($2::bigint[])) ORDER BY 1`,
		account, append([]int64{}, onHold...),
	)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// ids are those on the mid-sourcing server. No fence is needed: another worker of the run would delete the same.
func ForgetRemote(ctx context.Context, db Execer, account string, ids []int64) error {
	_, err := db.Exec(ctx, "DELETE FROM cleanupd.remote_delivery WHERE account = $1 AND remote_id = ANY ($2)", account,
		ids)
	return err
}
