package userdata

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Receipt is what remains of an erasure. It holds no user data.
type Receipt struct {
	ID          string
	RequestedBy string
	CreateTime  time.Time
	EndTime     *time.Time
	Succeeded   bool
	DryRun      bool
	Sweep       bool
	Purge       string // the name of the purge that it was one of, in the run RunID; empty: none
	RunID       string
	UserIDHash  string
	Salt        string
	Instances   []int64
	Tasks       []int64
	Rows        Rows
	Files       []string
	Problems    []string
	// Verification is the last one; nil: there was none.
	Verification *Verification
}

// ErrPageToken says that a page token is not one of this service's.
var ErrPageToken = failure.Field("page_token", "is no page token of ListReceipts")

// selectReceipt selects receipts e; %s is the condition of those that have all of their items and files.
const selectReceipt = `
SELECT e.id::text, e.requested_by, e.create_time, e.end_time, e.state = 'SUCCEEDED', e.sweep,
  COALESCE(e.purge ->> 'Name', ''), COALESCE(e.run_id::text, ''), e.verification, e.user_id_hash, e.salt,
  ARRAY(SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = e.id AND kind = 'instance' AND %[1]s ORDER BY 1),
  ARRAY(SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = e.id AND kind = 'task' ORDER BY 1),
  COALESCE((SELECT jsonb_object_agg(relation, rows) FROM cleanupd.erasure_rows WHERE erasure_id = e.id), '{}'),
  ARRAY(SELECT body ->> 'File' FROM cleanupd.erasure_event WHERE erasure_id = e.id AND body ? 'File' AND %[1]s
    ORDER BY sequence),
  ARRAY(SELECT body -> 'Log' ->> 'Message' FROM cleanupd.erasure_event WHERE erasure_id = e.id
    AND body -> 'Log' ->> 'Level' IN ('WARNING', 'ERROR') ORDER BY sequence)
FROM cleanupd.erasure AS e `

func toReceipt(row pgx.CollectableRow) (*Receipt, error) {
	r := &Receipt{}
	return r, row.Scan(
		&r.ID,
		&r.RequestedBy,
		&r.CreateTime,
		&r.EndTime,
		&r.Succeeded,
		&r.Sweep,
		&r.Purge,
		&r.RunID,
		&r.Verification,
		&r.UserIDHash,
		&r.Salt,
		&r.Instances,
		&r.Tasks,
		&r.Rows,
		&r.Files,
		&r.Problems,
	)
}

// receipt reads one.
func (d *Database) receipt(ctx context.Context, id string) (*Receipt, error) {
	rows, err := d.Record.Query(ctx, fmt.Sprintf(selectReceipt, "true")+"WHERE e.id = $1::text::uuid", id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectExactlyOneRow(rows, toReceipt)
}

// Receipts returns a page of receipts, newest first, and the token of the next page; empty when there is none. Those of
// purges are without items and files. It relies on ids that grow with time.
func (d *Database) Receipts(ctx context.Context, size int, token string) (list []*Receipt, next string, err error) {
	before, err := parseToken(token)
	if err != nil {
		return nil, "", err
	}
	list, err = collect(
		ctx,
		d.Record,
		toReceipt,
		fmt.Sprintf(
			selectReceipt,
			"e.purge IS NULL",
		)+"WHERE $1 = '' OR e.id < NULLIF($1, '')::uuid ORDER BY e.id DESC LIMIT $2",
		before,
		size+1,
	)
	if err != nil {
		return nil, "", err
	}
	if len(list) > size {
		list = list[:size]
		next = formatToken(list[size-1].ID)
	}
	return list, next, nil
}

// formatToken is the token of the page after a receipt.
func formatToken(id string) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

// parseToken is the id of the receipt before a page; empty for the first page.
func parseToken(token string) (id string, err error) {
	if token == "" {
		return "", nil
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	key, err := uuid.ParseBytes(raw)
	if err != nil || formatToken(key.String()) != token { // only the canonical form is accepted
		return "", ErrPageToken
	}
	return key.String(), nil
}
