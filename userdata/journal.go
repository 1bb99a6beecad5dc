package userdata

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// entry is what one transaction in the Forms database did. It is written to the journal there, by that transaction, and
// then told to the record.
type entry struct {
	Kind     string    `json:"Kind,omitempty"`     // of the items
	Items    []int64   `json:"Items,omitempty"`    // that are done
	Kept     []int64   `json:"Kept,omitempty"`     // that stay, as an event says
	Rows     Rows      `json:"Rows,omitempty"`     // how many were deleted
	Sessions []session `json:"Sessions,omitempty"` // whose documents must be deleted afterwards
	Settled  []string  `json:"Settled,omitempty"`  // sessions whose documents are gone
	Events   []Event   `json:"Events,omitempty"`
}

// take makes this replica the one that works on the erasure: transactions of another one that had it fail from now on.
// It waits for that which such a one has begun.
func (e *erasure) take(ctx context.Context) error {
	return retry(
		ctx,
		maxTries,
		func(err error) bool { return e.Forms.transient(err) || e.Forms.duplicate(err) },
		func() error {
			return e.Forms.change(ctx, func(tx *transaction) error {
				if _, err := tx.exec(
					ctx,
					"DELETE FROM "+tx.own("journal")+" WHERE erasure_id <> @id AND written < @old",
					args{"id": e.id, "old": time.Now().Add(-journalKept).Unix()},
				); err != nil {
					return err
				}
				n, err := tx.exec(
					ctx,
					"UPDATE "+tx.own("erasure")+" SET epoch = epoch + 1 WHERE erasure_id = @id",
					args{"id": e.id},
				)
				if err == nil && n == 0 {
					_, err = tx.exec(ctx, "INSERT INTO "+tx.own("erasure")+" VALUES (@id, 1, 0)", args{"id": e.id})
				}
				if err != nil {
					return err
				}
				return tx.each(
					ctx,
					"SELECT epoch FROM "+tx.own("erasure")+" WHERE erasure_id = @id",
					args{"id": e.id},
					[]any{&e.epoch},
					func() {},
				)
			})
		},
	)
}

// change runs fn in a transaction of the Forms database, and again after transient errors, and records what it did.
func (e *erasure) change(ctx context.Context, tries uint, fn func(tx *transaction) (*entry, error)) error {
	err := retry(ctx, tries, e.Forms.transient, func() error {
		return e.unlessHeld(ctx, func() error { return e.changeOnce(ctx, fn) })
	})
	if err != nil {
		return err
	}
	return e.catchUp(ctx)
}

// changeOnce is change without another try. It commits only if the record has not taken the erasure's locks from this
// replica.
func (e *erasure) changeOnce(ctx context.Context, fn func(tx *transaction) (*entry, error)) error {
	return e.Forms.change(ctx, func(tx *transaction) error {
		number, err := e.fence(ctx, tx)
		if err != nil {
			return err
		}
		done, err := fn(tx)
		if err != nil {
			return err
		}
		body, err := json.Marshal(done)
		if err != nil {
			return err
		}
		if _, err := tx.exec(
			ctx,
			"INSERT INTO "+tx.own("journal")+" VALUES (@id, @entry, @now, @body)",
			args{"id": e.id, "entry": number, "now": time.Now().Unix(), "body": string(body)},
		); err != nil {
			return err
		}
		if _, err = tx.exec(
			ctx,
			"UPDATE "+tx.own("erasure")+" SET entries = @entry WHERE erasure_id = @id",
			args{"id": e.id, "entry": number},
		); err != nil {
			return err
		}
		return e.conn.Ping(ctx)
	})
}

// fence fails unless this replica is the one that works on the erasure, and keeps others from it until the transaction
// ends. It returns the number of the next entry.
func (e *erasure) fence(ctx context.Context, tx *transaction) (next int64, err error) {
	var epoch, entries int64
	err = tx.each(
		ctx,
		"SELECT epoch, entries FROM "+tx.own("erasure")+" WHERE erasure_id = @id FOR UPDATE",
		args{"id": e.id},
		[]any{&epoch, &entries},
		func() {},
	)
	if err == nil && epoch != e.epoch {
		err = errTaken
	}
	return entries + 1, err
}

// catchUp tells the record what the journal has and it has not.
func (e *erasure) catchUp(ctx context.Context) error {
	var applied int64
	if err := e.Record.QueryRow(ctx, "SELECT applied FROM cleanupd.erasure WHERE id = $1::text::uuid", e.id).
		Scan(&applied); err != nil {
		return err
	}
	for {
		var body string
		text, values := expand(
			e.Forms.dialect,
			"SELECT body FROM "+e.Forms.own("journal")+" WHERE erasure_id = @id AND entry = @entry",
			args{"id": e.id, "entry": applied + 1},
		)
		switch err := e.Forms.db.QueryRowContext(ctx, text, values...).Scan(&body); {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		var done entry
		if err := json.Unmarshal([]byte(body), &done); err != nil {
			return err
		}
		if err := e.transact(ctx, func(tx pgx.Tx) error {
			tag, err := tx.Exec(
				ctx,
				"UPDATE cleanupd.erasure SET applied = $2 WHERE id = $1::text::uuid AND applied = $2 - 1",
				e.id,
				applied+1,
			)
			if err != nil || tag.RowsAffected() == 0 { // another replica has told it
				return err
			}
			return e.settle(ctx, tx, &done)
		}); err != nil {
			return err
		}
		applied++
	}
}
