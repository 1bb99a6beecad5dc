package forms

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Migrate creates the service's own tables if they do not exist: in the schema cleanupd of PostgreSQL, or with the
// prefix cleanupd_ in MySQL. It needs the right to create tables only if they are missing.
func (d *Database) Migrate(ctx context.Context) error {
	if err := d.db.PingContext(ctx); err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	if err := d.readIdentity(ctx); err == nil || d.Lost(err) {
		return err
	}
	err := Retry(ctx, MaxTries, d.duplicate, func() error {
		if err := d.createTables(ctx); err != nil && d.readIdentity(ctx) == nil { // another replica was faster
			return nil
		} else if err != nil {
			return err
		}
		return d.readIdentity(ctx)
	})
	if err != nil {
		return fmt.Errorf(
			"the service's own tables in the Forms database, %s, cannot be read or created (%w): run `cleanupd "+
				"migrate --forms-database-url` as a role that may create them, and grant this one SELECT on the "+
				"first and SELECT, INSERT, UPDATE, DELETE on the others (on PostgreSQL also USAGE on the schema)",
			strings.Join([]string{d.ownTable("identity"), d.ownTable("erasure"), d.ownTable("ledger")}, ", "), err,
		)
	}
	return nil
}

func (d *Database) createTables(ctx context.Context) error {
	for _, statement := range d.schema() {
		if _, err := d.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	text, values := expand(d.dialect, "INSERT INTO "+d.ownTable("identity")+" VALUES (1, @identity)",
		Args{"identity": uuid.NewString()})
	_, err := d.db.ExecContext(ctx, text, values...)
	return err
}

// ownTables returns the statements that create the service's own tables, with the given types for ids and long
// texts.
func ownTables(d dialect, id, text string) []string {
	return []string{
		// the id of this database, in the only row
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (only_row smallint PRIMARY KEY, identity %s NOT NULL)",
			d.ownTable("identity"), id),
		// the epoch of the replica that works on an erasure, and how many entries the ledger has
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (erasure_id %s PRIMARY KEY, epoch bigint NOT NULL, entries bigint NOT NULL)",
			d.ownTable("erasure"), id),
		// what each transaction of an erasure deleted, written by that transaction
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (erasure_id %s, entry bigint, written bigint NOT NULL, body %s NOT NULL, "+
				"PRIMARY KEY (erasure_id, entry))",
			d.ownTable("ledger"), id, text,
		),
	}
}

func (d *Database) readIdentity(ctx context.Context) (err error) {
	d.identity, err = d.identify(ctx)
	return err
}

// Ping fails if the database does not answer or lacks the service's own tables.
func (d *Database) Ping(ctx context.Context) error {
	_, err := d.identify(ctx)
	return err
}

// identify returns the id of this database. It fails if any of the service's own tables is missing.
func (d *Database) identify(ctx context.Context) (identity string, err error) {
	err = d.db.QueryRowContext(ctx,
		fmt.Sprintf(
			"SELECT i.identity FROM %s i LEFT JOIN %s e ON e.erasure_id = i.identity LEFT JOIN %s j ON j.erasure_id = "+
				"i.identity",
			d.ownTable("identity"), d.ownTable("erasure"), d.ownTable("ledger"))).Scan(&identity)
	return identity, err
}

// ledgerRetention is how long the ledger keeps entries. A failover may set the record of erasures back by some
// seconds, and the record is then brought up to date from the ledger.
const ledgerRetention = 30 * 24 * time.Hour

// TakeOver starts a new epoch of an erasure. It waits for a running transaction of an earlier epoch; later
// transactions of earlier epochs fail.
func (d *Database) TakeOver(ctx context.Context, erasure string) (epoch int64, err error) {
	transient := func(err error) bool { return d.Transient(err) || d.duplicate(err) }
	err = Retry(ctx, MaxTries, transient, func() error {
		return d.Change(ctx, func(tx *Transaction) error {
			a := Args{"id": erasure, "old": time.Now().Add(-ledgerRetention).Unix()}
			prune := "DELETE FROM " + tx.ownTable("ledger") + " WHERE erasure_id <> @id AND written < @old"
			if _, err := tx.Exec(ctx, prune, a); err != nil {
				return err
			}
			n, err := tx.Exec(ctx, "UPDATE "+tx.ownTable("erasure")+" SET epoch = epoch + 1 WHERE erasure_id = @id", a)
			if err == nil && n == 0 {
				_, err = tx.Exec(ctx, "INSERT INTO "+tx.ownTable("erasure")+" VALUES (@id, 1, 0)", a)
			}
			if err != nil {
				return err
			}
			query := "SELECT epoch FROM " + tx.ownTable("erasure") + " WHERE erasure_id = @id"
			return tx.Each(ctx, query, a, []any{&epoch}, func() {})
		})
	})
	return epoch, err
}

// LockErasure keeps other replicas from taking the erasure over until the transaction ends. It also returns how many
// entries of the erasure the ledger has.
func (t *Transaction) LockErasure(ctx context.Context, erasure string) (epoch, entries int64, err error) {
	query := "SELECT epoch, entries FROM " + t.ownTable("erasure") + " WHERE erasure_id = @id FOR UPDATE"
	err = t.Each(ctx, query, Args{"id": erasure}, []any{&epoch, &entries}, func() {})
	return epoch, entries, err
}

func (t *Transaction) AddEntry(ctx context.Context, erasure string, number int64, body []byte) error {
	a := Args{"id": erasure, "entry": number, "now": time.Now().Unix(), "body": string(body)}
	if _, err := t.Exec(ctx, "INSERT INTO "+t.ownTable("ledger")+" VALUES (@id, @entry, @now, @body)", a); err != nil {
		return err
	}
	_, err := t.Exec(ctx, "UPDATE "+t.ownTable("erasure")+" SET entries = @entry WHERE erasure_id = @id", a)
	return err
}

// Entry returns nil if there is no such entry.
func (d *Database) Entry(ctx context.Context, erasure string, number int64) (body []byte, err error) {
	text, values := expand(d.dialect,
		"SELECT body FROM "+d.ownTable("ledger")+" WHERE erasure_id = @id AND entry = @entry",
		Args{"id": erasure, "entry": number})
	err = d.db.QueryRowContext(ctx, text, values...).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return body, err
}
