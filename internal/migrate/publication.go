package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// These select the publications that publish every new table of the schema cleanupd. Before PostgreSQL 15, no
// publication can be of a whole schema.
const (
	publishAll       = "SELECT pubname::text FROM pg_publication WHERE puballtables"
	publishTheSchema = `SELECT pubname::text FROM pg_publication p JOIN pg_publication_namespace s ON s.pnpubid = p.oid
		JOIN pg_namespace n ON n.oid = s.pnnspid WHERE n.nspname = 'cleanupd'`
)

// Unpublished fails if tables that are created in the schema cleanupd would be published: every subscriber that
// lacks these tables would stop, and keep the server from removing WAL.
func Unpublished(ctx context.Context, conn *pgx.Conn) error {
	var bySchema bool
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int >= 150000").
		Scan(&bySchema); err != nil {
		return err
	}
	query := publishAll
	if bySchema {
		query += " UNION " + publishTheSchema
	}
	rows, _ := conn.Query(ctx, query+" ORDER BY 1")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the publications: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	for i, name := range names {
		names[i] = pgx.Identifier{name}.Sanitize()
	}
	return failure.New(failure.Precondition, fmt.Sprintf(
		"tables in the schema cleanupd would be published by %s, and stop every subscriber that lacks them; nothing was "+
			"created: publish tables by their schemas instead (CREATE PUBLICATION … FOR TABLES IN SCHEMA …), or create them "+
			"at each subscriber first (cleanupd schema | psql SUBSCRIBER), and then start with --allow-published-schema",
		strings.Join(names, ", "),
	))
}

// Pending reports whether Up would create or change tables.
func Pending(ctx context.Context, conn *pgx.Conn, migrations fs.FS, versionTable string) (bool, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return false, err
	}
	table := "cleanupd." + versionTable
	var exists bool
	if err := conn.QueryRow(
		ctx,
		`SELECT EXISTS (SELECT FROM pg_class WHERE relname = $1 AND relnamespace = (SELECT oid FROM pg_namespace
			WHERE nspname = 'cleanupd'))`,
		versionTable,
	).Scan(&exists); err != nil || !exists {
		return true, err
	}
	var version int
	err = conn.QueryRow(ctx, "SELECT version FROM "+table).Scan(&version)
	return version < len(files), err
}

// SQL returns the statements that create the tables. It adds no rows.
func SQL(migrations fs.FS, versionTable string) (string, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "CREATE TABLE cleanupd.%s (version int4 NOT NULL, oldest int NOT NULL DEFAULT 0);\n\n",
		versionTable)
	for _, name := range files {
		file, err := fs.ReadFile(migrations, name)
		if err != nil {
			return "", err
		}
		up, _, _ := strings.Cut(string(file), "---- create above / drop below ----")
		text.WriteString(strings.TrimSpace(up) + "\n\n")
	}
	return text.String(), nil
}
