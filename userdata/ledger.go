package userdata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// entry is an entry of the ledger: the effects of one transaction of an erasure in the Forms database.
type entry struct {
	Kind     string          `json:"Kind,omitempty"`     // the kind of Items and Kept
	Items    []int64         `json:"Items,omitempty"`    // the items that were erased
	Kept     []int64         `json:"Kept,omitempty"`     // the items that were not erased; an event has the reason
	Rows     forms.Rows      `json:"Rows,omitempty"`     // deleted rows
	Sessions []forms.Session `json:"Sessions,omitempty"` // sessions whose documents must be deleted afterwards
	Settled  []string        `json:"Settled,omitempty"`  // sessions whose documents have been deleted
	Events   []Event         `json:"Events,omitempty"`
}

// change runs fn in a transaction of the Forms database, and again after transient errors, at most tries times. The
// transaction also writes the entry that fn returns to the ledger, and change then copies the entry to the record.
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
		if err := tx.AddEntry(ctx, e.id, entries+1, body); err != nil {
			return err
		}
		return e.conn.Ping(ctx)
	})
}

// fence fails if another replica has taken the erasure over, and prevents a takeover until the transaction ends. It
// returns how many entries of the erasure the ledger has.
func (e *erasure) fence(ctx context.Context, tx *forms.Transaction) (entries int64, err error) {
	epoch, entries, err := tx.LockErasure(ctx, e.id)
	if err == nil && epoch != e.epoch {
		err = errTaken
	}
	return entries, err
}

