package forms

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// journalRetention is how long the journal keeps entries. A failover may set the record of erasures back by some
// seconds, and the record is then brought up to date from the journal.
const journalRetention = 30 * 24 * time.Hour

// TakeOver starts a new epoch of an erasure. It waits for a running transaction of an earlier epoch; later
// transactions of earlier epochs fail.
func (d *Database) TakeOver(ctx context.Context, erasure string) (epoch int64, err error) {
	transient := func(err error) bool { return d.Transient(err) || d.duplicate(err) }
	err = Retry(ctx, MaxTries, transient, func() error {
		return d.Change(ctx, func(tx *Transaction) error {
			a := Args{"id": erasure, "old": time.Now().Add(-journalRetention).Unix()}
			prune := "DELETE FROM " + tx.OwnTable("journal") + " WHERE erasure_id <> @id AND written < @old"
			if _, err := tx.Exec(ctx, prune, a); err != nil {
				return err
			}
			n, err := tx.Exec(ctx, "UPDATE "+tx.OwnTable("erasure")+" SET epoch = epoch + 1 WHERE erasure_id = @id", a)
			if err == nil && n == 0 {
				_, err = tx.Exec(ctx, "INSERT INTO "+tx.OwnTable("erasure")+" VALUES (@id, 1, 0)", a)
			}
			if err != nil {
				return err
			}
			query := "SELECT epoch FROM " + tx.OwnTable("erasure") + " WHERE erasure_id = @id"
			return tx.Each(ctx, query, a, []any{&epoch}, func() {})
		})
	})
	return epoch, err
}

// LockErasure keeps other replicas from taking the erasure over until the transaction ends. It also returns how many
// entries of the erasure the journal has.
func (t *Transaction) LockErasure(ctx context.Context, erasure string) (epoch, entries int64, err error) {
	query := "SELECT epoch, entries FROM " + t.OwnTable("erasure") + " WHERE erasure_id = @id FOR UPDATE"
	err = t.Each(ctx, query, Args{"id": erasure}, []any{&epoch, &entries}, func() {})
	return epoch, entries, err
}

func (t *Transaction) AddEntry(ctx context.Context, erasure string, number int64, body []byte) error {
	a := Args{"id": erasure, "entry": number, "now": time.Now().Unix(), "body": string(body)}
	if _, err := t.Exec(ctx, "INSERT INTO "+t.OwnTable("journal")+" VALUES (@id, @entry, @now, @body)", a); err != nil {
		return err
	}
	_, err := t.Exec(ctx, "UPDATE "+t.OwnTable("erasure")+" SET entries = @entry WHERE erasure_id = @id", a)
	return err
}

// Entry returns nil if there is no such entry.
func (d *Database) Entry(ctx context.Context, erasure string, number int64) (body []byte, err error) {
	text, values := expand(d.dialect,
		"SELECT body FROM "+d.OwnTable("journal")+" WHERE erasure_id = @id AND entry = @entry",
		Args{"id": erasure, "entry": number})
	err = d.db.QueryRowContext(ctx, text, values...).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return body, err
}
