package forms

import (
	"context"
	"database/sql"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Database is the database of a Forms server.
type Database struct {
	dialect
	db       *sql.DB
	close    func()
	identity string
}

// LockTimeout is how long a statement waits for a lock of the Forms server.
const LockTimeout = 5 * time.Second

// ErrNotForms means that tables of AEM Forms are missing in the database.
var ErrNotForms = failure.New(failure.Precondition, "this is no AEM Forms database")

func (d *Database) Close() {
	_ = d.db.Close()
	d.close()
}

// Identity returns the id that Migrate gave to this database. An erasure is carried out only in the database for
// which it was requested.
func (d *Database) Identity() string { return d.identity }

// Snapshot runs fn in a read-only transaction that sees one state of the database.
func (d *Database) Snapshot(ctx context.Context, fn func(tx *Transaction) error) error {
	return d.begin(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, nil, fn)
}

// Change runs fn in a transaction that may erase, and commits it.
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

// MaxTries is how often a transaction is tried.
const MaxTries = 6

// Retry calls fn until it succeeds, fails with an error that is not transient, or has been tried tries times.
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
