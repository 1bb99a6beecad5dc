package userdata

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Change runs fn in a transaction of the Forms database, and again after transient errors, at most tries times. The
// transaction also writes the entry that fn returns to the journal, and Change then copies the entry to the record.
func (e *erasure) change(ctx context.Context, tries uint, fn func(tx *forms.Transaction) (*entry, error)) error {
	err := forms.Retry(ctx, tries, e.Forms.Transient, func() error {
		return e.unlessHeld(ctx, func() error { return e.changeOnce(ctx, fn) })
	})
	if err != nil {
		return err
	}
	return e.catchUp(ctx)
}

// changeOnce commits only if this replica still holds the lock of the erasure.
func (e *erasure) changeOnce(ctx context.Context, fn func(tx *forms.Transaction) (*entry, error)) error {
	return e.Forms.Change(ctx, func(tx *forms.Transaction) error {
		entries, err := e.fence(ctx, tx)
		if err != nil {
			return err
		}
		entry, err := fn(tx)
		if err != nil {
			return err
		}
		body, err := json.Marshal(entry)
		if err != nil {
			return err
		}
		if err := tx.AddEntry(ctx, e.ID, entries+1, body); err != nil {
			return err
		}
		return e.conn.Ping(ctx)
	})
}

// fence fails if another replica has taken the erasure over, and prevents a takeover until the transaction ends. It
// returns how many entries of the erasure the journal has.
func (e *erasure) fence(ctx context.Context, tx *forms.Transaction) (entries int64, err error) {
	epoch, entries, err := tx.LockErasure(ctx, e.ID)
	if err == nil && epoch != e.epoch {
		err = errTaken
	}
	return entries, err
}

// catchUp copies the journal's entries that are not yet in the record to it.
func (e *erasure) catchUp(ctx context.Context) error {
	applied, err := e.appliedEntries(ctx, e.Record)
	if err != nil {
		return err
	}
	for number := applied + 1; ; number++ {
		body, err := e.Forms.Entry(ctx, e.ID, number)
		if err != nil || body == nil {
			return err
		}
		var entry entry
		if err := json.Unmarshal(body, &entry); err != nil {
			return err
		}
		if err := e.transact(ctx, func(tx pgx.Tx) error { return e.applyEntry(ctx, tx, number, &entry) }); err != nil {
			return err
		}
	}
}
