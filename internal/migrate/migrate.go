// Package migrate creates and updates the service's own schema, cleanupd, in the databases that the service cleans.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"

	"github.com/cleanupd/cleanupd/internal/advisory"
)

// schemaLock makes replicas that start at the same time take turns. It is "cleanupd" in ASCII.
const schemaLock = 0x636c65616e757064

// ErrNoSchema means that nothing is stored, since no service has run.
var ErrNoSchema = errors.New("no service has run on this database yet: it has no schema cleanupd")

// Up applies the migrations that are missing. versionTable is the table in the schema cleanupd that holds the
// version. If there is nothing to do, Up needs no right to change the schema. It leaves a newer schema as it is, and
// fails if that schema lacks something that this program needs: a migration that removes something records, in the
// column oldest of versionTable, the oldest version of programs that can still use the schema.
func Up(ctx context.Context, conn *pgx.Conn, migrations fs.FS, versionTable string) error {
	err := locked(ctx, conn, migrations, "cleanupd."+versionTable)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == pgerrcode.InsufficientPrivilege {
		grant, missingErr := MissingGrant(ctx, conn)
		if missingErr != nil {
			return errors.Join(err, missingErr)
		}
		user := pgx.Identifier{conn.Config().User}.Sanitize()
		if len(grant) > 0 {
			return fmt.Errorf("the role %s cannot create the schema cleanupd (%s): have the database's owner run: %s",
				user, pgErr.Message, grant[0])
		}
		return fmt.Errorf(
			"the role %[1]s cannot use or update the schema cleanupd (%[2]s): run `cleanupd migrate --database-url URL` "+
				"as the owner of the schema, then "+
				"GRANT USAGE ON SCHEMA cleanupd TO %[1]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN "+
				"SCHEMA cleanupd TO %[1]s",
			user, pgErr.Message,
		)
	}
	if err != nil {
		return fmt.Errorf("migrate the schema cleanupd: %w", err)
	}
	return nil
}

// MissingGrant returns the statement that lets the role create the schema cleanupd; none if the schema exists, or if
// the role can create it.
func MissingGrant(
	ctx context.Context, db interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	},
) ([]string, error) {
	rows, _ := db.Query(ctx, `SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user)
		WHERE to_regnamespace('cleanupd') IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func locked(ctx context.Context, conn *pgx.Conn, migrations fs.FS, versionTable string) (err error) {
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(schemaLock)); err != nil {
		return advisory.Explain(ctx, conn, schemaLock, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), advisory.UnlockTimeout)
		defer cancel()
		_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(schemaLock))
		err = errors.Join(err, unlockErr)
	}()
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleanupd')").
		Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := conn.Exec(ctx, "CREATE SCHEMA cleanupd"); err != nil {
			return err
		}
	}
	migrator, err := migrate.NewMigrator(ctx, conn, versionTable)
	if err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	if err := migrator.LoadMigrations(files); err != nil {
		return err
	}
	version, err := migrator.GetCurrentVersion(ctx)
	if err != nil {
		return err
	}
	if err := identify(ctx, conn); err != nil {
		return err
	}
	newest := int32(len(migrator.Migrations))
	if version == newest {
		return nil
	}
	table := pgx.Identifier(strings.Split(versionTable, ".")).Sanitize()
	if version > newest {
		var oldest int32
		if err := conn.QueryRow(ctx, "SELECT oldest FROM "+table).Scan(&oldest); err != nil {
			return err
		}
		if oldest > newest {
			return fmt.Errorf(
				"the database is at version %d, which takes a program for version %d or later; this one is for %d: use a newer one",
				version, oldest, newest)
		}
		return nil
	}
	if _, err := conn.Exec(
		ctx, "ALTER TABLE "+table+" ADD COLUMN IF NOT EXISTS oldest int NOT NULL DEFAULT 0",
	); err != nil {
		return err
	}
	if err := migrator.Migrate(ctx); err != nil {
		return err
	}
	return identify(ctx, conn)
}

// anonymous selects tables of the schema that the role owns and that have neither a primary key nor another replica
// identity.
const anonymous = `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'cleanupd' AND c.relkind IN ('r', 'p') AND c.relreplident IN ('d', 'n')
  AND pg_has_role(c.relowner, 'USAGE')
  AND (c.relreplident = 'n' OR NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
ORDER BY 1`

// identify gives the tables that anonymous selects a replica identity, since a table without one refuses UPDATE and
// DELETE if a publication is FOR ALL TABLES.
func identify(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, anonymous)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := conn.Exec(
			ctx, "ALTER TABLE "+pgx.Identifier{"cleanupd", table}.Sanitize()+" REPLICA IDENTITY FULL",
		); err != nil {
			return err
		}
	}
	return nil
}
