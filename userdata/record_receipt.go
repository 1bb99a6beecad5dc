package userdata

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
)

var ErrNoReceipt = failure.New(failure.NotFound, "receipt not found")

// selectReceipt selects receipts of erasures e, in the order of the fields of report.Receipt. Receipts that satisfy
// the condition %[1]s list their items and files.
const selectReceipt = `
SELECT e.id::text, e.requested_by, e.create_time, e.end_time, e.state = 'SUCCEEDED', false, e.sweep,
  COALESCE(e.purge ->> 'Name', ''), COALESCE(e.run_id::text, ''), e.user_id_hash, e.salt,
  ARRAY(SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = e.id AND kind = 'instance' AND %[1]s ORDER BY 1),
  ARRAY(SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = e.id AND kind = 'task' ORDER BY 1),
  COALESCE((SELECT jsonb_object_agg(relation, rows) FROM cleanupd.erasure_rows WHERE erasure_id = e.id), '{}'),
  ARRAY(SELECT body ->> 'File' FROM cleanupd.erasure_event WHERE erasure_id = e.id AND body ? 'File' AND %[1]s
    ORDER BY sequence),
  ARRAY(SELECT body -> 'Log' ->> 'Message' FROM cleanupd.erasure_event WHERE erasure_id = e.id
    AND body -> 'Log' ->> 'Level' IN ('WARNING', 'ERROR') ORDER BY sequence),
  e.verification
FROM cleanupd.erasure AS e `

// Receipt fails with ErrNoReceipt if there is no such erasure.
func readReceipt(ctx context.Context, db external.Querier, id string) (*Receipt, error) {
	if _, err := uuid.Parse(id); err != nil {
		return nil, fmt.Errorf("%w: %.64q", ErrNoReceipt, id)
	}
	rows, _ := db.Query(ctx, fmt.Sprintf(selectReceipt, "true")+"WHERE e.id = $1::text::uuid", id)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Receipt])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", ErrNoReceipt, id)
	}
	return r, err
}

// Receipts returns a page of receipts, newest first, and the token of the next page, which is "" after the last one.
// Receipts of purges do not list items and files. The order relies on ids that grow with time.
func readReceipts(
	ctx context.Context, db external.Querier, size int, token string,
) (list []*Receipt, next string, err error) {
	before, err := pagetoken.Parse[uuid.UUID](token)
	if err != nil {
		return nil, "", err
	}
	query := fmt.Sprintf(selectReceipt, "e.purge IS NULL") + "WHERE $1 OR e.id < $2 ORDER BY e.id DESC LIMIT $3"
	rows, _ := db.Query(ctx, query, token == "", before, size+1)
	if list, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Receipt]); err != nil {
		return nil, "", err
	}
	list, next = pagetoken.Cut(list, size, func(r *Receipt) string { return r.ID })
	return list, next, nil
}

func attachVerification(ctx context.Context, db execer, id string, v *Verification) error {
	_, err := db.Exec(ctx, "UPDATE cleanupd.erasure SET verification = $2 WHERE id = $1::text::uuid", id, v)
	return err
}
