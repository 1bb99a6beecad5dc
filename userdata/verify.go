package userdata

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// ErrNoReceipt says that there is no receipt with an id.
var ErrNoReceipt = failure.New(failure.NotFound, "there is no such receipt")

// ErrUnfinished says that an erasure is in progress.
var ErrUnfinished = failure.New(failure.Precondition, "the erasure has not ended yet")

// ErrNotUser says that a user id is not that of an erasure, or that one is needed or not.
var ErrNotUser = failure.Field("user_id", "is not the user id of this erasure")

// Verification is what was found when it was searched again for what an erasure was about.
type Verification struct {
	Time time.Time `json:"Time"`
	// Clean says that nothing was found, but for what may be a coincidence.
	Clean bool `json:"Clean"`
	// Instances and Tasks are what was found, by the ids of the erasure or by the user; Possible are the process
	// instances with a variable that holds the user id as a part of something longer.
	Instances   []int64  `json:"Instances"`
	Tasks       []int64  `json:"Tasks"`
	Possible    []int64  `json:"Possible"`
	NotSearched []string `json:"NotSearched"`
}

// Receipt returns the receipt with an id.
func (d *Database) Receipt(ctx context.Context, id string) (*Receipt, error) {
	if _, err := uuid.Parse(id); err != nil {
		return nil, fmt.Errorf("%w: %.64q", ErrNoReceipt, id)
	}
	r, err := d.receipt(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", ErrNoReceipt, id)
	}
	return r, err
}

// Verify searches again for what an erasure was about, attaches the result to its receipt, and returns that. The query
// is that of the erasure, whose user id only the caller knows; nil: the erasure was by ids.
func (d *Database) Verify(ctx context.Context, id string, q *Query) (*Receipt, error) {
	r, err := d.Receipt(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.EndTime == nil {
		return nil, ErrUnfinished
	}
	salt, err := hex.DecodeString(r.Salt)
	if err != nil {
		return nil, err
	}
	if byUser := r.UserIDHash != ""; byUser != (q != nil) || (byUser && hash(q.UserID, salt) != r.UserIDHash) {
		return nil, ErrNotUser
	}
	v := &Verification{Time: time.Now().UTC()}
	if q != nil {
		found, err := d.Find(ctx, *q)
		if err != nil {
			return nil, err
		}
		v.NotSearched, v.Tasks = found.NotSearched, found.OrphanTasks
		for _, in := range found.Instances {
			if in.certain() {
				v.Instances = append(v.Instances, in.ID)
			} else {
				v.Possible = append(v.Possible, in.ID)
			}
		}
	}
	if err := d.Forms.snapshot(ctx, func(tx *transaction) error {
		remover := newRemover(tx, true)
		for some := range slices.Chunk(r.Instances, atOnce) {
			left, err := remover.instances(ctx, some, d.InDatabase)
			if err != nil {
				return err
			}
			v.Instances = append(v.Instances, left.items()...)
		}
		for some := range slices.Chunk(r.Tasks, atOnce) {
			orphans, kept, _, err := remover.sort(ctx, some, "")
			if err != nil {
				return err
			}
			for _, o := range orphans {
				v.Tasks = append(v.Tasks, o.id)
			}
			v.Tasks = append(v.Tasks, kept...)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	v.Instances, v.Tasks = unique(v.Instances), unique(v.Tasks)
	v.Clean = len(v.Instances)+len(v.Tasks) == 0
	if _, err := d.Record.Exec(
		ctx,
		"UPDATE cleanupd.erasure SET verification = $2 WHERE id = $1::text::uuid",
		id,
		v,
	); err != nil {
		return nil, err
	}
	r.Verification = v
	return r, nil
}
