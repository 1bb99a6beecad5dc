package userdata

import (
	"context"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

var ErrUnfinished = failure.New(failure.Precondition, "the erasure has not ended yet")

// ErrNotUser means that the given user id is not the erasure's, or that a user id is missing or unexpected.
var ErrNotUser = failure.Field("user_id", "is not the user id of this erasure")

// Verify searches again for everything that the erasure was to erase, and adds the result to the receipt. The query
// must be the erasure's, and only the caller knows its user id; it is nil for an erasure by ids.
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
	if err := attachVerification(ctx, m.Record, id, v); err != nil {
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