// catchUp copies the ledger's entries that are not yet in the record to it.
func (e *erasure) catchUp(ctx context.Context) error {
	applied, err := e.appliedEntries(ctx)
	if err != nil {
		return err
	}
	for number := applied + 1; ; number++ {
		body, err := e.Forms.Entry(ctx, e.id, number)
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

func (e *erasure) appliedEntries(ctx context.Context) (n int64, err error) {
	err = e.Record.QueryRow(ctx, "SELECT entries_applied FROM cleanupd.erasure WHERE id = $1::text::uuid", e.id).Scan(&n)
	return n, err
}

// applyEntry does nothing if the entry has already been recorded, for example by another replica.
func (e *erasure) applyEntry(ctx context.Context, tx pgx.Tx, number int64, entry *entry) error {
	const advance = "UPDATE cleanupd.erasure SET entries_applied = $2 WHERE id = $1::text::uuid AND entries_applied = " +
		"$2 - 1"
	n, err := e.exec(ctx, tx, advance, number)
	if err != nil || n == 0 {
		return err
	}
	return e.settle(ctx, tx, entry)
}

// settle records what a transaction did: which items were erased or failed, which rows were deleted, and which
// sessions have documents that must be deleted afterwards.
func (e *erasure) settle(ctx context.Context, tx pgx.Tx, entry *entry) error {
	if len(entry.Items) > 0 {
		if err := e.mark(ctx, tx, "DONE", entry.Kind, entry.Items...); err != nil {
			return err
		}
	}
	if len(entry.Kept) > 0 {
		if err := e.markFailed(ctx, tx, entry.Kind, entry.Kept...); err != nil {
			return err
		}
	}
	if err := e.addRows(ctx, tx, entry.Rows); err != nil {
		return err
	}
	if err := e.addSessions(ctx, tx, entry.Kind, entry.Sessions); err != nil {
		return err
	}
	if err := e.removeSessions(ctx, tx, entry.Settled, nil); err != nil {
		return err
	}
	return e.appendEvents(ctx, tx, entry.Events...)
}

// These are the kinds of an erasure's items.
const (
	kindInstance = "instance"
	kindTask     = "task"
)

// mark changes the state of unsettled items. It fails with errTaken if one of the items is already settled.
func (e *erasure) mark(ctx context.Context, tx pgx.Tx, state, kind string, ids ...int64) error {
	n, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure_item SET state = $4 WHERE erasure_id = $1::text::uuid
		AND kind = $2 AND item_id = ANY ($3) AND state IN ('PENDING', 'PURGING')`, kind, ids, state)
	if err == nil && n != int64(len(ids)) {
		err = errTaken
	}
	return err
}

func (e *erasure) addRows(ctx context.Context, tx pgx.Tx, rows forms.Rows) error {
	_, err := e.exec(ctx, tx, `INSERT INTO cleanupd.erasure_rows AS r (erasure_id, relation, rows)
		SELECT $1::text::uuid, key, value::bigint FROM jsonb_each_text($2)
		ON CONFLICT (erasure_id, relation) DO UPDATE SET rows = r.rows + EXCLUDED.rows`, rows)
	return err
}

// unsettledItems returns the items that are neither erased nor failed.
func (e *erasure) unsettledItems(ctx context.Context, kind string) ([]int64, error) {
	rows, _ := e.Record.Query(ctx, `SELECT item_id FROM cleanupd.erasure_item
		WHERE erasure_id = $1::text::uuid AND kind = $2 AND state IN ('PENDING', 'PURGING') ORDER BY item_id`, e.id, kind)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// isPurging reports whether the Forms server was asked to purge the process instance.
func (e *erasure) isPurging(ctx context.Context, instance int64) (purging bool, err error) {
	err = e.Record.QueryRow(ctx, "SELECT state = 'PURGING' FROM cleanupd.erasure_item "+
		"WHERE erasure_id = $1::text::uuid AND kind = $2 AND item_id = $3", e.id, kindInstance, instance).
		Scan(&purging)
	return purging, err
}

// markPurging is called before the Forms server is asked to purge the process instance.
func (e *erasure) markPurging(ctx context.Context, tx pgx.Tx, instance int64) error {
	return e.mark(ctx, tx, "PURGING", kindInstance, instance)
}

func (e *erasure) markFailed(ctx context.Context, tx pgx.Tx, kind string, ids ...int64) error {
	return e.mark(ctx, tx, "FAILED", kind, ids...)
}

func (e *erasure) failUnsettledItems(ctx context.Context, tx pgx.Tx) error {
	_, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure_item SET state = 'FAILED' WHERE erasure_id = $1::text::uuid
		AND state IN ('PENDING', 'PURGING')`)
	return err
}

// dropPendingItems removes items whose erasure has not begun, and returns how many there were.
func (e *erasure) dropPendingItems(ctx context.Context, tx pgx.Tx) (int64, error) {
	return e.exec(ctx, tx, "DELETE FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND state = 'PENDING'")
}

// heldError means that everything is on hold, or that this cannot be determined.
type heldError struct{ error }

func (e *heldError) Unwrap() error { return e.error }

// unlessHeld calls fn, which deletes something, or fails with a heldError if everything is on hold. A shared lock
// makes a new hold of everything wait until fn has returned.
func (e *erasure) unlessHeld(ctx context.Context, fn func() error) error {
	if err := advisory.Squatted(ctx, e.conn, advisory.Erasing, true); err != nil {
		return &heldError{err}
	}
	if err := e.lock(ctx, "pg_advisory_lock_shared", advisory.Erasing); err != nil {
		return &heldError{err}
	}
	err := e.Held(ctx)
	if err != nil {
		err = &heldError{err}
	} else {
		err = fn()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), advisory.UnlockTimeout)
	defer cancel()
	_, unlockErr := e.conn.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)", advisory.Erasing))
	return errors.Join(err, unlockErr)
}

// folderLock is the key of the lock for work in the folder of the document storage: "folder" in ASCII. If two
// erasures searched the folder at once, each would leave a document to the other if sessions of both refer to it.
const folderLock = 0x666f6c646572

// lockFolder waits until no other erasure works in the folder of the document storage. It fails if a session of
// another database role holds the lock. The lock is released with the claim.
func (e *erasure) lockFolder(ctx context.Context) error {
	if err := advisory.Squatted(ctx, e.conn, folderLock, false); err != nil {
		return err
	}
	return e.lock(ctx, "pg_advisory_lock", folderLock)
}

// lock calls one of PostgreSQL's lock functions without a timeout, since waiting may take long.
func (e *erasure) lock(ctx context.Context, function string, key int64) error {
	_, err := e.conn.Exec(ctx,
		fmt.Sprintf("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT %s(%d)", function, key))
	return err
}
