package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Forms is the database of a Forms server.
type Forms struct {
	dialect
	db       *sql.DB
	close    func()
	identity string // that it was given by Migrate
}

// Close closes its connections.
func (f *Forms) Close() {
	_ = f.db.Close()
	f.close()
}

// ErrNotForms says that tables of AEM Forms are missing in the database.
var ErrNotForms = failure.New(failure.Precondition, "this is no AEM Forms database")

// needed are the tables without which nothing can be found; stored are those of a document storage in the database.
var (
	needed = []string{
		"edcprincipalentity",
		"tb_task",
		"tb_assignment",
		"tb_queue",
		"tb_process_instance",
		"omd_object_type",
		"tb_form_data",
	}
	stored = []string{"tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion"}
)

// check fails when tables are missing.
func (d *Database) check(ctx context.Context, tx *transaction) error {
	names := needed
	if d.InDatabase {
		names = slices.Concat(needed, stored)
	}
	missing, err := tx.lacking(ctx, tx, names)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf(
			"%w: it lacks %s; check its name, and on PostgreSQL the role's search_path",
			ErrNotForms,
			strings.Join(missing, ", "),
		)
	}
	return nil
}

// snapshot calls fn with a transaction that sees one state of the database and changes nothing.
func (f *Forms) snapshot(ctx context.Context, fn func(tx *transaction) error) error {
	return f.begin(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, nil, fn)
}

// change calls fn with a transaction that erases, and commits it.
func (f *Forms) change(ctx context.Context, fn func(tx *transaction) error) error {
	return f.begin(ctx, &sql.TxOptions{Isolation: f.isolation()}, f.settings(), fn)
}

func (f *Forms) begin(
	ctx context.Context,
	options *sql.TxOptions,
	settings []string,
	fn func(tx *transaction) error,
) error {
	tx, err := f.db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range settings {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := fn(&transaction{tx, f.dialect}); err != nil {
		return err
	}
	return tx.Commit()
}

// maxTries is how often a transaction is tried.
const maxTries = 6

// retry calls fn, and again after errors that may pass.
func retry(ctx context.Context, tries uint, passes func(error) bool, fn func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := fn()
		if err != nil && !passes(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxTries(tries))
	return err
}

// ownTables are the statements that create the service's own tables, in types for ids and for long texts.
func ownTables(d dialect, id, text string) []string {
	return []string{
		// The one row says which database this is.
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (only_row smallint PRIMARY KEY, identity %s NOT NULL)",
			d.own("identity"),
			id,
		),
		// Which replica works on an erasure, by the number of the takeover, and how many entries the journal has of it.
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (erasure_id %s PRIMARY KEY, epoch bigint NOT NULL, entries bigint NOT NULL)",
			d.own("erasure"),
			id,
		),
		// What each transaction of an erasure has deleted: written by that transaction.
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (erasure_id %s, entry bigint, written bigint NOT NULL, body %s NOT NULL, "+
				"PRIMARY KEY (erasure_id, entry))",
			d.own("journal"),
			id,
			text,
		),
	}
}

// Migrate creates the service's own tables where they do not exist: in the schema cleanupd of PostgreSQL, with the
// prefix cleanupd_ in MySQL. If there is nothing to do it needs no right to create anything.
func (f *Forms) Migrate(ctx context.Context) error {
	if err := f.db.PingContext(ctx); err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	identify := func() (err error) {
		f.identity, err = f.identify(ctx)
		return err
	}
	if err := identify(); err == nil || f.lost(err) {
		return err
	}
	create := func() error {
		for _, statement := range f.schema() {
			if _, err := f.db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		text, values := expand(
			f.dialect,
			"INSERT INTO "+f.own("identity")+" VALUES (1, @identity)",
			args{"identity": uuid.NewString()},
		)
		_, err := f.db.ExecContext(ctx, text, values...)
		return err
	}
	err := retry(ctx, maxTries, f.duplicate, func() error {
		if err := create(); err != nil && identify() == nil { // another replica was faster
			return nil
		} else if err != nil {
			return err
		}
		return identify()
	})
	if err != nil {
		return fmt.Errorf(
			"the service's own tables in the Forms database, %s, cannot be read or created (%w): run `cleanupd "+
				"migrate --forms-database-url` as a role that may create them, and grant this one SELECT on the "+
				"first and SELECT, INSERT, UPDATE, DELETE on the others (on PostgreSQL also USAGE on the schema)",
			strings.Join([]string{f.own("identity"), f.own("erasure"), f.own("journal")}, ", "),
			err,
		)
	}
	return nil
}

// identify reads which database this is, and that the other tables are there.
func (f *Forms) identify(ctx context.Context) (identity string, err error) {
	err = f.db.QueryRowContext(ctx, fmt.Sprintf("SELECT i.identity FROM %s i LEFT JOIN %s e ON e.erasure_id = "+
		"i.identity LEFT JOIN %s j ON j.erasure_id = i.identity", f.own("identity"), f.own("erasure"), f.own("journal"))).
		Scan(&identity)
	return identity, err
}

// journalKept is how long the journal is kept: the record may have lost its last seconds in a failover, and is told
// again.
const journalKept = 30 * 24 * time.Hour
