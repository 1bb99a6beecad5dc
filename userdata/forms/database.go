package forms

import (
	"context"
	"database/sql"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cleanupd/cleanupd/internal/failure"
)

// Of a Forms server.
type Database struct {
	dialect
	db       *sql.DB
	close    func()
	identity string
}

// How long a statement waits for a lock of the Forms server.
const LockTimeout = 5 * time.Second

// Tables of AEM Forms are missing in the database.
var ErrNotForms = failure.New(failure.Precondition, "this is no AEM Forms database")

func (d *Database) Close() {
	_ = d.db.Close()
	d.close()
}

// Migrate gave the id to this database. Erasures are carried out only where they were requested.
func (d *Database) Identity() string { return d.identity }

// A snapshot is read-only, and of one state of the database.
func (d *Database) Snapshot(ctx context.Context, fn func(tx *Transaction) error) error {
	return d.begin(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, nil, fn)
}

// Change commits the transaction, which may erase.
func (d *Database) Change(ctx context.Context, fn func(tx *Transaction) error) error {
	return d.begin(ctx, &sql.TxOptions{Isolation: d.isolation()}, d.settings(), fn)
}

func (d *Database) begin(
	ctx context.Context, options *sql.TxOptions, settings []string, fn func(tx *Transaction) error,
) error {
	tx, err := d.db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range settings {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := fn(&Transaction{d.dialect, tx}); err != nil {
		return err
	}
	return tx.Commit()
}

// Per transaction.
const MaxTries = 6

// Retry calls fn until it succeeds, fails with an error that is not transient, or was tried a number of times.
func Retry(ctx context.Context, tries uint, transient func(error) bool, fn func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := fn()
		if err != nil && !transient(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxTries(tries))
	return err
}
