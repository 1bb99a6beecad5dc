package forms

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// ownTables returns the statements that create the service's own tables, with the given types for ids and long
// texts.
func ownTables(d dialect, id, text string) []string {
	return []string{
		// the id of this database, in the only row
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (only_row smallint PRIMARY KEY, identity %s NOT NULL)",
			d.OwnTable("identity"), id),
		// the epoch of the replica that works on an erasure, and how many entries the journal has
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (erasure_id %s PRIMARY KEY, epoch bigint NOT NULL, entries bigint NOT NULL)",
			d.OwnTable("erasure"), id),
		// what each transaction of an erasure deleted, written by that transaction
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (erasure_id %s, entry bigint, written bigint NOT NULL, body %s NOT NULL, "+
				"PRIMARY KEY (erasure_id, entry))",
			d.OwnTable("journal"), id, text,
		),
	}
}

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
			strings.Join([]string{d.OwnTable("identity"), d.OwnTable("erasure"), d.OwnTable("journal")}, ", "), err,
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
	text, values := expand(d.dialect, "INSERT INTO "+d.OwnTable("identity")+" VALUES (1, @identity)",
		Args{"identity": uuid.NewString()})
	_, err := d.db.ExecContext(ctx, text, values...)
	return err
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
			d.OwnTable("identity"), d.OwnTable("erasure"), d.OwnTable("journal"))).Scan(&identity)
	return identity, err
}
