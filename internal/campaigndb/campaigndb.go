// Package campaigndb makes Campaign databases for the demo and the tests: the tables of schema.sql, and realistic
// rows in them.
package campaigndb

import (
	"context"
	_ "embed" // for Schema
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Schema is the SQL of the tables that a cleanup run touches.
//
//go:embed schema.sql
var Schema string

// Role is the application's role, which owns its tables and is not a superuser.
const Role = "neolane"

// Create creates a database and the schema in it. The returned connection is that of the application's role, which
// owns the database.
func Create(
	ctx context.Context, server func(role, database string) string, database, schema string,
) (*pgx.Conn, error) {
	super, err := pgx.Connect(ctx, server("postgres", "postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = super.Close(context.WithoutCancel(ctx)) }()
	if err := prepare(ctx, super, database); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, server(Role, database))
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, schema); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

func prepare(ctx context.Context, superuser *pgx.Conn, database string) error {
	for _, sql := range []string{
		"DO $$ BEGIN CREATE ROLE " + Role + " LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; " +
			"END $$",
		fmt.Sprintf("CREATE DATABASE %s OWNER %s", pgx.Identifier{database}.Sanitize(), Role),
	} {
		if _, err := superuser.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
