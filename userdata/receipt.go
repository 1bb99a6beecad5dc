package userdata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Receipt is the lasting record of an erasure. It holds no user data.
type Receipt struct {
	ID          string
	RequestedBy connection.Text
	CreateTime  time.Time
	EndTime     *time.Time // nil while the erasure is running
	Succeeded   bool
	DryRun      bool
	Sweep       bool
	Purge       string // the purge that the erasure belongs to, in the run RunID; empty if a user requested it
	RunID       string
	UserIDHash  string // a salted hash; empty unless a user id was given
	Salt        string
	Instances   []int64
	Tasks       []int64
	Rows        forms.Rows
	Files       []string
	Problems    []string
	// Verification is the latest one; nil if the erasure was never verified.
	Verification *Verification
}

// Verification is the result of searching again for what an erasure was to erase.
type Verification struct {
	Time time.Time `json:"Time"`
	// Clean says that nothing was found, apart from possible coincidences.
	Clean bool `json:"Clean"`
	// Instances and Tasks were found by the erasure's ids or by the user. Possible lists process instances with a
	// variable that contains the user id as a part of something longer.
	Instances   []int64  `json:"Instances"`
	Tasks       []int64  `json:"Tasks"`
	Possible    []int64  `json:"Possible"`
	NotSearched []string `json:"NotSearched"`
}

var ErrNoReceipt = failure.New(failure.NotFound, "receipt not found")

// selectReceipt selects receipts of erasures e, in the order of the fields of Receipt. Receipts that satisfy the
// condition %[1]s list their process instances and files.
const selectReceipt = `
SELECT e.id::text, e.requested_by, e.create_time, e.end_time, e.state = 'SUCCEEDED', false, e.sweep,
  COALESCE(e.purge ->> 'Name', ''), COALESCE(e.run_id::text, ''), e.user_id_hash, e.salt,
  ARRAY(SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = e.id AND kind = 'instance' AND %[1]s ORDER BY 1),
  ARRAY(SELECT item_id FROM cleanupd.erasure_item WHERE erasure_id = e.id AND kind = 'task' ORDER BY 1),
  COALESCE((SELECT jsonb_object_agg(relation, rows) FROM cleanupd.erasure_rows WHERE erasure_id = e.id), '{}'),
  COALESCE((SELECT jsonb_agg(body -> 'File' ORDER BY sequence) FROM cleanupd.erasure_event WHERE erasure_id = e.id
    AND body ? 'File' AND %[1]s), '[]'),
  COALESCE((SELECT jsonb_agg(body -> 'Log' -> 'Message' ORDER BY sequence) FROM cleanupd.erasure_event
    WHERE erasure_id = e.id AND body -> 'Log' ->> 'Level' IN ('WARNING', 'ERROR')), '[]'),
  e.verification
FROM cleanupd.erasure AS e `

// Receipt fails with ErrNoReceipt if there is no such erasure.
func (m *Manager) Receipt(ctx context.Context, id string) (*Receipt, error) {
	if _, err := uuid.Parse(id); err != nil {
		return nil, fmt.Errorf("%w: %.64q", ErrNoReceipt, id)
	}
	rows, _ := m.Record.Query(ctx, fmt.Sprintf(selectReceipt, "true")+"WHERE e.id = $1::text::uuid", id)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Receipt])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", ErrNoReceipt, id)
	}
	return r, err
}

// Receipts returns a page of receipts, newest first, and the token of the next page, which is "" after the last one.
// Receipts of purges do not list process instances and files. The order relies on ids that grow with time.
func (m *Manager) Receipts(
	ctx context.Context, size int, token string,
) (list []*Receipt, next string, err error) {
	before, err := pagetoken.Parse[uuid.UUID](token)
	if err != nil {
		return nil, "", err
	}
	query := fmt.Sprintf(selectReceipt, "e.purge IS NULL") + "WHERE $1 OR e.id < $2 ORDER BY e.id DESC LIMIT $3"
	rows, _ := m.Record.Query(ctx, query, token == "", before, size+1)
	if list, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Receipt]); err != nil {
		return nil, "", err
	}
	list, next = pagetoken.Cut(list, size, func(r *Receipt) string { return r.ID })
	return list, next, nil
}

var ErrUnfinished = failure.New(failure.Precondition, "the erasure has not ended yet")

// ErrNotUser means that the given user id is not the erasure's, or that a user id is missing or unexpected.
var ErrNotUser = failure.Field("user_id", "is not the user id of this erasure")

// Verify searches again for everything that the erasure was to erase, and adds the result to the receipt. The query
// must be the erasure's, which only the caller has; it is nil for an erasure by ids.
func (m *Manager) Verify(ctx context.Context, id string, q *Query) (*Receipt, error) {
	r, err := m.Receipt(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.EndTime == nil {
		return nil, ErrUnfinished
	}
	if byUser := r.UserIDHash != ""; byUser != (q != nil) {
		return nil, ErrNotUser
	}
	v := &Verification{Time: time.Now().UTC()}
	if q != nil {
		same, err := isUser(q.UserID, r.UserIDHash, r.Salt)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, ErrNotUser
		}
		if err := m.verifyUser(ctx, *q, v); err != nil {
			return nil, err
		}
	}
	if err := m.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		return m.verifyItems(ctx, tx, r, v)
	}); err != nil {
		return nil, err
	}
	v.Instances, v.Tasks = sortedSet(v.Instances), sortedSet(v.Tasks)
	v.Clean = len(v.Instances)+len(v.Tasks) == 0
	const attach = "UPDATE cleanupd.erasure SET verification = $2 WHERE id = $1::text::uuid"
	if _, err := m.Record.Exec(ctx, attach, id, v); err != nil {
		return nil, err
	}
	r.Verification = v
	return r, nil
}

func (m *Manager) verifyUser(ctx context.Context, q Query, v *Verification) error {
	found, err := m.Find(ctx, q)
	if err != nil {
		return err
	}
	v.NotSearched, v.Tasks = found.NotSearched, found.OrphanTasks
	for _, in := range found.Instances {
		if in.Certain() {
			v.Instances = append(v.Instances, in.ID)
		} else {
			v.Possible = append(v.Possible, in.ID)
		}
	}
	return nil
}

func (m *Manager) verifyItems(
	ctx context.Context, tx *forms.Transaction, r *Receipt, v *Verification,
) error {
	remover := forms.NewRemover(tx, true)
	for ids := range slices.Chunk(r.Instances, itemsPerTransaction) {
		left, err := remover.Instances(ctx, ids, m.InDatabase)
		if err != nil {
			return err
		}
		v.Instances = append(v.Instances, left.Items()...)
	}
	for ids := range slices.Chunk(r.Tasks, itemsPerTransaction) {
		tasks, err := remover.FindTasks(ctx, ids, "")
		if err != nil {
			return err
		}
		orphans, retained, _ := orphansOf(tasks)
		for _, o := range orphans {
			v.Tasks = append(v.Tasks, o.ID)
		}
		v.Tasks = append(v.Tasks, retained...)
	}
	return nil
}
